"""Mutations of files, by what formats are made of, and what reading one may come to.

A mutant of a corpus file is read or refused (`FormatError`); a command that meets a mutated
document ends with a message and an exit code that bad input may have. All else is a failure:
another exception, a signal, no memory, no end.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datacheck.errors import DatacheckError, FormatError
from tests.formats.reading import CORPUS, read_all
from tests.hostile.ground import ENDS

SEEDS = Path(__file__).parent / "seeds"
NUMBERS = (
    0,
    1,
    2,
    255,
    256,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**53,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -1,
)
WORDS = (
    b"-1",
    b"1e999",
    b"NaN",
    b"18446744073709551616",
    b"9" * 40,
    b"0.5",
    b"",
    b"\xff\xfe",
    b"\0",
    b"../../x",
    b"%s",
    b"\n",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    [],
    {},
    "",
    "x",
    -1,
    0,
    2**31,
    2**63,
    2**64,
    10**400,
    0.5,
    1e308,
    "../../x",
    "/etc/hostname",
    "\ud800",
    "a\x1b[2Jb",
    "x" * 70_000,
    ["x"] * 3,
    {"x": {"x": {}}},
    [[[[[[]]]]]],
)


# -------------------------------------------------------------------------------------------- bytes


def mutate(data: bytes, rng: random.Random, others: Sequence[bytes] = (b"",)) -> bytes:
    """Return a mutant of a file's bytes: inside a packed one where it is packed, by its JSON where it is JSON.

    Args:
        data: a file.
        rng: decides everything.
        others: files of the same kind, parts of which may be put in.
    """
    chosen = rng.random()
    if chosen < 0.6:
        for inside in (_json, _zip, _gzip):
            with contextlib.suppress(Exception):  # it is no such file
                return inside(data, rng, others)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        data = rng.choice(_EDITS)(data, rng, others)
    return data


def _at(data: bytes, rng: random.Random) -> int:
    """Return a place; headers are met more often than what lies behind them."""
    end = min(len(data), rng.choice((16, 64, 512, len(data), len(data))))
    return rng.randrange(end + 1)


def _flip(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = min(_at(data, rng), max(0, len(data) - 1))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :] if data else data


def _number(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    size, order = rng.choice((1, 2, 4, 8)), rng.choice("<>")
    packed = struct.pack(f"{order}Q", rng.choice(NUMBERS) % 2**64)
    piece = packed[:size] if order == "<" else packed[-size:]
    at = _at(data, rng) // size * size
    return data[:at] + piece + data[at + size :]


def _word(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    """Put another number in the place of one that is written in digits."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?", data[: 1 << 16]))
    if not found:
        return _insert(data, rng, _)
    one = rng.choice(found)
    word = rng.choice((*WORDS, *(str(number).encode() for number in NUMBERS)))
    return data[: one.start()] + word + data[one.end() :]


def _insert(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = _at(data, rng)
    return data[:at] + rng.choice((*WORDS, rng.randbytes(rng.randrange(1, 9)))) + data[at:]


def _delete(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = _at(data, rng)
    return data[:at] + data[at + rng.choice((1, 2, 4, 8, 64, 512)) :]


def _cut(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    return data[: _at(data, rng)]


def _again(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at, size = _at(data, rng), rng.choice((1, 8, 64, 512))
    return data[:at] + data[at : at + size] * rng.choice((2, 3, 200)) + data[at + size :]


def _spliced(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return data[: _at(data, rng)] + other[_at(other, rng) :]


_EDITS = (_flip, _flip, _number, _number, _word, _word, _insert, _delete, _cut, _again, _spliced)


# ----------------------------------------------------------------------------------- what is packed


def _zip(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = [(member.filename, file.read(member)) for member in file.infolist()]
    number = rng.randrange(len(members))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        for at, (name, inside) in enumerate(members):
            file.writestr(name, mutate(inside, rng, others) if at == number else inside)
    return out.getvalue()


def _gzip(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    return gzip.compress(mutate(gzip.decompress(data), rng, others), mtime=0)


def _json(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    """Mutate one value, name or list of a JSON document; of JSON lines one of their lines."""
    lines = data.split(b"\n")
    try:
        said, number = json.loads(data), None
    except ValueError:
        number = rng.randrange(len(lines))
        said = json.loads(lines[number])
    holder = [said]
    places = list(_places(holder))
    inside, key = rng.choice(places)
    kind = rng.randrange(5)
    if kind == 0 and isinstance(inside, dict):
        inside[rng.choice(("", "x", "../x", "\ud800", "a" * 300))] = inside.pop(key)
    elif kind == 1 and isinstance(inside, dict | list) and len(inside) and inside is not holder:
        del inside[key]
    elif kind == 2 and isinstance(inside[key], list):
        inside[key] = inside[key] * rng.choice((0, 2, 50))
    elif kind == 3 and isinstance(inside[key], int | float):
        inside[key] = rng.choice(
            (inside[key] + 1, -inside[key], float(inside[key]), str(inside[key]), *NUMBERS)
        )
    else:
        inside[key] = rng.choice(VALUES)
    made = json.dumps(holder[0]).encode()
    return made if number is None else b"\n".join([*lines[:number], made, *lines[number + 1 :]])


def _places(inside: Any) -> Any:
    for key in inside if isinstance(inside, dict) else range(len(inside)):
        yield inside, key
        if isinstance(inside[key], dict | list):
            yield from _places(inside[key])


# ------------------------------------------------------------------------------------------ formats


def corpus(name: str) -> list[Path]:
    """Return the files and folders of the corpus of one format, good ones first."""
    return sorted((CORPUS / name).iterdir(), key=lambda path: (path.name[0] != "y", path.name))


def mutant_of(source: Path, place: Path, rng: random.Random, others: Sequence[Path]) -> Path:
    """Write a mutant of a file (of a folder: of one of its files) into a folder; return it."""
    made = place / source.name
    if source.is_dir():
        shutil.copytree(source, made)
        inner = sorted(path for path in made.rglob("*") if path.is_file())
        one = rng.choice(inner)
        one.write_bytes(mutate(one.read_bytes(), rng, [path.read_bytes() for path in inner[:4]]))
        return made
    files = [path for path in others if path.is_file()]
    made.write_bytes(mutate(source.read_bytes(), rng, [rng.choice(files).read_bytes()]))
    return made


def read_or_refused(path: Path) -> str:
    """Return how reading a mutant went; anything but these two words is raised."""
    try:
        read_all(path)
    except FormatError:
        return "refused"
    return "read"


# ---------------------------------------------------------------------------------------- documents

Words = tuple[str, ...]
RUN = ".datacheck/latest"


def _scan(data: str, schema: str) -> Words:
    return ("scan", data, "--schema", schema, "--rehash", "--output", f"made/{data}")


DOCUMENTS: dict[
    str, tuple[str, tuple[Words, ...]]
] = {  # name: (pattern of its files, the commands that read them)
    "run": (
        f"{RUN}/*",
        (
            ("report", RUN, "--format", "json"),
            ("rescore", RUN, "--output", "made/rescored"),
            ("card", RUN, "-o", "made/card.json"),
            ("baseline", RUN, "-o", "made/baseline.json"),
            ("split", RUN, "--by", "key", "--train", "1", "--to", "made/lists"),
        ),
    ),
    "cache": (
        "caches/plain/all/*/**/*",
        (
            ("cache", "info", "caches"),
            ("cache", "verify", "caches", "--values"),
            ("cache", "ls", "caches"),
            ("cache", "report", "caches", "-o", "made/page.html"),
            ("cache", "gc", "caches", "--keep", "0"),
            ("cache", "export", "caches", "--to", "made/npz", "--as", "npz"),
            ("cache", "diff", "caches", "copied"),
            ("diff", "caches", "copied"),
        ),
    ),
    "training": ("runs/a/*", (("repro", "diff", "runs/a", "runs/b"), ("diff", "runs/a", "runs/b"))),
    "manifest": ("manifest.json", (("diff", "manifest.json", "clean"),)),
    "baseline": (
        "baseline.json",
        (("rescore", RUN, "--baseline", "baseline.json", "--output", "made/again"),),
    ),
    "schema": (
        "plain.yaml",
        (("schema", "check", "plain.yaml"), ("rules", "--schema", "plain.yaml")),
    ),
    "pipeline": (
        "pipe.yaml",
        (("cache", "explain-key", "pipe.yaml", "--data", "clean", "--out", "caches"),),
    ),
    "lists": ("listed/*.*l*", (_scan("listed", "listed.yaml"),)),
    "lerobot": ("v3/meta/**/*", (_scan("v3", "lerobot"),)),
    "lerobot2": ("v2/meta/**/*", (_scan("v2", "lerobot"),)),
    "mds_index": ("mds/index.json", (_scan("mds", "mds"),)),
    "stats": ("normed/stats.json", (_scan("normed", "normed.yaml"),)),
}


def command_ended(words: Words, run: Callable[[list[str]], int]) -> str:
    """Run a command in this process; return its exit code as text.

    Raises:
        AssertionError: it ended as no command may on bad input.
    """
    said = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="replace", write_through=True)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = run(list(words))
        except DatacheckError as error:
            msg = f"{' '.join(words)}: {type(error).__name__} left the command line"
            raise AssertionError(msg) from error
    text = said.buffer.getvalue().decode(errors="replace")
    assert code in ENDS, f"{' '.join(words)}: ended with {code}: {text[-600:]}"
    assert "Traceback" not in text, f"{' '.join(words)}: {text[-600:]}"
    return str(code)
