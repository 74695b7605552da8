"""The names of the values of an opened file."""

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
    """The names of a container's values, asked for when they are needed, and once: some formats walk the whole file.

    Args:
        container: an opened file.
    """

    def __init__(self, container: Container) -> None:
        self._container = container
        self._found: list[str] | FormatError | None = None

    def below(self, prefix: str = "") -> Sequence[str]:
        """Return the names that begin with `prefix`, in bytewise order; the header of a CSV table is none.

        Args:
            prefix: "" or a group with a "/" at its end.

        Raises:
            FormatError: the file cannot tell them; each call says so again.
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
        if not prefix:
            return self._found
        start = bisect_left(self._found, prefix)
        return self._found[
            start : bisect_left(self._found, f"{prefix[:-1]}0", lo=start)
        ]  # "0" comes behind "/"


_OUTER = frozenset({"data", "obs", "observation", "observations"})


def folded(name: str) -> str:
    """Return a name without what near names differ in: case, plural, ``-`` and ``_``, groups of observations."""
    levels = [level for level in re.split(r"[./]", name.lower().replace("-", "_")) if level]
    levels = [level for level in levels[:-1] if level not in _OUTER] + levels[-1:]
    return "/".join(
        "_".join(re.sub(r"(?<=[^s])s$", "", word) for word in level.split("_") if word)
        for level in levels
    )


def near_name(wanted: str, names: Iterable[str]) -> str:
    """Return the only name that is near another one, "" where there is none or are several."""
    found = [name for name in names if folded(name) == folded(wanted)]
    return found[0] if len(found) == 1 else ""


def may_be(container: Container, name: str, spec: FieldSpec) -> bool:
    """Tell from the header of a value whether it can be what is declared of a field: its kind, and its sizes."""
    try:
        shape, dtype = container.peek(name)
    except (KeyError, FormatError):
        return False
    if dtype in {"text", "json"}:
        return spec.is_text
    return not spec.is_text and np.dtype(dtype).kind in "biuf" and fits(shape, spec)


def fits(shape: Iterable[int], spec: FieldSpec) -> bool:
    """Tell whether a shape has the axes and sizes that are declared of a field."""
    sizes, wanted = tuple(shape), spec.shape
    if wanted is None:
        return True
    alike = zip(wanted, sizes, strict=False)
    return len(wanted) == len(sizes) and all(
        axis == size for axis, size in alike if isinstance(axis, int)
    )


MARK = "@"  # what ``at:`` begins with where a field is an attribute


class Attributes:
    """The attributes of one container; those of groups that several samples share are read once.

    Args:
        container: an opened file.
    """

    def __init__(self, container: Container) -> None:
        self.container = container
        self._above: dict[str, dict[str, Any]] = {}

    def of(self, group: str = "") -> dict[str, Any]:
        """Return the attributes that hold for a group: its own, then those of the groups above it and of the file."""
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
    """Return an attribute, or what a dotted path names in one that is JSON text; None where there is none.

    Args:
        attrs: attributes by name.
        path: ``problem_info.language_instruction``; the longest name that there is counts.

    Raises:
        FormatError: the attribute is no JSON text although the path goes on.
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
_CELLS = 20_000_000  # of records by names
# Of fields that the schema does not list so many of a sample are read, and so many bytes however
# small its own are.
_UNLISTED, _SMALL, _LONGEST = 64, 1 << 20, 200


def _never(name: str, seen: Peeked) -> bool:
    del name, seen
    return False


@dataclass(frozen=True)
class FieldLocation:
    """Where one field lies.

    Args:
        name, spec: the field.
        at: its name inside the file; a leading "/" leaves the sample's group.
        file: pattern of the companion file that holds it, None for the sample's own file.
        look: whether its header is enough, None: read it.
    """

    name: str
    spec: FieldSpec
    at: str
    file: Template | None = None
    look: HeaderTest | None = None

    @property
    def hint(self) -> Hint:
        """What a file that does not describe itself should hold."""
        shape = self.spec.shape or ()
        dtype = self.spec.dtype if self.spec.dtype not in {None, "text", "json"} else ""
        sizes = tuple(d for d in shape[1:] if isinstance(d, int))
        return Hint(dtype or "", sizes if len(sizes) == len(shape[1:]) else ())


class FieldMap:
    """The fields of a schema (of one split) and where each of them lies.

    Args:
        schema: with the split's ``when:`` block applied.
        only: read just these fields; None reads all.
        level: how deep a scan reads: "structure" only headers where the format has them, "numeric"
            no pixels; None for a build, which needs everything as it is.
    """

    def __init__(
        self, schema: Schema, only: frozenset[str] | None = None, level: Depth | None = None
    ) -> None:
        self.schema = schema
        self.only = only
        self.level = level
        self._pixels = pixels(schema)
        self.declared = schema.stored
        self.taken: dict[str, str] = {}  # what was read last: a near name by field
        self.everything = (
            not self.declared or ANY in schema.fields
        )  # values that the schema does not list, too
        places = [
            place for name in sorted(self.declared) if (place := self._place(name)) is not None
        ]
        self.companions = [place for place in places if place.file is not None]
        # a value that is called "@q" in its file is no attribute: only where at: says so is one
        # meant
        self.noted = [
            p for p in places if p.file is None and p.spec.at is not None and p.at.startswith(MARK)
        ]
        taken = {place.name for place in self.noted}
        self.own = [
            p for p in places if p.file is None and p.at not in self.columns and p.name not in taken
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
        """Return whether a field's header is enough at this level, None where its values are needed.

        Notes:
            Of a field that the schema does not list, only the header tells whether it holds pixels.
        """
        if self.level in {None, "deep"} or name == (self.schema.splits and self.schema.splits.key):
            return None
        if self.level == "structure" or name in self._pixels:
            return always
        return None if name in self.declared else like_pixels

    @cached_property
    def columns(self) -> dict[str, tuple[int, int]]:
        """The parts of the file's one table: {name: (start, stop)}; {} where the schema declares none."""
        return parse_columns(self.schema.columns) if self.schema.columns else {}

    def _wanted(self, name: str) -> bool:
        declared = self.schema.fields.get(name)
        return self._is_selected(name) and (
            self.everything if declared is None else not declared.absent
        )

    @cached_property
    def width(self) -> int:
        """How many columns the file's one table has at most; 0 where the schema declares none."""
        return max((stop for _, stop in self.columns.values()), default=0)

    @cached_property
    def width_read(self) -> int:
        """How many of these columns are read."""
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
        """What the schema expects of a file that does not describe itself."""
        if self.columns:
            dtypes = {s.dtype for n, s in self.declared.items() if n in self.columns}
            return Hint((dtypes.pop() if len(dtypes) == 1 else None) or "", (self.width,))
        return self.own[0].hint if len(self.own) == 1 else Hint()

    # ------------------------------------------------------------------------------------- one file

    def found(
        self, container: Container, prefix: str = "", known: ContainerNames | None = None
    ) -> Iterator[tuple[str, FieldSpec, str]]:
        """Yield (field, spec, name in the container) of what may be there; columns are not cut here.

        Args:
            container: an opened file.
            prefix: "" or the sample's group with a "/" at its end.
            known: the container's names, where more than this sample is read of it.
        """
        escaped = any(
            "\\ud" in place.at for place in self.own
        )  # a field may be declared by its `storable` name
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
        taken = set(self.declared)
        for place in self.own:
            at = (
                next(iter(inside))
                if place.name == self._sole and len(inside) == 1 and not prefix
                else place.at
            )
            taken.add(at)
            yield (
                place.name,
                place.spec,
                at[1:] if at.startswith("/") else prefix + inside.get(at, at),
            )
        if self.everything:
            for name, at in inside.items():
                if name not in taken and self._is_selected(name):
                    yield name, self.schema.spec(name), prefix + at

    @staticmethod
    def _names(container: Container, prefix: str, known: ContainerNames | None) -> Sequence[str]:
        """Return the names of one sample's values.

        Raises:
            FormatError: the file cannot tell them, or is one sample of too many.
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
        """Return arrays of numbers that lie beside the sample's own fields, and names of those that are not read.

        Args:
            container, prefix, known: as for `found`.
            listed: bytes of the sample's own fields that are in memory, and of those whose rows are
                read later: others are read as long as they have no more, or are small.
            later: whether the rows of a value, of which the header is known, are read later:
                `Peeked` is returned.

        Notes:
            The schema promises nothing of them: one that cannot be read is no fault of the sample.
        """
        if self.columns:
            return {}, []
        try:
            every = self._names(container, prefix, known)
        except FormatError:
            return {}, []
        taken = {
            *self.schema.fields,
            *(place.at.removeprefix("/") for place in self.own),
            *self.taken.values(),
        }
        inside = [
            name
            for name in every
            if (short := name.removeprefix(prefix)) not in taken and _is_plain_name(short)
        ]
        if len(inside) > _UNLISTED or (self._sole is not None and len(every) == 1):
            return {}, [name.removeprefix(prefix) for name in inside] if len(every) > 1 else []
        room = [
            max(_SMALL, nbytes) for nbytes in listed
        ]  # what is read at once must fit in memory, too
        found: Values = {}
        passed: list[str] = []
        for name in sorted(inside):
            try:
                value = read_numbers(
                    container, name, partial(_is_enough, room[0], partial(later, name))
                )
            except (FormatError, MissingDependencyError):
                continue
            short = name.removeprefix(prefix)
            if value is None or value.dtype.kind not in "iuf":
                continue
            seen = Peeked(value.shape, value.dtype)
            when = int(isinstance(value, Peeked) and later(name, seen))
            if _is_large(room[when], seen):
                passed.append(short)
            else:
                room[when] -= _nbytes(seen)
                found[short] = value
        return found, passed

    def near(
        self,
        container: Container,
        field: str,
        prefix: str = "",
        known: ContainerNames | None = None,
    ) -> str:
        """Return what a required field that a file does not hold is called there; "" where nothing says it for sure.

        Args:
            field: the field.
            container, prefix, known: as for `found`.

        Notes:
            Only where the schema has ``near_names``, and nothing that is declared has that name.
        """
        spec = self.declared.get(field)
        if not self.schema.near_names or spec is None or spec.optional or spec.absent:
            return ""
        places = {place.name: place for place in self.own}
        if field not in places:
            return ""
        others = {place.at for place in self.own} | set(self.declared)
        try:
            names = [name.removeprefix(prefix) for name in self._names(container, prefix, known)]
        except FormatError:
            return ""
        found = near_name(places[field].at, [name for name in names if name not in others])
        return prefix + found if found and may_be(container, prefix + found, spec) else ""

    def read(
        self, container: Container, prefix: str = "", known: ContainerNames | None = None
    ) -> Values:
        """Return the sample's own fields; what is missing or None is left out.

        A near name that was taken for a field's own stands in `taken`.

        Args:
            container, prefix, known: as for `found`.

        Raises:
            FormatError: a value is damaged or of a kind that is refused; the message names the
                field.
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
            if value is None and (other := self.near(container, field, prefix, known)):
                self.taken[field] = other.removeprefix(prefix)
                value = read_value(container, other, spec, field, self.look(field))
            if value is not None:
                values[field] = value
        return values

    @property
    def reads_attributes(self) -> bool:
        """Whether the schema speaks of attributes."""
        return bool(self.noted or self.schema.attrs)

    def add_noted(self, values: Values, attrs: Mapping[str, Any]) -> None:
        """Add the fields that are attributes (``at: "@name.key"``) to a sample's values.

        Raises:
            FormatError: one is damaged or of a kind that is refused; the message names the field.
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
            table = np.ascontiguousarray(
                table.T
            ).T  # one pass, and the columns are views that scans reduce fast
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
            FormatError: (DC701) it is no object while the schema names keys.
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
            taken = {place.at for place in self.own} | set(self.declared)
            for name, value in record.items():
                if name not in taken and self._is_selected(name):
                    self._keep(values, name, self.schema.spec(name), value)
        return values

    def of_records(
        self, records: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[str, FieldSpec, list[Any]]]:
        """Yield (field, its declaration, one value for each record or None) of many parsed JSON objects.

        Raises:
            FormatError: hardly two of them have a name in common.
        """
        for place in self.own:
            at = place.at
            values = (
                [r.get(at) for r in records]
                if "/" not in at
                else [nested_value(r, at) for r in records]
            )
            yield place.name, place.spec, values
        if self.everything:
            taken = {place.at for place in self.own} | set(self.declared)
            names = {name for record in records for name in record}
            check_fields(len(names) if len(names) * len(records) > _CELLS else 0)
            check_longest(names)
            for name in sorted(names - taken):
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
        """Return the fields without those that were read for the split key alone."""
        return values if self.only is None else {n: v for n, v in values.items() if n in self.only}


def companion_template(schema: Schema, name: str) -> Template | None:
    """Return the parsed ``file:`` of a field; a leading ``{root}/`` becomes ``@root/``.

    Raises:
        SchemaError: the pattern is malformed or does not name one file.
    """
    text = schema.fields[name].file
    return (
        None
        if text is None
        else rooted_template(schema, text, f"{schema.name}, fields.{name}.file")
    )


def rooted_template(schema: Schema, text: str, where: str) -> Template:
    """Return the parsed pattern of one file that belongs to a sample; a leading ``{root}/`` becomes ``@root/``.

    Raises:
        SchemaError: the pattern is malformed or does not name one file.
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
    """Check that every extra folder that a field needs was given; optional fields go without.

    Raises:
        UsageError: one is missing.
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


def _is_large(room: int, seen: Peeked) -> bool:
    """Return whether the header of an unlisted field is enough: no numbers, pixels, or too many bytes."""
    return seen.dtype.kind not in "iuf" or like_pixels(seen) or not 0 < _nbytes(seen) <= room


def _is_enough(room: int, later: HeaderTest, seen: Peeked) -> bool:
    return _is_large(room, seen) or later(seen)


def _nbytes(seen: Peeked) -> int:
    return prod(seen.shape) * seen.dtype.itemsize


def _is_plain_name(name: str) -> bool:
    return bool(name) and name != ANY and len(name) <= _LONGEST and name.isprintable()


class Shelf:
    """Companion files kept open for the samples that follow: the last few, closed at the end.

    Args:
        opener: opens them.
        size: how many.
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
        """Return (value, "") of a companion, or (None, what is missing).

        Raises:
            FormatError: the companion is damaged; the message names it.
        """
        assert place.file is not None
        try:
            path = place.file.fill(names)
            at = parse(place.at, "at", path=False).substitute(names) if place.at else ""
        except KeyError:
            return None, place.file.text
        if not self._opener.exists(path):
            return None, path
        try:
            container = self._container(path, place.hint)
            value = _inside(container, at, place) if at else _whole(container, place)
        except FormatError as error:
            msg = f"{path}: {error}"
            raise FormatError(msg, error.code) from error
        return value, "" if value is not None else f"{path}, {at}" if at else path


def _inside(container: Container, at: str, place: FieldLocation) -> Any:
    value = read_value(container, at, place.spec, "", place.look)
    head, _, rest = at.partition("/")
    if value is not None or not rest:
        return value
    outer = read_value(
        container, head, _JSON, ""
    )  # one file for all samples: {"scene0000_00": {"objects": ...}}
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
    some = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    msg = f"holds {some or 'nothing'}; say which is fields.{place.name} with at:"
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
