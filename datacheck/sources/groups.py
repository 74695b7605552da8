"""Groups of a container are the samples: ``/data/demo_*`` of a LIBERO file, ``/{id}`` of a cache, keys of a shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from datacheck.errors import FormatError, SchemaError
from datacheck.numbered import storable_names
from datacheck.sample import Container, Origin, Piece
from datacheck.schema.model import FieldSpec
from datacheck.schema.patterns import Template, parse
from datacheck.sources.attributes import Attributes
from datacheck.sources.base import Item, Part, Source, Unread
from datacheck.sources.facts import About
from datacheck.sources.fields import Shelf
from datacheck.sources.names import Names
from datacheck.sources.values import read_value

NO_GROUP = "holds no group like"
_TEXT = FieldSpec(dtype="json")


class GroupSource(Source):
    """Samples that are groups; keys are ``file.hdf5:/data/demo_3``, in bytewise order."""

    @cached_property
    def pattern(self) -> Template:
        """The parsed ``samples.each``.

        Raises:
            SchemaError: it is malformed.
        """
        text = self.schema.samples.each or ""
        template = parse(text.strip("/"), f"{self.schema.name}, samples.each")
        if "**" in text:
            msg = f"{template.where}: found {text!r}; '*' stands for one level of groups, '**' is not allowed here"
            raise SchemaError(msg)
        return template

    @property
    def inner_names(self) -> tuple[str, ...]:
        """Placeholders of ``samples.each``."""
        return self.pattern.names

    def parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        """Yield the file's groups, one in memory at a time.

        Raises:
            FormatError: the file cannot be opened, or holds no such group.
        """
        fields, _ = self.way(item.split)
        with self.opened(item, fields.hint) as container:
            found, attributes = self._groups(container), Attributes(container)
            self.check_count(item, len(found))
            known = Names(container)
            if fields.everything:
                known.below()  # a file that cannot tell its names is at fault once, not with each sample
            if item.keys is None and not found:
                raise FormatError(self._nothing())
            start = f"{item.path}:/"
            for key in [start + group for group in found] if item.keys is None else item.keys:
                group = key.removeprefix(start)
                if group in found and key != group:
                    yield self._piece(item, group, *found[group], attributes, known, shelf)
                else:
                    yield Unread(key, "DC101", f"not a sample of {item.path}")
            if item.keys is None and self.schema.samples.masks:
                yield from self._absent(item, container, known, self.schema.samples.masks.strip("/"), found)

    def _absent(
        self, item: Item, container: Container, known: Names, folder: str, found: Mapping[str, object]
    ) -> Iterator[Unread]:
        """Yield what the lists inside the file name and the file does not hold (robomimic's filter keys)."""
        start = f"{folder}/"
        outer = next(iter(found)).rpartition("/")[0]
        lacking: dict[str, str] = {}
        for name in known.below(start):
            listed = read_value(container, name, _TEXT, name)
            for entry in listed if isinstance(listed, list) else []:
                group = str(entry) if "/" in str(entry) else f"{outer}/{entry}".lstrip("/")
                if group.strip("/") not in found:
                    lacking.setdefault(group.strip("/"), name)
        for group, name in sorted(lacking.items()):
            yield Unread(f"{item.path}:/{group}", "DC105", f"/{name} names it, but the file holds no such group")

    def _nothing(self) -> str:
        return f"{NO_GROUP} {self.schema.samples.each}"

    def _groups(self, container: Container) -> dict[str, tuple[str, dict[str, str]]]:
        """Return the name in the container and what the placeholders stand for, by group, in bytewise order."""
        anything = self.pattern.substitute(dict.fromkeys(self.pattern.names, "*"))
        groups = storable_names({group.strip("/") for group in container.groups("/" + anything)})
        found = ((group, at, self.pattern.match(group)) for group, at in sorted(groups.items()))
        return {group: (at, inner) for group, at, inner in found if inner is not None}

    def _piece(
        self,
        item: Item,
        group: str,
        at: str,
        inner: dict[str, str],
        attributes: Attributes,
        known: Names,
        shelf: Shelf,
    ) -> Part:
        fields, facts = self.way(item.split)
        key = f"{item.path}:/{group}"
        named = {**item.names, **inner}
        about = About(key, item.path, "" if inner else f"/{group}", named, item.nbytes)
        try:
            values = fields.read(attributes.container, f"{at}/", known)
            self.left_out(item.path, values)
            absent = self.with_companions(values, item, named, shelf)
            attrs = attributes.of(at) if fields.reads_attributes or facts.oriented else {}
            fields.add_noted(values, attrs)
            told, label = self.facts(item, about, values, attrs)
            others = self.others(item, attributes.container, values, f"{at}/", known)
        except FormatError as error:
            return Unread(key, error.code, str(error), facts.group(about))
        return Piece(key, others | fields.drop_unasked(values), Origin(item.path, f"/{group}"), label, told | absent)


class KeySource(GroupSource):
    """Samples that the format itself tells apart: the keys of a tar shard, ``shard-000.tar:/0007``."""

    @property
    def inner_names(self) -> tuple[str, ...]:
        """No placeholders."""
        return ()

    def _nothing(self) -> str:
        return "holds no key: samples.each: key is for shards (.tar, .mds)"

    def _groups(self, container: Container) -> dict[str, tuple[str, dict[str, str]]]:
        return {key: (at, {}) for key, at in storable_names(container.keys()).items()}
