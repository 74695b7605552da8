"""ROS 2 bags in SQLite (``.db3``): the topics of `datacheck.formats.bag`, message by message.

Bags of ROS 2 Iron and later store the definition of each type. Older ones (Humble and before) name
the type only: of the types in ``ros2_types.msg``, which did not change between the releases of
ROS 2, the definition is known; a topic of another type keeps its log times and sizes. The file has
the definitions of ros2/common_interfaces (Apache 2.0) without comments and constants.

SQLite opens the one file, read-only; triggers, views and functions of a hostile file do not run.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from importlib.resources import files
from urllib.parse import quote

from datacheck.errors import FormatError
from datacheck.formats.bag import Recording
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import Values, wrap_errors
from datacheck.runtime.beneath import AnyPath, descriptor_path

_MAGIC = b"SQLite format 3\0"
_VALUE_BYTES = 1 << 30
_TABLES = {"topics", "messages", "message_definitions"}
_ZSTD = b"\x28\xb5\x2f\xfd"


@cache
def _standard_types() -> tuple[str, dict[str, str]]:
    """Return all definitions as one text, and each by its name."""
    text = (files("datacheck.formats") / "ros2_types.msg").read_text("utf-8")
    sections = (section.partition("\n") for section in text.split(f"{'=' * 80}\nMSG: ")[1:])
    return text, {name: definition for name, _, definition in sections}


def _definition(kind: str, stored: dict[str, tuple[str, str]]) -> tuple[str, str, str]:
    """Return name, encoding and text of the definition of a type."""
    if kind in stored:
        return kind, *stored[kind]
    everything, standard = _standard_types()
    own = standard.get(kind.replace("/msg/", "/"))
    if own is None:
        return kind, "", ""
    return kind, "ros2msg", f"{own}{everything}"


def _allow_reads(action: int, table: str | None, column: str | None, *_: str | None) -> int:
    del column
    is_read = action == sqlite3.SQLITE_READ and table in {*_TABLES, "sqlite_master"}
    return sqlite3.SQLITE_OK if is_read or action == sqlite3.SQLITE_SELECT else sqlite3.SQLITE_DENY


def _connect(path: AnyPath) -> sqlite3.Connection:
    # Immutable: a journal that lies beside the file is not applied, and no lock is taken.
    uri = f"file:{quote(os.fspath(path))}?mode=ro&immutable=1"
    before = _descriptors()
    connection = sqlite3.connect(uri, uri=True)
    # SQLite looks up the name of the open file and opens that, where by now another one may lie. No
    # other thread of a reading process opens files meanwhile.
    opened = _descriptors().items() - before.items()
    status = path.stat()
    if (status.st_dev, status.st_ino) not in {identity for _, identity in opened}:
        connection.close()
        msg = "another file took its place while it was opened; scan again when nothing moves it"
        raise FormatError(msg)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
    connection.set_authorizer(_allow_reads)
    return connection


def _descriptors() -> dict[int, tuple[int, int]]:
    """Return device and inode of what each descriptor of this process has open."""
    identities = {}
    for name in os.listdir(descriptor_path(0).parent):  # noqa: PTH208
        with suppress(OSError):  # that of the listing itself is closed by now
            status = os.fstat(int(name))
            identities[int(name)] = status.st_dev, status.st_ino
    return identities


def _rows(connection: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[object, ...]]:
    yield from connection.execute(f"SELECT {columns} FROM {table}")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        msg = f"{what} is {type(value).__name__}, not text"
        raise FormatError(msg)
    return value


def _tables(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the tables of a bag that are there as plain tables."""
    found = set()
    for kind, name, made in _rows(connection, "sqlite_master", "type, name, sql"):
        if name in _TABLES:
            # One bracket: columns without expressions, which would run where a row is read. Virtual
            # tables run functions of SQLite.
            made = _text(made, f"the table {name}")
            is_plain = made.upper().startswith("CREATE TABLE") and made.count("(") == 1
            if kind != "table" or not is_plain:
                msg = f"{name} is no plain table of a ROS 2 bag"
                raise FormatError(msg)
            found.add(str(name))
    missing = {"topics", "messages"} - found
    if missing:
        msg = f"an SQLite file without the table {min(missing)}, so no ROS 2 bag"
        raise FormatError(msg)
    return found


def _declare(connection: sqlite3.Connection, tables: set[str], recording: Recording) -> None:
    stored = {}
    if "message_definitions" in tables:
        columns = "topic_type, encoding, encoded_message_definition"
        for row in _rows(connection, "message_definitions", columns):
            kind, encoding, text = (_text(value, "a message definition") for value in row)
            if text:  # the recorder writes none where it does not find the package
                stored[kind] = (encoding, text)
    for number, *names in _rows(connection, "topics", "id, name, type, serialization_format"):
        if not isinstance(number, int):
            msg = f"the number of a topic is {type(number).__name__}, not a whole number"
            raise FormatError(msg)
        topic, kind, encoding = (_text(name, f"a value of topic {number}") for name in names)
        recording.declare(number, topic, encoding, _definition(kind, stored))


def _read(connection: sqlite3.Connection) -> Recording:
    recording = Recording()
    _declare(connection, _tables(connection), recording)
    for topic, time, data in _rows(connection, "messages", "topic_id, timestamp, data"):
        if not (isinstance(topic, int) and isinstance(time, int) and isinstance(data, bytes)):
            msg = f"message {recording.messages + 1:,} has values of other types than a bag"
            raise FormatError(msg)
        if time < 0:
            msg = f"message {recording.messages + 1:,} has the time {time}"
            raise FormatError(msg)
        if data.startswith(_ZSTD):
            msg = "its messages are compressed one by one: ros2 bag convert writes them plain"
            raise FormatError(msg)
        recording.add(topic, time, None, data)
    return recording


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            msg = "not an SQLite file: it does not start with SQLite's mark"
            raise FormatError(msg)
    with wrap_errors("damaged SQLite file"):
        try:
            with closing(_connect(path)) as connection:
                return _read(connection).container()
        except sqlite3.DatabaseError as error:
            msg = (
                f"damaged SQLite file: {error}; sqlite3 FILE .recover writes the rows that it finds"
            )
            raise FormatError(msg) from error


ROS2_BAG = Format("rosbag2", (".db3",), _open)
