"""Rules about joints: constant bone lengths, distinct joints, the declared order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Column
from datacheck.model.table import Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    Skip,
    count_phrase,
    first_few,
    format_number,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.measures import is_numeric, leaf, place, reduced
from datacheck.rules.skeletons import JointDistances, Skeleton, bones, skeleton_of
from datacheck.schema.grammar import factor
from datacheck.schema.model import FieldSpec

Array = np.ndarray[Any, Any]

_SUPPRESSED_BY = ("DC109", "DC122", "DC221", "DC222")


def _many(spec: FieldSpec) -> bool:
    single = spec.shape is not None and len(spec.shape) < 2
    return leaf(spec) and spec.role == "joints" and not single


def _boned(spec: FieldSpec) -> bool:
    return _many(spec) and skeleton_of(spec) is not None


@measure("twins", version=2, applies=_many)
def twins(column: Column, spec: FieldSpec) -> Columns:
    """Joints exactly at the place of an earlier one: `twins`, in a sequence the most in one step.

    Up to 64 joints are compared.
    """
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.ndim not in {2, 3}:
        return {}
    if column.values.ndim == 3:
        steps, joints, size = column.values.shape
        single = Column(column.values.reshape(-1, size), np.full(steps, joints))
        return {"twins": reduced(np.maximum, _twins(single), column.lengths)}
    return {"twins": _twins(column)}


def _twins(column: Column) -> Array:
    assert column.lengths is not None
    twin_counts = np.zeros(len(column), np.int64)
    for count in np.unique(column.lengths[(column.lengths > 1) & (column.lengths <= 64)]):
        mine = column.lengths == count
        rows = column.values[np.repeat(mine, column.lengths)]
        joints = rows.reshape(int(mine.sum()), int(count), rows.shape[1])
        twin = np.zeros(joints.shape[:2], bool)
        for offset in range(1, int(count)):
            twin[:, offset:] |= (joints[:, offset:] == joints[:, :-offset]).all(axis=2)
        twin_counts[mine] = twin.sum(axis=1)
    return twin_counts


@rule(
    "DC602",
    "collapsed-joints",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(place, twins),
    suppressed_by=_SUPPRESSED_BY,
    applies=_many,
    defaults={"size": 1e-6, "twins": 2},
)
def collapsed_joints(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """All joints lie in one point, or several joints coincide.

    What:
        The joints of a sample do not all lie in one point, and at most 2 of them coincide with an
        earlier joint.
    Why it matters:
        With copies of the root joint as ground truth, an error metric measures only the spread of
        the prediction: it is constant or infinite.
    Measure:
        Diagonal of the bounding box; number of joints that lie exactly at the position of an
        earlier joint.
    When it is wrong:
        Only the root joint is annotated: declare the shape of that split as ``[3]``.
    Options:
        size: largest diagonal that counts as one point, in metres (0.000001).
        twins: number of joints that may coincide with an earlier one (2).
    Bad::

        schema: {fields: {j: {role: joints, shape: [21, 3], unit: m}}}
        samples:
          - {n: 3, j: {hand: 1}}
          - {j: {hand: 1, copies: 21}}

    Good::

        schema: {fields: {j: {role: joints, shape: [21, 3], unit: m}}}
        samples:
          - {n: 4, j: {hand: 1}}

    Fix:
        Do not train or evaluate on these samples; use the released ground truth instead.
    Reference:
        UTNet fills the evaluation split of HO3D with 21 copies of the root joint.
    """
    measured = rows.measured("box", "twins")
    if not measured.any():
        return
    point = measured & (rows["box"] * factor(case.spec.unit or "m") < float(case.options["size"]))
    bad = point | (measured & (rows["twins"] > int(case.options["twins"])))
    if bad.any():
        middle = int(np.median(rows["twins"][bad])) + 1
        yield Failure(
            bad,
            f"{middle} joints coincide (median) in {pluralize(int(bad.sum()))}; "
            f"{int(point.sum()):,} of them are one "
            f"single point.",
            measured={"coincide": middle, "points": int(point.sum())},
            cause=Cause(
                "copies of one joint in place of labels", "copies", explains=int(point.sum())
            ),
            fix="Leave them out of training and evaluation.",
            order=rows["twins"],
        )


def _boneless(skeleton: Skeleton | None, measured: Array) -> Iterator[Skip]:
    if skeleton is not None and not measured.all():
        yield Skip(~measured, f"no whole skeletons of {skeleton.joints} joints")


def _groups(rows: Rows, measured: Array) -> Iterator[tuple[str, Array]]:
    for name, places in rows.by_group():
        mine = places[measured[places]]
        if len(mine):
            yield name, mine


@rule(
    "DC601",
    "bone-length",
    Severity.ERROR,
    Level.GROUP,
    measures=(bones,),
    suppressed_by=(*_SUPPRESSED_BY, "DC201", "DC602", "DC605"),
    applies=_boned,
    defaults={"band": 2.5, "off": 0.003, "share": 0.05, "spread": 0.001, "frames": 10},
)
def bone_length(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """A bone has an implausible length, or its length changes within a sequence.

    What:
        Each bone length is within a factor of the skeleton's table. Within a group (one subject)
        and across the steps of a sequence, each bone length stays close to its median and hardly
        varies.
    Why it matters:
        Bones are rigid. A length that changes means a bad fit, swapped joints or another subject.
    Measure:
        Bone lengths; their median and standard deviation over all samples of a group, across files,
        and over the steps of a sample that is a sequence.
    When it is wrong:
        Groups mix subjects: correct ``samples: {group: ...}``. The joints are detections, not fits:
        raise ``spread``.
    Options:
        band: largest factor between a bone length and the table (2.5).
        off:, share: a bone length may differ from the median of its group or sequence by 3 mm or 5
        %, whichever is larger (0.003, 0.05).
        spread: standard deviation above which a warning is given, in metres (0.001).
        frames: fewest frames of a group or sequence (10).
    Bad::

        schema: {samples: {files: "*", group: "{seq}"}, fields: {j: {role: joints, unit: m, skeleton: mano21_ho3d}}}
        samples:
          - {n: 60, group: a, j: {hand: 1}}
          - {n: 2, group: a, j: {hand: 1, scale: 1.3}}

    Good::

        schema: {samples: {files: "*", group: "{seq}"}, fields: {j: {role: joints, unit: m, skeleton: mano21_ho3d}}}
        samples:
          - {n: 60, group: a, j: {hand: 1}}
          - {n: 60, group: b, j: {hand: 1, scale: 1.1}}

    Fix:
        Repeat the fit with one shape per subject, or leave the frames out.
    Reference:
        HO3D fits one MANO shape per subject: bone lengths vary by less than a millimetre.
    """
    skeleton = skeleton_of(case.spec)
    measured = rows.measured("pairs")
    options = case.options
    yield from _boneless(skeleton, measured)
    if skeleton is None or not measured.any():
        return
    distances = JointDistances.of(rows, case, skeleton)
    lengths = distances.lengths[:, : len(skeleton.bones)]
    band = float(options["band"])
    ratio = lengths / np.array(skeleton.table)
    impossible = measured & ((ratio > band) | (ratio < 1 / band)).any(axis=1)
    if impossible.any():
        yield _impossible(impossible, ratio, skeleton, band)
    groups = (
        list(_groups(rows, measured & ~impossible)) if case.schema.samples.group is not None else []
    )
    far, loose, share = _varying(groups, lengths, options)
    long = measured & ~impossible & (distances.steps >= int(options["frames"]))
    if long.any():
        torn = long & (distances.strain > _limits(lengths, options)).any(axis=1)
        if torn.any():
            yield _stretched(
                torn,
                "have",
                "steps that differ from the others in the length of a bone",
                None,
                "step",
            )
        sway = np.where((long & ~torn)[:, None], distances.sway[:, : len(skeleton.bones)], 0.0)
        loose |= (sway > float(options["spread"])).any(axis=1)
        share = np.maximum(share, (sway / np.maximum(lengths, 1e-9)).max(axis=1))
    yield from _bone_failures(far, loose, share, float(options["spread"]))


def _limits(lengths: Array, options: Mapping[str, Any]) -> Array:
    """Return the largest distance of a bone from the median of its sequence."""
    return np.maximum(float(options["off"]), float(options["share"]) * lengths)


def _varying(
    groups: list[tuple[str, Array]], lengths: Array, options: Mapping[str, Any]
) -> tuple[Array, Array, Array]:
    """Return the samples that differ from their group, and those in groups without rigid bones.

    The third value is the spread of bones in the group, as a share of their length.
    """
    far = np.zeros(len(lengths), bool)
    loose = np.zeros(len(lengths), bool)
    share = np.zeros(len(lengths))
    for _, places in groups:
        if len(places) >= int(options["frames"]):
            middle = np.median(lengths[places], axis=0)
            off = (np.abs(lengths[places] - middle) > _limits(middle, options)).any(axis=1)
            far[places] = off
            if off.all():  # no frame is near the median, so there is no spread to measure
                continue
            still = lengths[places[~off]].std(axis=0)
            loose[places[~off]] = bool((still > float(options["spread"])).any())
            share[places] = float((still / np.maximum(middle, 1e-9)).max(initial=0.0))
    return far, loose, share


def _bone_failures(far: Array, loose: Array, share: Array, spread: float) -> Iterator[Failure]:
    """Yield frames that differ from their sequence, and sequences whose bones are not rigid."""
    if far.any():
        yield _stretched(
            far, "differ", "from their sequence in the length of a bone", None, "frame"
        )
    if loose.any():
        words = f"in sequences whose bones vary by more than {format_number(1000 * spread, 'mm')}"
        words += f" (up to {100 * float(share[loose].max()):.3g} % of their length)"
        yield _stretched(loose, "lie", words, Severity.WARNING, "sequence")


def _impossible(impossible: Array, ratio: Array, skeleton: Skeleton, band: float) -> Failure:
    worst = np.abs(np.log(np.maximum(ratio, 1e-9)))
    bone = skeleton.bone_names[int(np.argmax(np.median(worst[impossible], axis=0)))]
    return Failure(
        impossible,
        f"{count_phrase(impossible, 'have')} a bone more than {band:g} times longer or shorter than a "
        f"hand's (worst: {bone}).",
        measured={"bone": bone},
        expected={"factor": band},
        fix="Check joint order and fit; leave the samples out.",
        kind="band",
        order=worst.max(axis=1),
    )


def _stretched(mask: Array, verb: str, words: str, severity: Severity | None, kind: str) -> Failure:
    return Failure(
        mask,
        f"{count_phrase(mask, verb)} {words}.",
        severity=severity,
        fix="Fit again with one shape per subject, or leave the frames out.",
        kind=kind,
    )


@rule(
    "DC605",
    "joint-order",
    Severity.ERROR,
    Level.GROUP,
    measures=(bones,),
    suppressed_by=(*_SUPPRESSED_BY, "DC201", "DC602"),
    applies=_boned,
    defaults={"spread": 0.003, "moving": 0.001, "frames": 50, "better": 3.0, "longer": 1.1},
)
def joint_order(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """Joints are in another order than declared.

    What:
        Over a sequence, the bones of the declared order are rigid. If instead the bones of another
        order are rigid, the rule names it: a known order, or tips attached to the wrong fingers.
        Ring and pinky swapped as a whole stay rigid; they are found because the pinky's bones are
        then longer. The finding prints the permutation that corrects the order.
    Why it matters:
        Metrics after alignment look fine while four of five fingers are wrong.
    Measure:
        Standard deviation of each distance over a group, or over the steps of a sample: declared
        bones, all pairs of last joint and tip, and the bones of other known orders; lengths of the
        middle bones of ring and pinky.
    When it is wrong:
        A hand that does not move in the sequence passes, unless its ring and pinky are swapped as a
        whole.
    Options:
        spread: largest standard deviation of a rigid bone, in metres (0.003).
        moving: standard deviation of a declared bone above which another order is searched for, in
        metres (0.001).
        frames: fewest frames of a sequence for the test of rigidity (50).
        better: factor by which the other order must be more rigid (3.0).
        longer: ratio of pinky to ring length above which they are swapped (1.1).
    Bad::

        schema: {samples: {files: "*", group: "{seq}"}, fields: {j: {role: joints, unit: m, skeleton: mano21_ho3d}}}
        samples:
          - {n: 60, group: a, j: {hand: 1}}
          - {n: 60, group: b, j: {hand: 1, order: tips}}

    Good::

        schema: {samples: {files: "*", group: "{seq}"}, fields: {j: {role: joints, unit: m, skeleton: mano21_ho3d}}}
        samples:
          - {n: 60, group: a, j: {hand: 1}}
          - {n: 60, group: b, j: {hand: 1}}

    Fix:
        Permute the joints into the declared order, or declare the skeleton that the data have.
    Reference:
        HO3D stores the finger chains index-first with pinky before ring, followed by the tips
        thumb-first.
    """
    skeleton = skeleton_of(case.spec)
    measured = rows.measured("pairs")
    yield from _boneless(skeleton, measured)
    if skeleton is None or not measured.any():
        return
    distances = JointDistances.of(rows, case, skeleton)
    orders: dict[_JointOrder, Array] = {}
    short = measured & False
    for places in _sequences(rows, measured, distances.steps):
        enough = int(distances.steps[places].sum()) >= int(case.options["frames"])
        order = _order(distances.at(places), skeleton, case, rigid=enough)
        if order is not None:
            orders.setdefault(order, measured & False)[places] = True
        elif not enough:
            short[places] = True
    if short.any():
        yield Skip(short, f"sequences of fewer than {case.options['frames']} frames")
    for order, mask in sorted(orders.items(), key=lambda item: item[0].words):
        yield _disordered(mask, order, case)


def _sequences(rows: Rows, measured: Array, steps: Array) -> Iterator[Array]:
    """Yield the rows of each sequence: a sample with steps, or the single frames of a group."""
    for row in np.flatnonzero(measured & (steps > 1)).tolist():
        yield np.array([row])
    for _, places in _groups(rows, measured & (steps == 1)):
        yield places


@dataclass(frozen=True)
class _JointOrder:
    """An order of joints other than the declared one.

    Args:
        words: the fault.
        taken: the place in the data of each joint of the declared order: ``joints[taken]`` corrects
            it.
    """

    words: str
    taken: tuple[int, ...]


def _disordered(mask: Array, order: _JointOrder, case: RuleContext) -> Failure:
    return Failure(
        mask,
        f"joints of {pluralize(int(mask.sum()))} are not in the order {case.spec.skeleton}: "
        f"{order.words}.",
        measured={"taken": list(order.taken)},
        expected={"skeleton": case.spec.skeleton},
        cause=Cause(order.words, "order", explains=int(mask.sum())),
        fix=f"Reorder them, joints[[{', '.join(map(str, order.taken))}]], or declare the skeleton "
        f"that they have.",
        kind=order.words,
    )


def _order(
    distances: JointDistances, skeleton: Skeleton, case: RuleContext, *, rigid: bool
) -> _JointOrder | None:
    """Return the actual order of joints, None where it is as declared or unclear."""
    known_order, tips = _rigid(distances.spread, skeleton, case) if rigid else (None, None)
    if known_order is not None:
        return _JointOrder(
            f"they are in the order {known_order.name}", skeleton.taken_from(known_order)
        )
    swapped = _longer(distances.lengths, skeleton, float(case.options["longer"]))
    pair = skeleton.swap("ring", "pinky")
    if tips is None:
        return _JointOrder("ring and pinky are swapped", pair) if swapped else None
    ends = {chain[-1] for chain in skeleton.chains.values()}
    if swapped and tips == tuple(pair[j] if j in ends else j for j in range(skeleton.joints)):
        chains = tuple(j if j in ends else pair[j] for j in range(skeleton.joints))
        return _JointOrder("the chains of ring and pinky are swapped, their tips are not", chains)
    wrong = sorted(name for name, chain in skeleton.chains.items() if tips[chain[-1]] != chain[-1])
    more = ", and ring and pinky are swapped" if swapped else ""
    return _JointOrder(f"the tips of {first_few(wrong, 5)} are permuted{more}", tips)


def _longer(lengths: Array, skeleton: Skeleton, limit: float) -> bool:
    """Tell whether the two middle bones of the pinky are longer than those of the ring finger."""
    middle = dict(
        zip(skeleton.bones, np.median(lengths[:, : len(skeleton.bones)], axis=0), strict=True)
    )
    pinky, ring = (
        sum(middle[b] for b in list(pairwise(skeleton.chains[f]))[1:3]) for f in ("pinky", "ring")
    )
    return bool(pinky > limit * ring)


def _rigid(
    spreads: Array, skeleton: Skeleton, case: RuleContext
) -> tuple[Skeleton | None, tuple[int, ...] | None]:
    """Return the known order with rigid bones, or the places of tips.

    Neither where the declared order fits or nothing decides.
    """
    spread = dict(zip(skeleton.pairs, spreads, strict=True))
    worst = max(spread[b] for b in skeleton.bones)
    if worst <= float(case.options["moving"]):
        return None, None
    limit = min(float(case.options["spread"]), worst / float(case.options["better"]))
    lasts, tips = skeleton.ends
    best = [min(tips, key=lambda tip, last=last: spread[last, tip]) for last in lasts]  # type: ignore[misc]
    loose = [(max(spread[b] for b in other.bones), other) for other in skeleton.others]
    ends = max(spread[last, tip] for last, tip in zip(lasts, best, strict=True))
    permuted = bool(ends <= limit) and sorted(best) == sorted(tips) and best != list(tips)
    least = min(*(size for size, _ in loose), ends if permuted else np.inf)
    for size, other in loose:  # a known order explains more than tips, if it fits as well
        if size <= limit and size <= 1.5 * least + 1e-4:
            return other, None
    moved = dict(zip(tips, best, strict=True))
    return None, tuple(moved.get(j, j) for j in range(skeleton.joints)) if permuted else None
