"""Probes of a training loop: coverage, constant metrics, label shift, centring and units.

Inputs are tensors on any device, arrays, or lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.torch.order import MAX_ITEMS, unpack, whole_number

Array = np.ndarray[Any, Any]


def as_array(value: Any) -> Array:
    """Return a tensor on any device, an array, or lists of these as an array.

    Raises:
        UsageError: rows differ in length.
    """
    if hasattr(value, "detach"):  # a tensor on any device
        value = value.detach().cpu()
        return np.asarray(value.double() if value.is_floating_point() else value)
    if isinstance(value, list | tuple):
        value = [as_array(item) if hasattr(item, "detach") else item for item in value]
    try:
        return np.asarray(value)
    except ValueError as error:
        msg = f"this makes no array: {error}"
        raise UsageError(msg) from error


def finite_pairs(pred: Any, gt: Any) -> tuple[Array, Array]:
    """Return the samples that are finite in both, as float64 (samples, ...).

    Raises:
        UsageError: the values are not numbers, or the shapes differ.
    """
    predicted = as_float64(pred)
    truth = as_float64(gt)
    if predicted.shape != truth.shape or predicted.ndim == 0 or 0 in predicted.shape[1:]:
        msg = (
            f"pred has shape {list(predicted.shape)}, gt {list(truth.shape)}; both are (samples, "
            f"...) and equal"
        )
        raise UsageError(msg)
    axes = tuple(range(1, predicted.ndim))
    finite = np.isfinite(predicted).all(axis=axes) & np.isfinite(truth).all(axis=axes)
    return predicted[finite], truth[finite]


def as_float64(value: Any) -> Array:
    """Return real numbers as float64; None becomes NaN.

    Raises:
        UsageError: the values are not real numbers.
    """
    array = as_array(value)
    try:
        if array.dtype.kind in "biufO":
            return array.astype(np.float64)
    except (TypeError, ValueError):
        pass
    msg = f"these are no real numbers: {type(value).__name__} of {array.dtype}"
    raise UsageError(msg)


LEAST_TOKENS = 32
LEAST_SAMPLES = 8

# Logits per block: in double precision, all of them take many times the memory of the loop's.
_NUMBERS_AT_ONCE = 2**22
_NAN = float("nan")
_MILLI = 1000.0
_UNITS = {
    "10 (centimetres and millimetres)": 10.0,
    "25.4 (inches and millimetres)": 25.4,
    "39.4 (inches and metres)": 1 / 0.0254,
    "57.3 (radians and degrees)": 180 / np.pi,
    "100 (metres and centimetres)": 100.0,
    "1000 (metres and millimetres)": _MILLI,
}


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The result of a probe.

    Args:
        ok: no fault was found.
        sure: there was enough data to decide.
        verdict: one sentence, which is also what is printed.
    """

    verdict: str
    ok: bool = True
    sure: bool = True

    def __str__(self) -> str:
        return self.verdict


@dataclass(frozen=True, kw_only=True)
class EvalCoverage(Probe):
    """Which samples an evaluation has seen; ok: each exactly once.

    Args:
        seen, missing, doubled: numbers of samples of the dataset.
        outside: number of indices outside the dataset.
    """

    seen: int
    missing: int
    doubled: int
    outside: int


@dataclass(frozen=True, kw_only=True)
class ConstantMetric(Probe):
    """Whether a metric has stopped changing.

    Args:
        value: the last value.
        repeats: how many values at the end are equal to it.
    """

    value: float
    repeats: int


@dataclass(frozen=True, kw_only=True)
class LabelShift(Probe):
    """The lag between logits and ids that fits the loss best.

    Args:
        best, expected: lags; at lag 1 the logits of a position predict the next id.
        losses: mean cross-entropy [nat] by lag, over the same positions.
        tokens: number of these positions.
    """

    best: int
    expected: int
    losses: dict[int, float]
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Centering(Probe):
    """Whether predictions and ground truth have their origin at the same point of the body.

    Args:
        pred, gt: what each is centred on: "joint 0", "mean" or "" (nothing).
        offset: median distance between the means of prediction and truth, in sizes of the truth.
        samples: number of samples compared.
    """

    pred: str
    gt: str
    offset: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class Units(Probe):
    """Whether predictions and ground truth are in the same unit.

    Args:
        ratio: size of the predictions over that of the truth.
        correlation: between both, about their means.
        samples: number of samples compared.
    """

    ratio: float
    correlation: float
    samples: int


# --------------------------------------------------------------------------------------- evaluation


def probe_coverage(indices: Iterable[int], n: int) -> EvalCoverage:
    """Check whether an evaluation has seen each of n samples exactly once.

    Args:
        indices: the evaluated indices of all ranks, packed with an epoch (as samplers yield them)
            or plain.
        n: length of the dataset.

    Raises:
        UsageError: the values are not indices.
    """
    n = whole_number("n", n, 0, MAX_ITEMS)
    if not hasattr(indices, "__iter__"):
        msg = f"indices are those that were evaluated, one by one; found {type(indices).__name__}"
        raise UsageError(msg)
    numbers = as_array(indices if hasattr(indices, "__array__") else list(indices)).reshape(-1)
    if numbers.size and numbers.dtype.kind not in "iu":
        msg = f"indices are whole numbers; found {numbers.dtype}"
        raise UsageError(msg)
    _, numbers = unpack(numbers.astype(np.int64), 0)
    inside = numbers[(numbers >= 0) & (numbers < n)]
    counts = np.bincount(inside, minlength=n)
    seen_count = int(np.count_nonzero(counts))
    doubled = int(np.count_nonzero(counts > 1))
    missing = n - seen_count
    outside = len(numbers) - len(inside)
    ok = not (missing or doubled or outside)
    verdict = f"Each of {n:,} samples was seen exactly once."
    if not ok:
        parts = [f"{seen_count:,} of {n:,} samples were seen{_pattern(np.flatnonzero(counts), n)}"]
        parts += [f"{doubled:,} more than once"] if doubled else []
        parts += [f"{outside:,} indices are outside the dataset"] if outside else []
        verdict = "; ".join(parts) + "."
    return EvalCoverage(
        seen=seen_count, missing=missing, doubled=doubled, outside=outside, verdict=verdict, ok=ok
    )


def _pattern(seen: Array, n: int) -> str:
    steps = np.unique(np.diff(seen))
    if len(seen) == n or len(steps) != 1:
        return ""
    if steps[0] == 1:
        return f" (only {seen[0]:,} to {seen[-1]:,}: the share of one rank?)"
    return f" (every {steps[0]}th from {seen[0]:,} on: the share of one rank of {steps[0]}?)"


def probe_constant_metric(history: Sequence[float], least: int = 5) -> ConstantMetric:
    """Check whether a metric has stopped changing, as when an evaluation repeats a few samples.

    Args:
        history: one value per evaluation, oldest first.
        least: how many equal values at the end are a fault, 2 or more.

    Raises:
        UsageError: `least` is out of range.

    Notes:
        Values are equal if they differ by at most 1e-9 of the last one. A metric that stays at 0, 1
        or 100 may have reached its bound, and NaN is another fault: neither is reported. A metric
        that counts over few samples may repeat by chance: use a larger `least`.
    """
    least = whole_number("least", least, 2)
    values = as_float64(history).reshape(-1)
    last = float(values[-1]) if values.size else _NAN
    if not np.isfinite(last):
        verdict = (
            f"The last value is {last}, which tells nothing." if values.size else "No value yet."
        )
        return ConstantMetric(value=last, repeats=0, verdict=verdict, sure=False)
    differing = np.flatnonzero(~(np.abs(values - last) <= 1e-9 * abs(last)))
    repeats = len(values) - (int(differing[-1]) + 1 if differing.size else 0)
    ok = True
    sure = len(values) >= least
    if repeats < least:
        verdict = (
            f"No sign of standing still: {last:g} stands for {repeats} of {len(values)} values."
        )
    elif last in {0.0, 1.0, 100.0}:
        verdict = f"It stays at {last:g} for {repeats} values, which may be its bound."
        sure = False
    else:
        verdict = (
            f"{repeats} evaluations in a row gave {last:g}: weights or evaluated samples do not "
            f"change."
        )
        ok = False
    return ConstantMetric(value=last, repeats=repeats, verdict=verdict, ok=ok, sure=sure)


# ---------------------------------------------------------------------------------- language models


def probe_label_shift(
    logits: Any,
    ids: Any,
    *,
    expected: int = 1,
    ignore: int = -100,
    lags: Sequence[int] = (-1, 0, 1, 2, 3),
) -> LabelShift:
    """Check which lag fits the loss best: labels may be shifted once too often, or not at all.

    Shapes:
        logits: float (batch, positions, vocabulary) or (positions, vocabulary)
        ids: int (batch, positions) or (positions): the labels as the loss compares them

    Args:
        expected: the lag that the loss uses; 1: the logits of a position predict the next id; 0:
            the ids are already shifted.
        ignore: the id that marks positions without a label.
        lags: the lags to compare.

    Raises:
        UsageError: shapes do not fit.

    Notes:
        All lags are compared on the same positions. Another lag is a fault if its loss is lower by
        0.1 nat and by four standard errors of the paired difference, over 32 positions or more. The
        lag at which a position predicts the id that it was given (`expected` - 1) counts only if
        its loss is below a quarter of that of the expected lag, as in a model trained to copy.
        Positions with NaN are left out.
    """
    scores = logits if hasattr(logits, "shape") else as_array(logits)
    labels = as_array(ids)
    if len(scores.shape) == labels.ndim + 1 == 2:
        scores, labels = scores[None], labels[None]
    if (
        len(scores.shape) != 3
        or labels.shape != tuple(scores.shape[:2])
        or labels.dtype.kind not in "iu"
    ):
        msg = (
            f"logits are (batch, positions, vocabulary), ids whole numbers (batch, positions); "
            f"found {list(scores.shape)} and {labels.dtype} {list(labels.shape)}"
        )
        raise UsageError(msg)
    compared_lags = sorted({whole_number("lag", lag, -(2**31), 2**31) for lag in (*lags, expected)})
    losses = _losses(scores, labels, compared_lags, ignore)
    count = losses.shape[1]
    if count < LEAST_TOKENS:
        few = (
            f"Cannot tell: only {count} positions have a label at every lag, of {LEAST_TOKENS} "
            f"that are needed."
        )
        return LabelShift(
            best=expected, expected=expected, losses={}, tokens=count, verdict=few, sure=False
        )
    means = {lag: float(loss.mean()) for lag, loss in zip(compared_lags, losses, strict=True)}
    # Tied embeddings make an untrained model favour the id that it was given
    counts = [
        lag for lag in compared_lags if lag != expected - 1 or means[lag] < means[expected] / 4
    ]
    best = min(counts, key=lambda lag: (means[lag], abs(lag - expected)))
    gain = losses[compared_lags.index(expected)] - losses[compared_lags.index(best)]
    ok = not gain.mean() > max(0.1, 4 * gain.std() / np.sqrt(count))
    best_text = f"lag {best} ({means[best]:.2f} nat)"
    verdict = f"No lag fits better than lag {expected}; best {best_text}."
    if not ok:
        off = best - expected
        verdict = (
            f"The loss fits {best_text}, not lag {expected} ({means[expected]:.2f} nat): labels "
            f"are off by {off:+d}."
        )
    return LabelShift(
        best=best, expected=expected, losses=means, tokens=count, verdict=verdict, ok=ok
    )


@np.errstate(all="ignore")
def _losses(scores: Any, labels: Array, lags: Sequence[int], ignore: int) -> Array:
    """Return the cross-entropy by lag, float64 (lags, positions).

    Only positions with a finite value at every lag are kept.
    """
    batch, length, vocabulary = scores.shape
    targets = np.full((len(lags), batch, length), -1, np.int64)
    for row, lag in zip(targets, lags, strict=True):
        positions = np.arange(max(0, -lag), max(0, length - max(0, lag)))
        row[:, positions] = np.where(
            labels[:, positions + lag] == ignore, -1, labels[:, positions + lag]
        )
    targets = targets.reshape(len(lags), -1)
    labelled = ((targets >= 0) & (targets < vocabulary)).all(axis=0)
    rows = scores.reshape(batch * length, vocabulary)
    loss_parts = [np.empty((len(lags), 0))]
    step = max(1, _NUMBERS_AT_ONCE // max(1, vocabulary))
    for start in range(0, len(labelled), step):
        positions = start + np.flatnonzero(labelled[start : start + step])
        if positions.size:
            part = as_float64(rows[start : start + step])[positions - start]
            top = part.max(axis=1, keepdims=True)
            total = np.log(np.exp(part - top).sum(axis=1)) + top[:, 0]
            loss_parts.append(total - np.take_along_axis(part, targets[:, positions].T, axis=1).T)
    losses = np.concatenate(loss_parts, axis=1)
    return losses[:, np.isfinite(losses).all(axis=0)]


# ------------------------------------------------------------------------------------------ poses


def probe_centering(pred: Any, gt: Any) -> Centering:
    """Check whether predictions and truth are relative to the same point.

    Shapes:
        pred, gt: float (samples, joints, 3), one unit

    Raises:
        UsageError: shapes do not fit.

    Notes:
        Poses are centred on a joint (or on the mean) if it is at 0 in every sample, to 0.1 % of the
        size. It is a fault if three conditions hold: one of both is centred; the other is centred
        elsewhere or more than half a size away; and moving it would make it fit twice as well and
        explain half of the truth's spread. The last one excludes predictions of an untrained model.
        Samples with NaN are left out.
    """
    predicted, actual = finite_pairs(pred, gt)
    if predicted.ndim != 3:
        msg = f"pred and gt are (samples, joints, 3); found {list(predicted.shape)}"
        raise UsageError(msg)
    count = len(predicted)
    reason = "" if count >= LEAST_SAMPLES else f"only {count} samples"
    reason = reason or ("" if _varies(predicted) else "predictions are all the same")
    spread = actual - actual.mean(axis=1, keepdims=True)
    size = float(np.median(np.sqrt((spread**2).sum(axis=2).mean(axis=1)))) if count else 0.0
    if reason := reason or ("" if size else "the truth is a point"):
        return Centering(
            pred="",
            gt="",
            offset=_NAN,
            samples=count,
            verdict=f"Cannot tell: {reason}.",
            sure=False,
        )
    displacement = predicted.mean(axis=1) - actual.mean(axis=1)
    offset = float(np.median(np.linalg.norm(displacement, axis=1))) / size
    error, moved_error, truth_spread = (
        np.sqrt((values**2).sum(axis=2).mean())
        for values in (predicted - actual, predicted - actual - displacement[:, None], spread)
    )
    on = _centre(predicted, size)
    truth = _centre(actual, size)
    # If both are centred, different centres count however near they are.
    near = offset <= 0.5 and not (on and truth)
    ok = (
        on == truth
        or near
        or moved_error >= error / 2
        or moved_error >= truth_spread * np.sqrt(0.5)
    )
    centres = f"the truth is centred on {truth or 'nothing'}, the predictions on {on or 'nothing'}"
    verdict = (
        f"No sign of two centres: "
        f"{centres}{'' if on == truth else ', and to move them would not mend them'}."
    )
    if not ok:
        better = f"{error / max(moved_error, 1e-300):.3g} times better"
        verdict = (
            f"T{centres[1:]}: they lie {offset:.3g} sizes apart and would fit {better} in "
            f"one place."
        )
    return Centering(pred=on, gt=truth, offset=offset, samples=count, verdict=verdict, ok=bool(ok))


def _varies(values: Array) -> bool:
    spread = float(np.abs(values - values[:1]).max())
    return spread > 1e-6 * float(np.abs(values).max())


def _centre(values: Array, size: float) -> str:
    near = (np.linalg.norm(values, axis=2) <= 1e-3 * size).all(axis=0)
    if near.any():
        return f"joint {int(near.argmax())}"
    return (
        "mean" if bool((np.linalg.norm(values.mean(axis=1), axis=1) <= 1e-3 * size).all()) else ""
    )


def probe_units(pred: Any, gt: Any) -> Units:
    """Check whether predictions and truth are in the same unit.

    Shapes:
        pred, gt: float (samples, ...); with (samples, joints, 3) each sample is taken about its own
            mean

    Raises:
        UsageError: shapes do not fit.

    Notes:
        It is a fault if the predictions follow the truth (correlation 0.7 or more) and their sizes
        differ by the factor of two units, to 10 %; for 1000 the tolerance grows as the correlation
        falls. Samples with NaN are left out; values without spread are inconclusive.
    """
    predicted, actual = finite_pairs(pred, gt)
    count = len(predicted)
    if count < LEAST_SAMPLES:
        few = f"Cannot tell: only {count} samples."
        return Units(ratio=_NAN, correlation=_NAN, samples=count, verdict=few, sure=False)
    axis = 1 if predicted.ndim == 3 else 0
    predicted, actual = (
        values - values.mean(axis=axis, keepdims=True) for values in (predicted, actual)
    )
    of_pred, of_gt = (float(np.sqrt((values**2).mean())) for values in (predicted, actual))
    if not of_pred or not of_gt or not _varies(predicted):
        flat = "Cannot tell: the values have no spread."
        return Units(ratio=_NAN, correlation=_NAN, samples=count, verdict=flat, sure=False)
    ratio = of_pred / of_gt
    correlation = float((predicted / of_pred * (actual / of_gt)).mean())
    factor = max(ratio, 1 / ratio)
    # Prediction errors widen the ratio; smaller factors have other explanations.
    tolerance = 1.1 / max(correlation, 0.7)
    tolerances = {words: tolerance if number == _MILLI else 1.1 for words, number in _UNITS.items()}
    near = [
        words
        for words, number in _UNITS.items()
        if 1 / tolerances[words] <= factor / number <= tolerances[words]
    ]
    ok = not near or correlation < 0.7
    verdict = (
        f"No sign of two units: predictions are {ratio:.3g} times as large, correlation "
        f"{correlation:.2f}."
    )
    if not ok:
        verdict = (
            f"The predictions follow the truth (correlation {correlation:.2f}) and are "
            f"{factor:.4g} times "
            f"{'larger' if ratio > 1 else 'smaller'}: two units, a factor of {near[0]}."
        )
    return Units(ratio=ratio, correlation=correlation, samples=count, verdict=verdict, ok=ok)
