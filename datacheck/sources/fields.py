"""Map schema fields to values in files: names, attributes, columns, companions."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import FormatError, MissingDependencyError, SchemaError, UsageError
from datacheck.formats.base import Hint
from datacheck.formats.limits import (
    FIELDS,
    CountedContainer,
    check_fields,
    check_longest,
    check_names,
)
from datacheck.formats.parsed import parse_json
from datacheck.model.row_keys import storable_names
from datacheck.model.sample import Container, Depth, Peeked
from datacheck.schema.grammar import parse_columns
from datacheck.schema.model import ANY, FieldSpec, Schema, pixels
from datacheck.schema.patterns import Template, parse
from datacheck.sources.opening import Opener
from datacheck.sources.values import (
    HeaderTest,
    always,
    kind_of,
    like_pixels,
    nested_value,
    part_of,
    plain,
    read_numbers,
    read_planar,
    read_value,
)


class ContainerNames:
    """The sorted names in a container, listed on first use: some formats must walk the whole file.

    Args:
        container: an open file.
    """

    def __init__(self, container: Container) -> None:
        self._container = container
        self._found: list[str] | FormatError | None = None
        self._passed: list[str] | None = None

    def below(self, prefix: str = "") -> Sequence[str]:
        """Return the names that begin with `prefix`, in bytewise order; omits a CSV table's header.

        Args:
            prefix: "" or a group with a "/" at its end.

        Raises:
            FormatError: the file cannot list its names; every call raises it again.
        """
        if self._found is None:
            try:
                self._found = sorted(self._container.names())
            except FormatError as error:
                self._found = error
        if isinstance(self._found, FormatError):
            raise self._found
        if self._found == ["columns", "table"]:
            return ["table"]
        return self._found[_range_below(self._found, prefix)]

    def passed(self, prefix: str = "") -> list[str]:
        """Return the entries below `prefix` that are no values, without it; see `Container.passed`.

        Notes:
            Some formats know these entries only once the names are listed.
        """
        if self._passed is None or len(self._passed) != len(self._container.passed):
            self._passed = sorted(self._container.passed)
        inside = self._passed[_range_below(self._passed, prefix)]
        return [name.removeprefix(prefix) for name in inside]

    def outside(self, prefixes: Iterable[str]) -> Iterator[str]:
        """Yield the names, and the entries that are no values, below none of the groups.

        Args:
            prefixes: groups with a "/" at their end.

        Raises:
            FormatError: see `below`.
        """
        groups = sorted(prefixes)
        for ordered in (self.below(), sorted(self._container.passed)):
            begin = 0
            for prefix in groups:
                inside = _range_below(ordered, prefix)
                yield from ordered[begin : inside.start]
                begin = max(begin, inside.stop)
            yield from ordered[begin:]


def _range_below(ordered: Sequence[str], prefix: str) -> slice:
    """Return the range of the ordered names that begin with `prefix`: "" or a group and "/"."""
    if not prefix:
        return slice(0, len(ordered))
    start = bisect_left(ordered, prefix)
    # "0" is the next character after "/".
    return slice(start, bisect_left(ordered, f"{prefix[:-1]}0", lo=start))


_OUTER = frozenset({"data", "obs", "observation", "observations"})


def folded(name: str) -> str:
    """Normalize a name for comparison: case, plural, ``-`` and ``_``, groups of observations."""
    levels = [level for level in re.split(r"[./]", name.lower().replace("-", "_")) if level]
    levels = [level for level in levels[:-1] if level not in _OUTER] + levels[-1:]
    return "/".join(
        "_".join(re.sub(r"(?<=[^s])s$", "", word) for word in level.split("_") if word)
        for level in levels
    )


def near_name(wanted: str, names: Iterable[str]) -> str:
    """Return the only name that is near another one, "" where there is none or several."""
    matches = [name for name in names if folded(name) == folded(wanted)]
    return matches[0] if len(matches) == 1 else ""


def may_be(container: Container, name: str, spec: FieldSpec) -> bool:
    """Return whether a value's header fits the kind and sizes that a field declares."""
    try:
        shape, dtype = container.peek(name)
    except (KeyError, FormatError):
        return False
    if dtype in {"text", "json"}:
        return spec.is_text
    return not spec.is_text and np.dtype(dtype).kind in "biuf" and fits(shape, spec)


def fits(shape: Iterable[int], spec: FieldSpec) -> bool:
    """Return whether a shape has the axes and sizes that the schema declares for a field."""
    sizes = tuple(shape)
    declared = spec.shape
    if declared is None:
        return True
    axis_pairs = zip(declared, sizes, strict=False)
    return len(declared) == len(sizes) and all(
        axis == size for axis, size in axis_pairs if isinstance(axis, int)
    )


MARK = "@"  # ``at:`` begins with it where a field is an attribute


class Attributes:
    """The attributes of one container; attributes of shared parent groups are read once.

    Args:
        container: an open file.
    """

    def __init__(self, container: Container) -> None:
        self.container = container
        self._above: dict[str, dict[str, Any]] = {}

    def of(self, group: str = "") -> dict[str, Any]:
        """Return a group's attributes; parent groups and the file supply defaults."""
        group = group.strip("/")
        if not group:
            return self._shared("")
        return self._shared(group.rpartition("/")[0]) | self.container.attrs(group)

    def _shared(self, group: str) -> dict[str, Any]:
        if group not in self._above:
            outer = self._shared(group.rpartition("/")[0]) if group else {}
            self._above[group] = outer | self.container.attrs(group)
        return self._above[group]


def find(attrs: Mapping[str, Any], path: str) -> Any:
    """Return an attribute by name or by a dotted path into its JSON text; None if absent.

    Args:
        attrs: attributes by name.
        path: ``problem_info.language_instruction``; the longest existing name wins.

    Raises:
        FormatError: the path goes on, but the attribute is not JSON text.
    """
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        if name in attrs:
            value = attrs[name]
            if count < len(parts) and isinstance(value, str):
                value = parse_json(value.encode("utf-8", "surrogateescape"))
            for part in parts[count:]:
                value = value.get(part) if isinstance(value, dict) else None
            return value
    return None


Values = dict[str, Any]
Later = Callable[[str, Peeked], bool]

_JSON = FieldSpec(dtype="json")
_CELLS = 20_000_000  # limit for records times names
# Unlisted fields of a sample: how many are read, how many bytes even for a small sample, and the
# length of a name.
_UNLISTED = 64
_SMALL = 1 << 20
_LONGEST = 200


def _never(name: str, header: Peeked) -> bool:
    del name, header
    return False


@dataclass(frozen=True)
class FieldLocation:
    """Where to read one field.

    Args:
        name, spec: the field.
        at: its name inside the file; a leading "/" leaves the sample's group.
        file: pattern of the companion file that holds it, None for the sample's own file.
        look: decides from the header whether the header is enough; None always reads the value.
    """

    name: str
    spec: FieldSpec
    at: str
    file: Template | None = None
    look: HeaderTest | None = None

    @property
    def hint(self) -> Hint:
        """The expected content of a file that does not describe itself."""
        shape = self.spec.shape or ()
        dtype = self.spec.dtype if self.spec.dtype not in {None, "text", "json"} else ""
        sizes = tuple(d for d in shape[1:] if isinstance(d, int))
        return Hint(dtype or "", sizes if len(sizes) == len(shape[1:]) else ())


class FieldMap:
    """The fields of a schema (of one split) and where each of them is stored.

    Args:
        schema: with the split's ``when:`` block applied.
        only: read just these fields; None reads all.
        level: how deep a scan reads: "structure" only headers where the format has them, "numeric"
            no pixels; None for a build, which needs all values unchanged.
    """

    def __init__(
        self, schema: Schema, only: frozenset[str] | None = None, level: Depth | None = None
    ) -> None:
        self.schema = schema
        self.only = only
        self.level = level
        self._pixels = pixels(schema)
        self.declared = schema.stored
        self.taken: dict[str, str] = {}  # near names used in the last read, by field
        # Also read values that the schema does not list.
        self.everything = not self.declared or ANY in schema.fields
        places = [
            place for name in sorted(self.declared) if (place := self._place(name)) is not None
        ]
        self.companions = [place for place in places if place.file is not None]
        # A value may be called "@q" in its file. Only an explicit ``at:`` denotes an attribute.
        self.noted = [
            p for p in places if p.file is None and p.spec.at is not None and p.at.startswith(MARK)
        ]
        noted_names = {place.name for place in self.noted}
        self.own = [
            p
            for p in places
            if p.file is None and p.at not in self.columns and p.name not in noted_names
        ]

    def _place(self, name: str) -> FieldLocation | None:
        spec = self.schema.fields[name]
        if spec.absent or not self._is_selected(name):
            return None
        file = companion_template(self.schema, name)
        if file is not None and spec.at:
            parse(spec.at, f"{self.schema.name}, fields.{name}.at", path=False)
        return FieldLocation(
            name,
            spec,
            spec.at if spec.at is not None else "" if file else name,
            file,
            self.look(name),
        )

    def _is_selected(self, name: str) -> bool:
        return (
            self.only is None
            or name in self.only
            or name == (self.schema.splits and self.schema.splits.key)
        )

    def look(self, name: str) -> HeaderTest | None:
        """Return the header test for a field at this level, None where its values are needed.

        Notes:
            For a field that the schema does not list, only the header tells whether it holds
            pixels.
        """
        if self.level in {None, "deep"} or name == (self.schema.splits and self.schema.splits.key):
            return None
        if self.level == "structure" or name in self._pixels:
            return always
        return None if name in self.declared else like_pixels

    @cached_property
    def columns(self) -> dict[str, tuple[int, int]]:
        """The column ranges of the file's table: {name: (start, stop)}; {} if undeclared."""
        return parse_columns(self.schema.columns) if self.schema.columns else {}

    def _wanted(self, name: str) -> bool:
        declared = self.schema.fields.get(name)
        return self._is_selected(name) and (
            self.everything if declared is None else not declared.absent
        )

    @cached_property
    def width(self) -> int:
        """The highest column count that the file's table may have; 0 if undeclared."""
        return max((stop for _, stop in self.columns.values()), default=0)

    @cached_property
    def width_read(self) -> int:
        """The number of these columns that are read."""
        return sum(
            stop - start for name, (start, stop) in self.columns.items() if self._wanted(name)
        )

    @cached_property
    def _sole(self) -> str | None:
        plain_ones = [
            n for n, s in self.declared.items() if s.at is None and s.file is None and not s.absent
        ]
        return plain_ones[0] if len(plain_ones) == 1 else None

    @property
    def hint(self) -> Hint:
        """The content that the schema expects of a file that does not describe itself."""
        if self.columns:
            dtypes = {s.dtype for n, s in self.declared.items() if n in self.columns}
            return Hint((dtypes.pop() if len(dtypes) == 1 else None) or "", (self.width,))
        return self.own[0].hint if len(self.own) == 1 else Hint()

    # ------------------------------------------------------------------------------------- one file

    def found(
        self, container: Container, prefix: str = "", known: ContainerNames | None = None
    ) -> Iterator[tuple[str, FieldSpec, str]]:
        """Yield (field, spec, name in the container) of candidate values; does not split columns.

        Args:
            container: an open file.
            prefix: "" or the sample's group with a "/" at its end.
            known: the container's names, if several samples are read from it.
        """
        # A field may be declared by its `storable` name.
        escaped = any("\\ud" in place.at for place in self.own)
        names: Sequence[str] = ()
        sole = self._sole is not None and not prefix
        if self.everything:
            names = self._names(container, prefix, known)
            check_names(names)
        elif escaped or (
            sole and not (isinstance(container, CountedContainer) and container.least() > FIELDS)
        ):
            names = (known or ContainerNames(container)).below(prefix)
        inside = storable_names(name.removeprefix(prefix) for name in names)
        claimed_names = set(self.declared)
        for place in self.own:
            location = (
                next(iter(inside))
                if place.name == self._sole and len(inside) == 1 and not prefix
                else place.at
            )
            claimed_names.add(location)
            yield (
                place.name,
                place.spec,
                location[1:]
                if location.startswith("/")
                else prefix + inside.get(location, location),
            )
        if self.everything:
            for name, location in inside.items():
                if name not in claimed_names and self._is_selected(name):
                    yield name, self.schema.spec(name), prefix + location

    @staticmethod
    def _names(container: Container, prefix: str, known: ContainerNames | None) -> Sequence[str]:
        """Return the names of one sample's values.

        Raises:
            FormatError: the file cannot list them, or one sample has too many.
        """
        if not prefix and isinstance(container, CountedContainer):
            check_fields(container.least(), container.counted)
        return (known or ContainerNames(container)).below(prefix)

    def unlisted(
        self,
        container: Container,
        listed: tuple[int, int],
        prefix: str = "",
        known: ContainerNames | None = None,
        later: Later = _never,
    ) -> tuple[Values, list[str]]:
        """Return numeric arrays that the schema does not list, and the names of unread ones.

        Args:
            container, prefix, known: as for `found`.
            listed: bytes of the sample's own fields in memory, and of those whose rows are read
                later. Unlisted arrays may take as many bytes in all, or `_SMALL` if that is more.
            later: decides from a header whether a value's rows are read later; such a value is
                returned as `Peeked`.

        Notes:
            The schema makes no promise about these arrays: an unreadable one is no fault of the
            sample.
        """
        if self.columns:
            return {}, []
        try:
            all_names = self._names(container, prefix, known)
        except FormatError:
            return {}, []
        claimed_names = {
            *self.schema.fields,
            *(place.at.removeprefix("/") for place in self.own),
            *self.taken.values(),
        }
        candidates = [
            name
            for name in all_names
            if (short_name := name.removeprefix(prefix)) not in claimed_names
            and _is_plain_name(short_name)
        ]
        if len(candidates) > _UNLISTED or (self._sole is not None and len(all_names) == 1):
            return {}, [name.removeprefix(prefix) for name in candidates] if len(
                all_names
            ) > 1 else []
        # Everything read at once must fit in memory.
        room = [max(_SMALL, nbytes) for nbytes in listed]
        values: Values = {}
        passed: list[str] = []
        for name in sorted(candidates):
            try:
                value = read_numbers(
                    container, name, partial(_is_enough, room[0], partial(later, name))
                )
            except (FormatError, MissingDependencyError):
                passed.append(name.removeprefix(prefix))
                continue
            short_name = name.removeprefix(prefix)
            if value is None or value.dtype.kind not in "iuf":
                continue
            header = Peeked(value.shape, value.dtype)
            is_later = int(isinstance(value, Peeked) and later(name, header))
            if _is_large(room[is_later], header):
                passed.append(short_name)
            else:
                room[is_later] -= _nbytes(header)
                values[short_name] = value
        return values, passed

    def near(
        self,
        container: Container,
        field: str,
        prefix: str = "",
        known: ContainerNames | None = None,
    ) -> str:
        """Return the name that a file uses for a missing required field; "" where it is ambiguous.

        Args:
            field: the field.
            container, prefix, known: as for `found`.

        Notes:
            Applies only if the schema has ``near_names``, and never to a name that the schema
            declares.
        """
        spec = self.declared.get(field)
        if not self.schema.near_names or spec is None or spec.optional or spec.absent:
            return ""
        places = {place.name: place for place in self.own}
        if field not in places:
            return ""
        claimed_names = {place.at for place in self.own} | set(self.declared)
        try:
            names = [name.removeprefix(prefix) for name in self._names(container, prefix, known)]
        except FormatError:
            return ""
        match = near_name(places[field].at, [name for name in names if name not in claimed_names])
        return prefix + match if match and may_be(container, prefix + match, spec) else ""

    def read(
        self, container: Container, prefix: str = "", known: ContainerNames | None = None
    ) -> Values:
        """Return the sample's own fields without missing ones and None.

        `taken` records near names that were used in place of a field's name.

        Args:
            container, prefix, known: as for `found`.

        Raises:
            FormatError: a value is damaged or of a refused type; the message names the field.
        """
        if self.columns:
            looks = [self.look(name) for name in self.columns]
            look = None if None in looks else always
            return self._cut(_only_table(container, prefix, look, planar=self.level is not None))
        values: Values = {}
        self.taken = {}
        known = known or ContainerNames(container)
        for field, spec, name in self.found(container, prefix, known):
            value = read_value(container, name, spec, field, self.look(field))
            if value is None and (similar_name := self.near(container, field, prefix, known)):
                self.taken[field] = similar_name.removeprefix(prefix)
                value = read_value(container, similar_name, spec, field, self.look(field))
            if value is not None:
                values[field] = value
        return values

    @property
    def reads_attributes(self) -> bool:
        """Whether the schema uses attributes."""
        return bool(self.noted or self.schema.attrs)

    def add_noted(self, values: Values, attrs: Mapping[str, Any]) -> None:
        """Add the fields that are attributes (``at: "@name.key"``) to a sample's values.

        Raises:
            FormatError: an attribute is damaged or of a refused type; the message names the field.
        """
        for place in self.noted:
            try:
                value = plain(find(attrs, place.at.removeprefix(MARK)), place.spec)
            except FormatError as error:
                msg = f"{place.name}: attribute {place.at}: {error}"
                raise FormatError(msg, error.code) from error
            if value is not None:
                values[place.name] = value

    def _cut(self, table: Any) -> Values:
        if (
            not isinstance(table, np.ndarray | Peeked)
            or table.ndim != 2
            or table.shape[1] > self.width
        ):
            shape = list(table.shape) if isinstance(table, np.ndarray | Peeked) else "no array"
            msg = f"columns: found {shape}, the schema declares [N, {self.width}] or fewer columns"
            raise FormatError(msg)
        if (
            self.level is not None
            and isinstance(table, np.ndarray)
            and table.strides[0] != table.itemsize
        ):
            # One pass; the columns become views that scans reduce fast.
            table = np.ascontiguousarray(table.T).T
        values: Values = {}
        for name, (start, stop) in self.columns.items():
            if self._wanted(name) and stop <= table.shape[1]:
                values[name] = part_of(table, start, stop)
                if self.level is None:
                    values[name] = np.ascontiguousarray(values[name])
        return values

    def of_record(self, record: Any) -> Values:
        """Return the fields of one parsed JSON record.

        Raises:
            FormatError: (DC701) the record is not an object, but the schema names keys.
        """
        if not isinstance(record, dict):
            if self._sole is None:
                msg = f"found {kind_of(record)}, a record is an object with named values"
                raise FormatError(msg, "DC701")
            record = {self._sole: record}
        values: Values = {}
        for place in self.own:
            self._keep(values, place.name, place.spec, nested_value(record, place.at))
        if self.everything:
            check_names(record)
            claimed_names = {place.at for place in self.own} | set(self.declared)
            for name, value in record.items():
                if name not in claimed_names and self._is_selected(name):
                    self._keep(values, name, self.schema.spec(name), value)
        return values

    def of_records(
        self, records: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[str, FieldSpec, list[Any]]]:
        """Yield (field, declaration, one value or None per record) for many parsed JSON objects.

        Raises:
            FormatError: the records have hardly any names in common.
        """
        for place in self.own:
            location = place.at
            values = (
                [r.get(location) for r in records]
                if "/" not in location
                else [nested_value(r, location) for r in records]
            )
            yield place.name, place.spec, values
        if self.everything:
            claimed_names = {place.at for place in self.own} | set(self.declared)
            names = {name for record in records for name in record}
            check_fields(len(names) if len(names) * len(records) > _CELLS else 0)
            check_longest(names)
            for name in sorted(names - claimed_names):
                if self._is_selected(name):
                    yield name, self.schema.spec(name), [record.get(name) for record in records]

    @staticmethod
    def _keep(values: Values, name: str, spec: FieldSpec, value: Any) -> None:
        if value is None:
            return
        try:
            values[name] = plain(value, spec, parsed=True)
        except FormatError as error:
            msg = f"{name}: {error}"
            raise FormatError(msg, error.code) from error

    def drop_unasked(self, values: Values) -> Values:
        """Drop fields that were read for the split key only."""
        return values if self.only is None else {n: v for n, v in values.items() if n in self.only}


def companion_template(schema: Schema, name: str) -> Template | None:
    """Return the parsed ``file:`` of a field; a leading ``{root}/`` becomes ``@root/``.

    Raises:
        SchemaError: the pattern is malformed or does not name a single file.
    """
    text = schema.fields[name].file
    return (
        None
        if text is None
        else rooted_template(schema, text, f"{schema.name}, fields.{name}.file")
    )


def rooted_template(schema: Schema, text: str, where: str) -> Template:
    """Return the parsed pattern of a companion file; a leading ``{root}/`` becomes ``@root/``.

    Raises:
        SchemaError: the pattern is malformed or does not name a single file.
    """
    first, _, rest = text.partition("/")
    if first[1:-1] in schema.roots and first == f"{{{first[1:-1]}}}":
        text = f"@{first[1:-1]}/{rest}"
    template = parse(text, where)
    if template.wild:
        msg = f"{where}: {text!r} may stand for many files; a companion is one file, without '*'"
        raise SchemaError(msg)
    return template


def check_roots(schema: Schema, roots: Mapping[str, Path]) -> None:
    """Check that the user gave every extra folder that a required field needs.

    Raises:
        UsageError: a folder is missing.
    """
    for name in schema.stored:
        template = companion_template(schema, name)
        root = (
            template.text.partition("/")[0][1:]
            if template is not None and template.text.startswith("@")
            else ""
        )
        if root and root not in roots and not schema.fields[name].optional:
            msg = (
                f"{schema.name}, fields.{name}: its files lie in a folder of their own. Name it: "
                f"--root {root}=DIR"
            )
            raise UsageError(msg)


def _is_large(room: int, header: Peeked) -> bool:
    """Return whether to leave an unlisted field unread: no numbers, pixels, or too large."""
    return header.dtype.kind not in "iuf" or like_pixels(header) or not 0 < _nbytes(header) <= room


def _is_enough(room: int, later: HeaderTest, header: Peeked) -> bool:
    return _is_large(room, header) or later(header)


def _nbytes(header: Peeked) -> int:
    return prod(header.shape) * header.dtype.itemsize


def _is_plain_name(name: str) -> bool:
    return bool(name) and name != ANY and len(name) <= _LONGEST and name.isprintable()


class Shelf:
    """Cache of the companion files opened last; closes them at the end.

    Args:
        opener: opens the files.
        size: how many files stay open.
    """

    def __init__(self, opener: Opener, size: int = 4) -> None:
        self._opener, self._size = opener, size
        self._open: OrderedDict[tuple[str, Hint], Container] = OrderedDict()

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _container(self, path: str, hint: Hint) -> Container:
        key = (path, hint)
        if key not in self._open:
            self._open[key] = self._opener.opened(path, hint)
            if len(self._open) > self._size:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(key)
        return self._open[key]

    def read(self, place: FieldLocation, names: Mapping[str, str]) -> tuple[Any, str]:
        """Return (value, "") of a companion, or (None, description of what is missing).

        Raises:
            FormatError: the companion is damaged; the message names it.
        """
        assert place.file is not None
        try:
            path = place.file.fill(names)
            location = parse(place.at, "at", path=False).substitute(names) if place.at else ""
        except KeyError:
            return None, place.file.text
        if not self._opener.exists(path):
            return None, path
        try:
            container = self._container(path, place.hint)
            value = _inside(container, location, place) if location else _whole(container, place)
        except FormatError as error:
            msg = f"{path}: {error}"
            raise FormatError(msg, error.code) from error
        return value, "" if value is not None else f"{path}, {location}" if location else path


def _inside(container: Container, location: str, place: FieldLocation) -> Any:
    value = read_value(container, location, place.spec, "", place.look)
    head, _, rest = location.partition("/")
    if value is not None or not rest:
        return value
    # A single file may hold the values of all samples: {"scene0000_00": {"objects": ...}}.
    outer = read_value(container, head, _JSON, "")
    return plain(nested_value(outer, rest), place.spec) if isinstance(outer, dict) else None


def _whole(container: Container, place: FieldLocation) -> Any:
    names = ContainerNames(container).below()
    if len(names) == 1 and not (
        place.spec.is_text and names[0] not in {"text", "records", "value"}
    ):
        return read_value(container, names[0], place.spec, "", place.look)
    if place.name in names:
        return read_value(container, place.name, place.spec, "", place.look)
    if place.spec.is_text:
        return plain({name: container.read(name) for name in names}, place.spec)
    name_list = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    msg = f"holds {name_list or 'nothing'}; say which is fields.{place.name} with at:"
    raise FormatError(msg)


def _only_table(container: Container, prefix: str, look: HeaderTest | None, *, planar: bool) -> Any:
    names = ContainerNames(container).below(prefix)
    if len(names) != 1:
        msg = (
            f"columns: found {len(names)} values in the file, the schema cuts the columns of its "
            f"only one"
        )
        raise FormatError(msg)
    if planar and look is None and (table := read_planar(container, names[0])) is not None:
        return table
    return read_value(container, names[0], FieldSpec(), "columns", look)
