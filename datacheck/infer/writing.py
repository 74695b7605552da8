"""Writes drafts: the YAML of a schema with the reason for each guess behind it as a comment.

Each step of ``datacheck init`` returns a `Guess`: the part of a field's declaration that it can tell,
with its reasons. `Guess.plus` joins the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datacheck.rules.base import first_few, pluralize
from datacheck.schema.load import FILES, dump_schema, parse_schema
from datacheck.schema.model import ANY, Schema, exceeded_limit

_MARK = "# inferred"
_MOST_LISTED = 12  # names in one sentence


@dataclass(frozen=True)
class Guess:
    """The guessed declaration of a field, or a part of it."""

    spec: dict[str, Any] = field(default_factory=dict)
    """Keys of `datacheck.schema.model.FieldSpec`, as in YAML."""
    why: tuple[str, ...] = ()
    """The reasons, one short phrase each."""

    def plus(self, *others: Guess) -> Guess:
        """Return the guess with the keys and reasons of others; later keys win."""
        spec = dict(self.spec)
        why = list(self.why)
        for other in others:
            spec |= other.spec
            why += other.why
        return Guess(spec, tuple(why))

    def without(self, key: str) -> Guess:
        """Return the guess without a key; the reasons stay."""
        return Guess({name: value for name, value in self.spec.items() if name != key}, self.why)


@dataclass(frozen=True)
class Draft:
    """A drafted schema.

    Args:
        text: YAML with comments.
        fields: how many fields it declares.
        samples: how many samples were profiled.
        notes: sentences for the user.
        extends: whether it extends a built-in schema, whose promises are no guesses.
    """

    text: str
    fields: int
    samples: int
    notes: tuple[str, ...]
    extends: bool = False


def class_numbers(numbers: Sequence[int]) -> str | list[int]:
    """Return the value of ``classes``: consecutive numbers as a range, others as a list."""
    is_range = numbers[-1] - numbers[0] == len(numbers) - 1 and len(numbers) > 1
    return f"{numbers[0]}..{numbers[-1]}" if is_range else list(numbers)


def write_draft(
    head: Mapping[str, Any],
    guesses: Mapping[str, Guess],
    samples: int,
    notes: Sequence[str],
    why: str,
) -> Draft:
    """Return a draft that declares fields.

    Args:
        head: the keys of the schema before ``fields``.
        guesses: by field.
        samples: how many samples were profiled.
        notes: sentences for the user.
        why: the reason for ``samples``.
    """
    if exceeded := exceeded_limit(guesses):
        guesses = {ANY: Guess({}, (exceeded,))}
    fields = {name: guess.spec for name, guess in guesses.items()}
    schema = Schema.model_validate({**head, "fields": fields})
    lines = [
        _first_line(samples),
        *_comments(notes),
        *_commented(_yaml_lines(schema), guesses, why),
    ]
    return Draft(_checked_text(lines), len(fields), samples, tuple(notes))


def extending_text(
    base: str, files: str, guesses: Mapping[str, Guess], notes: Sequence[str], why: str
) -> str:
    """Return the text of a schema that extends a built-in one.

    Args:
        base: name of the built-in schema.
        files: the pattern of the files; "" if it is that of the built-in schema.
        guesses: of the fields that differ.
        notes: sentences for the user.
        why: the reason for the built-in schema.
    """
    head = {"datacheck": 1, "name": f"my_{base}", "samples": {"files": files or "*"}}
    fields = {name: guess.spec for name, guess in guesses.items()}
    lines = _yaml_lines(Schema.model_validate({**head, "fields": fields}))
    if not files:
        lines = [line for line in lines if not line.startswith("samples:")]
    body = list(_commented(lines, guesses, "all files of that ending"))
    name_line = next(i for i, line in enumerate(body) if line.startswith("name:"))
    body.insert(name_line + 1, f"extends: {base}    {_MARK}: {why}")
    return _checked_text([*_comments(notes), *body])


def any_files_text(name: str, samples: int, notes: Sequence[str], why: str) -> str:
    """Return the text of a schema that reads every file as a sample.

    Args:
        name: of the schema.
        samples: how many samples were profiled.
        notes: sentences for the user.
        why: the reason for this schema.
    """
    return _checked_text(
        [
            _first_line(samples),
            *_comments(notes),
            "# Of one kind of files alone more is judged: draft a schema for a folder that holds "
            "that kind.",
            "datacheck: 1",
            f"name: {name}",
            f"extends: {FILES}    {_MARK}: {_inert(why)}",
        ]
    )


_EACH = {
    "": "each file of {files}",
    "line": "each line or element of {files}",
    "row": "each row of {files}",
    "key": "each key of {files}",
    "episode": "each episode of {files}",
}


def assumptions(schema: Schema) -> list[str]:
    """Return sentences with the assumptions of a draft: its samples, and the roles of fields."""
    files = first_few(schema.samples.files, _MOST_LISTED)
    each = schema.samples.each or ""
    samples = _EACH.get(each, f"each {each} of {{files}}").replace("{files}", files)
    with_role = [f"{name} ({field.role})" for name, field in schema.fields.items() if field.role]
    named = ("tools", "images", "videos", "audios")
    used = {ANY, *(getattr(field, key) for field in schema.fields.values() for key in named)}
    without = [name for name, field in schema.fields.items() if not field.role and name not in used]
    lines = [f"{samples} is a sample"]
    if with_role:
        lines.append(f"roles guessed: {first_few(with_role, _MOST_LISTED)}")
    if without:
        lines.append(f"without a role: {first_few(without, _MOST_LISTED)}")
    return lines


def _first_line(samples: int) -> str:
    origin = f"Drafted by datacheck init from {pluralize(samples, 'sample')}."
    return f"# {origin} What is marked {_MARK!r} is a guess: read it, mend it."


def _comments(notes: Iterable[str]) -> list[str]:
    return [f"# {_inert(note)}" for note in notes]


def _inert(comment: str) -> str:
    """Return a comment with line breaks and the like escaped, so that no name in it can end it."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in comment
    )


def _yaml_lines(schema: Schema) -> list[str]:
    return dump_schema(schema).rstrip("\n").split("\n")


def _checked_text(lines: Iterable[str]) -> str:
    text = "\n".join(lines) + "\n"
    parse_schema(text)  # a draft that does not load would be worse than none
    return text


def _commented(lines: Sequence[str], guesses: Mapping[str, Guess], why: str) -> Iterator[str]:
    """Yield the lines of a schema, with reasons behind ``samples`` and the fields."""
    names = iter(guesses)
    is_field_section = False
    for line in lines:
        # These keys only: a name of several lines may begin at the margin, too.
        if line.startswith(("fields:", "rules:")):
            is_field_section = line.startswith("fields:")
        if line == "  DC113: {left_out: true}":
            yield (
                f"{line}    {_MARK}: the patterns leave out most bytes; take this line out if that "
                f"is meant"
            )
        elif is_field_section and _begins_field(line):
            reasons = _inert("; ".join(guesses[next(names)].why))
            yield f"{line}    {_MARK}: {reasons}" if reasons else f"{line}    {_MARK}"
        elif line.startswith("samples:"):
            yield f"{line}    {_MARK}: {why}"
        else:
            yield line


def _begins_field(line: str) -> bool:
    # A long name has a line of its own: "  ? name".
    return line.startswith("  ") and line[2] not in " ?"
