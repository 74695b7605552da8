"""The list of rules for users: filtered by family and role, with their status under a schema."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from datacheck.errors import UsageError
from datacheck.model.sample import Depth
from datacheck.rules import catalogue, rules_for
from datacheck.rules.base import Rule
from datacheck.rules.selection import choose_rules, targets
from datacheck.schema.grammar import ROLES, suggestion
from datacheck.schema.model import FieldSpec, Range, Schema
from datacheck.schema.robots import load_robot


@dataclass(frozen=True, eq=False)
class RuleEntry:
    """One rule with its status under a schema.

    Args:
        rule: the rule.
        depth: the shallowest scan in which it runs.
        runs: under the schema: "" where none was named, else the fields it judges, or why it does
            not run.
    """

    rule: Rule
    depth: Depth
    runs: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the entry as JSON values."""
        rule = self.rule
        return {
            "code": rule.code,
            "name": rule.name,
            "severity": rule.severity.value,
            "per": rule.level.value,
            "level": self.depth,
            "what": rule.doc.partition("\n")[0],
            "options": dict(rule.defaults),
            "needs": list(rule.suppressed_by),
            **({"runs": self.runs} if self.runs else {}),
        }


def rule_entries(
    family: str | None = None, role: str | None = None, schema: Schema | None = None
) -> list[RuleEntry]:
    """Return the rules in code order.

    Args:
        family: the module that holds them ("units"), or the beginning of their codes ("DC2", "30").
        role: only rules that judge fields of this role.
        schema: add each rule's status under this schema.

    Raises:
        UsageError: there is no such family or role.
    """
    if role is not None and role not in ROLES:
        msg = (
            f"no role is called {role!r}{suggestion(role, ROLES) or '.'} Known are "
            f"{', '.join(sorted(ROLES))}."
        )
        raise UsageError(msg)
    selected = [r for r in catalogue().values() if (family is None or _of_family(r, family))]
    if family is not None and not selected:
        families = sorted({_module(r) for r in catalogue().values()})
        msg = (
            f"no family is called {family!r}{suggestion(family, families) or '.'} Known are "
            f"{', '.join(families)}, or DC2, DC30."
        )
        raise UsageError(msg)
    if role is not None:
        selected = [r for r in selected if _looks_at(r, role)]
    statuses = {} if schema is None else _run_status(schema)
    return [RuleEntry(rule, rule.needed, statuses.get(rule.code, "")) for rule in selected]


def _module(rule: Rule) -> str:
    return rule.judge.__module__.rpartition(".")[2]


def _of_family(rule: Rule, family: str) -> bool:
    start = family.upper().removeprefix("DC").rstrip("X")
    return _module(rule) == family.lower() or (
        start.isdigit() and rule.code.startswith(f"DC{start}")
    )


@cache
def _specs(role: str) -> list[FieldSpec]:
    """Return declarations of a field of that role: a bare one, and complete ones in four units."""
    span = Range(low=0.0, high=1.0)
    other = "other"
    full = (
        FieldSpec.model_construct(
            role=role,
            unit=unit,
            shape=("T", 3),
            range=span,
            size=span,
            distance=span,
            share=span,
            rests=span,
            centered="root",
            centered_on=other,
            up="z",
            frame="camera_opengl",
            intrinsics=other,
            extrinsics=other,
            image_size=(640, 480),
            scale=1.0,
            origin="top_left",
            skeleton="mano21_ho3d",
            robot=load_robot("panda"),
            max_speed=1.0,
            drives=other,
            lag=0,
            values=(0.0, 1.0),
            order="wxyz",
            near=other,
            posed_by=other,
            indexes=other,
            encloses=other,
            areas=other,
            pixels_of=other,
            box_format="cxcywh",
            annotates=other,
            encodes=(other, other),
            ignore=(-1,),
            sentinels=(-1.0,),
            classes=20,
            min_points=1,
            min_instances=1,
            must_be=False,
            speakers=("user",),
            train_on="user",
            continues=other,
            tools=other,
            images=other,
            videos=other,
            audios=other,
            preferred_over=other,
            spans_of=other,
            unanswerable=other,
            label_of=other,
            shift=0,
            channels=(1.0, 256.0),
            min_trained_tokens=1,
        )
        for unit in ("m", "rad", "deg", "s")
    )
    return [FieldSpec(role=role), *full]


def _looks_at(rule: Rule, role: str) -> bool:
    return rule.per == "field" and any(rule.applies(spec) for spec in _specs(role))


def roles_of(rule: Rule) -> tuple[list[str], list[str]] | None:
    """Return the roles whose fields a rule judges, and all others; None where that is unknown.

    Notes:
        It is unknown for a rule on whole samples. A rule that judges a declaration whatever the
        role, such as ``columns``, has no roles of its own.
    """
    if rule.per == "sample":
        return None
    try:
        judged_roles = [role for role in sorted(ROLES) if _looks_at(rule, role)]
    # The predicate of a plug-in may fail on these artificial declarations.
    except Exception:  # noqa: BLE001
        return None
    return judged_roles, [role for role in sorted(ROLES) if role not in judged_roles]


def _run_status(schema: Schema) -> dict[str, str]:
    statuses = {}
    for choice in choose_rules(schema, rules_for(schema)):
        if choice.verdict is not None:
            statuses[choice.rule.code] = f"{choice.verdict.value.replace('_', ' ')}: {choice.why}"
        elif choice.rule.per == "sample":
            statuses[choice.rule.code] = "runs on whole samples"
        else:
            statuses[choice.rule.code] = (
                f"runs on {', '.join(name for name, _ in targets(choice.rule, schema))}"
            )
    return statuses
