"""The rule about policies: a LeRobot dataset has what a policy needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.model.finding import Failure, Level, Severity
from datacheck.model.table import Rows
from datacheck.rules.base import RuleContext, count_phrase, first_few, rule
from datacheck.rules.measures import form, no_lerobot
from datacheck.rules.series import time_field

_STATE, _ENVIRONMENT, _ACTION = "observation.state", "observation.environment_state", "action"
_MEAN_STD, _MIN_MAX, _QUANTILES = ("mean", "std"), ("min", "max"), ("q01", "q99")


@dataclass(frozen=True)
class _Policy:
    """What a policy needs, by its configuration in LeRobot 0.6.1.

    Args:
        chunk: actions that are predicted at once, in steps.
        dropped: last steps of each episode that training does not draw.
        widest: most numbers of state and action; None for any.
        statistics: of state and action that its normalizer reads.
        pictures: statistics of each camera that its normalizer reads.
        environment: whether an environment state serves in place of a camera.
        one_size: whether all cameras must have pictures of one size.
        task: whether it reads the text of the task.
        modality: whether its own loader reads GR00T's document of modalities.
    """

    chunk: int
    statistics: Sequence[str] = ()
    pictures: Sequence[str] = ()
    dropped: int = 0
    widest: int | None = None
    environment: bool = False
    one_size: bool = False
    task: bool = False
    modality: bool = False


_POLICIES = {
    "act": _Policy(100, _MEAN_STD, _MEAN_STD, environment=True),
    "diffusion": _Policy(64, _MIN_MAX, _MEAN_STD, dropped=7, environment=True, one_size=True),
    "pi0": _Policy(50, _MEAN_STD, widest=32, task=True),
    "pi05": _Policy(50, _QUANTILES, widest=32, task=True),
    "smolvla": _Policy(50, _MEAN_STD, widest=32, task=True),
    "groot": _Policy(40, widest=132, task=True, modality=True),
    "rdt": _Policy(64, widest=128, task=True),
}


@rule(
    "DC518",
    "policy-needs",
    Severity.ERROR,
    Level.DATASET,
    per="sample",
    span="all",
    measures=(form,),
    unless=no_lerobot,
    defaults={"policy": "", "short": 0.1},
)
def policy_needs(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A LeRobot dataset lacks what the chosen policy needs.

    What:
        The features, their widths, the statistics and the texts of tasks that a policy reads are
        there. Errors: no camera (nor environment state, where that serves); cameras of different
        sizes for Diffusion; more numbers in state or action than the policy pads to; missing
        statistics for its normalizer, such as q01 and q99 for pi0.5; no text of a task for a policy
        that reads one. Warnings: many episodes shorter than the chunk of actions; episodes of which
        training draws no step; no ``meta/modality.json`` for GR00T.
    Why it matters:
        The training stops at its first batch, on the cluster; or it learns padding.
    Measure:
        ``meta/info.json``, ``meta/stats.json``, ``meta/tasks`` and the lengths of the episodes
        against the defaults of the policies in LeRobot 0.6.1 (RDT: windows of 64 steps, 128 numbers). Without the
        option ``policy`` the rule finds nothing; the schemas ``lerobot_act``,
        ``lerobot_diffusion``, ``lerobot_pi0``, ``lerobot_pi05``, ``lerobot_smolvla``,
        ``lerobot_groot`` and ``lerobot_rdt`` set it.
    When it is wrong:
        The training overrides the policy's defaults, such as its normalization: switch the rule
        off.
    Options:
        policy: act, diffusion, pi0, pi05, smolvla, groot or rdt (none).
        short: share of episodes shorter than the chunk that is allowed (0.1).
    Bad::

        schema:
          samples: {files: ["*.parquet"], each: episode}
          fields: {timestamp: {role: timestamp, shape: [T], unit: s}}
          rules: {DC518: {policy: act}}
        samples:
          - {n: 2, timestamp: [0.0, 0.1, 0.2]}
        listing:
          - code: DC518
            key: meta/info.json
            reason: ""
            about: {cameras: {}, widths: {action: 7}, statistics: {}, tasks: true, modality: false}

    Good::

        schema:
          samples: {files: ["*.parquet"], each: episode}
          fields: {timestamp: {role: timestamp, shape: [T], unit: s}}
        samples:
          - {n: 2, timestamp: [0.0, 0.1, 0.2]}

    Fix:
        Add what is missing, or train another policy.
    Reference:
        lerobot issues 2189 and 2105: quantiles missing for a policy that normalizes by them.
    """
    name = str(case.options["policy"])
    if not name:
        return
    if name not in _POLICIES:
        msg = f"rules: DC518: policy: found {name!r}; allowed are {', '.join(_POLICIES)}"
        raise UsageError(msg)
    policy = _POLICIES[name]
    for note in case.notes:
        for kind, severity, words, fix in _needs(policy, note.about):
            yield Failure(
                np.zeros(len(rows), bool),
                f"{note.key}: for {name}, {words}.",
                severity=severity,
                fix=fix,
                kind=kind,
            )
    yield from _lengths(rows, case, name, policy)


_Need = tuple[str, Severity, str, str]


def _needs(policy: _Policy, facts: Mapping[str, Any]) -> Iterator[_Need]:
    """Yield kind, severity, words and fix of each thing that a dataset lacks."""
    cameras, widths = facts["cameras"], facts["widths"]
    if not cameras and not (policy.environment and _ENVIRONMENT in widths):
        instead = f" and no feature {_ENVIRONMENT}" if policy.environment else ""
        words = f"there is no camera{instead}"
        yield "camera", Severity.ERROR, words, "Add a camera as a feature."
    if policy.one_size and len({str(shape) for shape in cameras.values()}) > 1:
        words = f"the cameras have different sizes ({first_few(map(str, cameras.values()))})"
        yield "sizes", Severity.ERROR, words, "Resize the pictures to one size, or drop a camera."
    for feature in (_STATE, _ACTION):
        width = widths.get(feature)
        if policy.widest is not None and width is not None and width > policy.widest:
            words = f"{feature} has {width} numbers, and the policy takes {policy.widest} at most"
            fix = "Raise max_state_dim or max_action_dim and train from scratch, or drop numbers."
            yield "width", Severity.ERROR, words, fix
    if lacking := list(_lacking_statistics(policy, facts)):
        words = f"the normalizer lacks {first_few(lacking)} in meta/stats.json"
        fix = "Compute the statistics again with quantiles, or choose another normalization."
        yield "statistics", Severity.ERROR, words, fix
    if policy.task and not facts["tasks"]:
        words = "no task has a text"
        yield "task", Severity.ERROR, words, "Write the texts into meta/tasks."
    if policy.modality and not facts["modality"]:
        words = "there is no meta/modality.json, which NVIDIA's loader reads (LeRobot's does not)"
        yield "modality", Severity.WARNING, words, "Write it, or train with LeRobot's loader."


def _lacking_statistics(policy: _Policy, facts: Mapping[str, Any]) -> Iterator[str]:
    wanted = {name: policy.statistics for name in (_STATE, _ACTION) if name in facts["widths"]}
    wanted |= dict.fromkeys(facts["cameras"], policy.pictures)
    for name, keys in wanted.items():
        if missing := [key for key in keys if key not in facts["statistics"].get(name, ())]:
            yield f"{' and '.join(missing)} of {name}"


def _lengths(rows: Rows, case: RuleContext, name: str, policy: _Policy) -> Iterator[Failure]:
    column = f"{time_field(case.schema)}:dims"
    measured = rows.measured(column)
    if not measured.any():
        return
    steps = rows[column][:, 0]
    short = measured & (steps < policy.chunk)
    if short.sum() > float(case.options["short"]) * measured.sum():
        yield Failure(
            short,
            f"{count_phrase(short, 'have', 'episode')} fewer steps than the {policy.chunk} actions that {name} "
            f"predicts at once: the shortest has {int(steps[short].min()):,}; the rest is padding.",
            measured={"shortest": int(steps[short].min())},
            expected={"steps": f"{policy.chunk}.."},
            severity=Severity.WARNING,
            fix="Set a shorter chunk in the policy, or record longer episodes.",
            kind="short",
        )
    empty = measured & (steps <= policy.dropped)
    if policy.dropped and empty.any():
        yield Failure(
            empty,
            f"{count_phrase(empty, 'have', 'episode')} no step that training draws: {name} leaves out the last "
            f"{policy.dropped} of each episode.",
            severity=Severity.WARNING,
            fix="Leave these episodes out, or set drop_n_last_frames.",
            kind="empty",
        )
