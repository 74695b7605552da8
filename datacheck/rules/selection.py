"""Selects the rules that run on a dataset, their options and their fields.

The schema's ``rules:`` block changes options and severities and switches rules off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from datacheck.errors import UsageError
from datacheck.model.finding import Severity, Verdict
from datacheck.model.sample import DEPTHS, Depth
from datacheck.rules.base import Measure, Rule
from datacheck.schema.complaints import Complaint
from datacheck.schema.grammar import suggestion
from datacheck.schema.model import ANY, FieldSpec, RuleSpec, Schema, pixels
from datacheck.schema.patterns import parse

# These judge a loader only.
NONDETERMINISM = "DC904"
CONTRACT = "DC905"
# These judge a scan of files: what has changed since the scan before it, and what was not opened.
CHANGED = "DC108"
UNREAD = "DC113"

# Beginnings of the codes of rules that judge files or their listing. DC225 counts how often an
# extreme occurs; in windows that overlap or are padded with the last step it occurs dozens of times.
_FILES_ONLY = ("DC10", "DC11", "DC225", "DC701")
# These have such a code, and judge the samples of a loader as well.
_SAMPLES_TOO = frozenset({"DC101", "DC109"})

_NO_SETTINGS = RuleSpec()
_NO_SPEC = FieldSpec()


@dataclass(frozen=True, eq=False)
class Choice:
    """One rule of the catalogue with its settings for this dataset.

    Args:
        rule: the rule.
        settings: its entry in the schema's ``rules:`` block, or an empty one.
        options: the rule's defaults with the schema's over them.
        verdict: OFF, NOT_APPLICABLE or SKIP (the scan does not read what it needs) for a rule that
            does not run, else None.
        why: the reason for that verdict.
        level: how deep the scan reads.
    """

    rule: Rule
    settings: RuleSpec
    options: Mapping[str, Any]
    verdict: Verdict | None = None
    why: str = ""
    level: Depth = "deep"

    @property
    def severity(self) -> Severity:
        """The severity that the schema sets for the rule, else the rule's own."""
        given = self.settings.severity
        return Severity(given) if given not in {None, "off"} else self.rule.severity


def choose_rules(schema: Schema, rules: Mapping[str, Rule], level: Depth = "deep") -> list[Choice]:
    """Return a choice for every rule, in code order.

    Args:
        schema: the schema in force.
        rules: the catalogue.
        level: how deep the scan reads.

    Raises:
        UsageError: the ``rules:`` block names an unknown rule or option, or an option has a wrong
            value.
    """
    for where, complaint in rule_complaints(schema, rules):
        msg = f"schema {schema.name}, {'.'.join(map(str, where))}: {complaint}"
        raise UsageError(msg)
    every = variants(schema)
    return [_choose(every, rule, level) for _, rule in sorted(rules.items())]


def rule_complaints(schema: Schema, rules: Mapping[str, Rule]) -> Iterator[Complaint]:
    """Yield the errors of the ``rules:`` block: (key, sentence)."""
    for code, settings in schema.rules.items():
        if code not in rules:
            yield ("rules", code), _unknown_rule(code, rules)
            continue
        rule = rules[code]
        for name, value in (settings.model_extra or {}).items():
            where = ("rules", code, name)
            if name not in rule.defaults:
                near = suggestion(name, [*rule.defaults, "severity", "allow", "ignore", "reason"])
                hint = near or f"; known are {', '.join(rule.defaults) or 'none'}"
                yield where, f"{rule.name} has no option {name!r}{hint}"
            elif _like(value, rule.defaults[name]) is _WRONG:
                yield (
                    where,
                    f"{value!r} is not what this option takes; its default is "
                    f"{rule.defaults[name]!r}",
                )


def _unknown_rule(code: str, rules: Mapping[str, Rule]) -> str:
    near = [rule.code for rule in rules.values() if rule.name == code]
    near = near or get_close_matches(code, list(rules), n=1)
    if not near:
        return f"there is no rule {code!r}. datacheck rules lists them."
    return f"there is no rule {code!r}. Did you mean {near[0]} ({rules[near[0]].name})?"


def _choose(every: Sequence[Schema], rule: Rule, level: Depth) -> Choice:
    """Return the choice of a rule; it runs if it applies to any of the schemas (of splits)."""
    schema = every[0]
    settings = schema.rules.get(rule.code, _NO_SETTINGS)
    options = options_of(schema, rule)
    if settings.severity == "off":
        return Choice(
            rule, settings, options, Verdict.OFF, settings.reason or "switched off in the schema"
        )
    reasons = []
    for variant in every:
        why = rule.unless(variant)
        if not why and any(targets(rule, variant)):
            return _at(level, Choice(rule, settings, options, level=level), every)
        reasons.append(why or "no declared field is of that kind")
    return Choice(rule, settings, options, Verdict.NOT_APPLICABLE, reasons[0])


def options_of(schema: Schema, rule: Rule) -> dict[str, Any]:
    """Return the options of a rule: its defaults, overridden by the schema."""
    given = schema.rules.get(rule.code, _NO_SETTINGS).model_extra or {}
    options = dict(rule.defaults)
    for name, default in rule.defaults.items():
        value = _like(given[name], default) if name in given else _WRONG
        if value is not _WRONG:
            options[name] = value
    return options


def _at(level: Depth, choice: Choice, every: Sequence[Schema]) -> Choice:
    """Return the choice of an applicable rule; its verdict is SKIP in a scan too shallow for it."""
    needed = choice.rule.needed
    if DEPTHS.index(needed) <= DEPTHS.index(level):
        if any(any(targets(choice.rule, variant, level)) for variant in every):
            return choice
        needed = "deep"
    return replace(choice, verdict=Verdict.SKIP, why=f"needs --level {needed}")


def variants(schema: Schema) -> list[Schema]:
    """Return the schema, then the schema of each split that ``when:`` names."""
    splits = [condition.removeprefix("split=") for condition in schema.when]
    return [schema, *(schema.for_split(split) for split in splits)]


_WRONG = object()


def _like(value: Any, default: Any) -> Any:
    """Return an option's value in the type of its default, `_WRONG` where it has no such value.

    ``0.5%`` becomes a share, a list a tuple, an int a float.
    """
    if isinstance(default, float) and isinstance(value, str) and value.endswith("%"):
        with suppress(ValueError):
            value = float(value[:-1]) / 100
    if isinstance(value, float) and not math.isfinite(value):
        return _WRONG
    if default is None or type(value) is type(default):
        return value
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(default, tuple) and isinstance(value, list):
        return tuple(value)
    return _WRONG


def for_files(choice: Choice) -> Choice:
    """Return the choice for a scan of files: a rule that judges loaders does not apply."""
    if choice.rule.code not in {NONDETERMINISM, CONTRACT} or choice.verdict is not None:
        return choice
    return replace(
        choice,
        verdict=Verdict.NOT_APPLICABLE,
        why="no loader was named (--loader package.module:factory)",
    )


def comparable(choice: Choice, *, compared: bool) -> Choice:
    """Return the choice; not applicable if its rule needs an earlier scan and there is none."""
    if choice.rule.code != CHANGED or compared or choice.verdict is not None:
        return choice
    return replace(
        choice,
        verdict=Verdict.NOT_APPLICABLE,
        why="there is no earlier scan of these data to compare with",
    )


def without_unread_rule(choices: Sequence[Choice], *, unread: bool) -> list[Choice]:
    """Return the choices; with `unread` (``--allow-unread``) the rule about unread data is off."""
    if not unread:
        return list(choices)
    return [
        replace(choice, verdict=Verdict.OFF, why="--allow-unread")
        if choice.rule.code == UNREAD
        else choice
        for choice in choices
    ]


def for_loader(choice: Choice) -> Choice:
    """Return the choice for a loader's samples: a rule that judges files does not apply."""
    code = choice.rule.code
    if choice.verdict is not None or code in _SAMPLES_TOO or not code.startswith(_FILES_ONLY):
        return choice
    return replace(
        choice, verdict=Verdict.NOT_APPLICABLE, why="it judges files; a loader was scanned"
    )


def targets(rule: Rule, schema: Schema, level: Depth = "deep") -> Iterator[tuple[str, FieldSpec]]:
    """Yield the fields that a rule judges, with their declarations; ("", empty) for whole samples.

    Args:
        rule, schema: the rule and the schema in force.
        level: how deep the scan reads. Below "deep" it reads no pixels; then only rules that need
            no values judge fields of pixels.

    Notes:
        Fields in name order; then ``*``, all undeclared fields together, for a rule whose
        measurement covers them.
    """
    if rule.per == "sample":
        yield "", _NO_SPEC
        return
    unread = pixels(schema) if level != "deep" and rule.needed != "structure" else frozenset()
    for name, spec in sorted(schema.fields.items()):
        part = schema.part_of(name) if unread else None
        if (name if part is None else part[0]) in unread:
            continue
        if name != ANY and not spec.absent and rule.applies(spec):
            yield name, spec
    rest = schema.fields.get(ANY, _NO_SPEC)
    if (
        any(measure.undeclared for measure in rule.measures)
        and not rest.absent
        and rule.applies(rest)
    ):
        yield ANY, rest


def measures_of(choices: Sequence[Choice], level: Depth = "deep") -> list[Measure]:
    """Return the measurements of all rules that are not switched off, each once, sorted by name.

    Measurements that need a deeper scan than `level` are left out.

    Notes:
        Rules that do not apply yet count too: a range that is declared later is then judged without
        reading data.
    """
    by_name: dict[str, Measure] = {}
    for choice in choices:
        if choice.verdict is not Verdict.OFF:
            by_name |= {measure.name: measure for measure in choice.rule.measures}
    deepest = DEPTHS.index(level)
    measures = (by_name[name] for name in sorted(by_name))
    return [measure for measure in measures if DEPTHS.index(measure.depth) <= deepest]


def by_dependency(choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices ordered so that a rule comes after the rules that suppress it."""
    by_code = {choice.rule.code: choice for choice in choices}
    done: dict[str, Choice] = {}

    def visit(choice: Choice, above: tuple[str, ...]) -> None:
        for code in choice.rule.suppressed_by:
            if code in by_code and code not in done and code not in above:
                visit(by_code[code], (*above, choice.rule.code))
        done[choice.rule.code] = choice

    for choice in choices:
        if choice.rule.code not in done:
            visit(choice, ())
    return list(done.values())


def served(schema: Schema) -> Schema:
    """Return the schema of a loader's samples: without the declarations that only files have.

    Notes:
        Companion files, attributes, split keys and windows are removed. The group stays only where
        samples can name it by a field.
    """
    data = schema.model_dump(
        exclude_unset=True, mode="json", exclude={"attrs", "splits", "windows"}
    )
    for fields in (data.get("fields", {}), *data.get("when", {}).values()):
        for spec in fields.values():
            spec.pop("file", None)
    data["samples"] = {"files": ["*"]}
    group = schema.samples.group
    if group is not None:
        names = set(parse(group, "samples.group", path=False).names)
        if names and names <= set(schema.fields):
            data["samples"]["group"] = group
    return Schema.model_validate(data)
