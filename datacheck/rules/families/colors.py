"""Rules about colours: on one scale, the declared one, and neither black nor flat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, Skip, counted, listed, measure, rule, shown, those
from datacheck.rules.measures import form, is_numeric, numbers, of_role
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_ROWS = 1 << 14  # of a sample that are looked at: means and spreads need no more
_BYTE = 255.5
_ONE = 1.0 + 1e-6
_TWICE = _ONE / 255
_KINDS = {"twice": "0..0.004", "unit": "0..1", "byte": "0..255", "signed": "below 0", "beyond": "above 255"}
_FULL = {"twice": 1 / 255, "unit": 1.0, "byte": 255.0}


@measure("shade", applies=of_role("color"))
def shade(column: Column, spec: FieldSpec) -> Columns:
    """Mean and spread of each colour channel, of every so many rows: `mean`, `std`; no row for samples without any."""
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.ndim != 2 or column.values.shape[1] > 4:
        return {}
    width = column.values.shape[1]
    mean, std = np.zeros((len(column), width)), np.zeros((len(column), width))
    for i in np.flatnonzero(column.lengths > 0):
        rows = column[int(i)]
        some = np.ascontiguousarray(rows[:: -(-len(rows) // _ROWS)].T, dtype=np.float64)
        mean[i] = some.mean(axis=1)
        std[i] = np.sqrt(np.maximum(((some - mean[i][:, None]) ** 2).mean(axis=1), 0))
    return {"mean": Measured(mean, column.lengths > 0), "std": Measured(std, column.lengths > 0)}


def _scales(rows: Rows, known: Array) -> Array:
    """Return text (rows): on which scale the colours of each sample are, "" where it cannot be told."""
    low, high = rows["min"].min(axis=1), rows["max"].max(axis=1)
    whole = np.array([name.startswith(("uint8", "bool")) for name in rows["dtype"]], dtype=bool)
    conditions = [low < 0, high > _BYTE, high > _ONE, high > _TWICE]
    found = np.select(conditions, ["signed", "beyond", "byte", "unit"], np.where(_graded(rows, high), "twice", "unit"))
    found = np.where(whole, "byte", found).astype(object)
    found[~known | (high == 0) & (low == 0)] = ""  # black is black on every scale
    return found


def _graded(rows: Rows, high: Array) -> Array:
    """Tell which samples have values between 0 and their largest: of two values only, the smaller step is no scale."""
    if "std" not in rows:
        return np.zeros(len(high), bool)
    two = rows["mean"] * (high[:, None] - rows["mean"])  # the variance of 0 and the largest value alone
    found: Array = (rows["std"] ** 2 < 0.9 * two).any(axis=1)
    return found


def _declared(spec: FieldSpec) -> str:
    ends = spec.range
    if ends is None or ends.high is None or ends.low is None:
        return ""
    return "signed" if ends.low < 0 else "unit" if ends.high <= _ONE else "byte" if ends.high <= _BYTE else ""


@rule(
    "DC205", "color-range", Severity.ERROR, Level.SAMPLE, measures=(numbers, form, shade),
    needs=("DC109", "DC122", "DC221"), applies=of_role("color"),
    defaults={"mean": (0.03, 0.97), "std": 0.03, "all_mean": (0.3, 0.65), "all_std": (0.15, 0.4), "least": 8},
)  # fmt: skip
def color_range(rows: Rows, case: Case) -> Iterator[Failure | Skip]:
    """Colours are on another scale than declared or than those of the other samples, or there are none.

    What:
        Error: colours of 0..1 where ``range: 0..255`` is declared, the other way round, divided by 255 twice, or below
        0 (normalised before); without ``range`` samples on different scales. Warning, where ``range`` is declared: a
        sample that is black, white or of one colour; a dataset whose mean colour or spread is far from that of real
        scenes.
    Why it matters:
        A loader divides by 255 a second time: every colour is then 0.002, and the network learns from shape alone.
    Measure:
        Smallest and largest value; mean and standard deviation of each channel, as shares of the full scale.
    When it is wrong:
        Night, snow or one-coloured objects: widen the bands below.
    Options:
        mean: allowed mean of a sample, as share of full scale (0.03..0.97). std: least spread of some channel (0.03).
        all_mean: allowed mean over the dataset (0.30..0.65). all_std: allowed mean spread (0.15..0.40). least: fewest
        samples to judge the dataset (8).
    Bad::

        schema: {fields: {rgb: {role: color, shape: [P, 3], range: 0..255}}}
        samples:
          - {n: 3, rgb: {choice: [60, 3], among: [20, 90, 160, 230], dtype: float32}}
          - {rgb: {choice: [60, 3], among: [0.1, 0.4, 0.6, 0.9], dtype: float32}}

    Good::

        schema: {fields: {rgb: {role: color, shape: [P, 3], range: 0..255}}}
        samples:
          - {n: 4, rgb: {choice: [60, 3], among: [20, 90, 160, 230], dtype: float32}}

    Fix:
        Normalise in one place; declare ``range`` for what the files hold.
    Reference:
        1,513 ScanNet scenes: means 0.055 to 0.914, spreads 0.063 to 0.361 of full scale; over all 0.42 and 0.28.
    """
    known = rows.measured("min", "dtype")
    if not known.any():
        return
    scales, declared = _scales(rows, known), _declared(case.spec)
    told = sorted(set(scales) - {""})
    most = max(told, key=lambda name: (int((scales == name).sum()), name), default="")
    wanted = declared or most
    for name in told:
        if name != wanted and not (declared and wanted == "signed"):
            yield _other_scale(scales == name, name, wanted, declared=bool(declared))
    right = (scales == wanted) | (scales == "")
    if declared and "mean" in rows and wanted in {"unit", "byte"}:
        full = 1.0 if wanted == "unit" else 255.0
        yield from _shades(rows, case, right & rows.measured("mean"), full)


def _other_scale(bad: Array, name: str, wanted: str, *, declared: bool) -> Failure:
    cause = None
    if name in _FULL and wanted in _FULL:
        by = _FULL[wanted] / _FULL[name]
        words = "divided by 255 twice" if name == "twice" else f"scaled to {_KINDS[name]}"
        cause = Cause(f"{words}: x{by:.4g} gives {_KINDS[wanted]}", name, by, int(bad.sum()))
    elif name == "signed":
        cause = Cause("normalised before (a mean was subtracted)", name, None, int(bad.sum()))
    return Failure(
        bad,
        f"{those(bad, 'hold')} colours of {_KINDS[name]}; {_KINDS[wanted]} is {'declared' if declared else 'usual'}.",
        measured={"scale": _KINDS[name]},
        expected={"scale": _KINDS[wanted]},
        cause=cause,
        kind=name,
        fix="Bring all colours to one scale, and declare it with range.",
    )


def _shades(rows: Rows, case: Case, known: Array, full: float) -> Iterator[Failure]:
    mean, std = rows["mean"].mean(axis=1) / full, rows["std"].max(axis=1) / full
    low, high = map(float, case.options["mean"])
    flat = known & ((mean < low) | (mean > high) | (std < float(case.options["std"])))
    if flat.any():
        yield Failure(
            flat,
            f"{those(flat, 'are')} black, white or of one colour: mean {shown(float(np.median(mean[flat])))} of full "
            f"scale (allowed {low:g}..{high:g}), spread {shown(float(np.median(std[flat])))} (at least "
            f"{case.options['std']:g}).",
            measured={"mean": float(np.median(mean[flat])), "std": float(np.median(std[flat]))},
            severity=Severity.WARNING,
            kind="flat",
            fix="Look at them: colours may not have been stored.",
        )
    known = known & ~flat
    if int(known.sum()) < int(case.options["least"]):
        return
    odd = []
    for label, values, band in (("mean", mean, case.options["all_mean"]), ("spread", std, case.options["all_std"])):
        value = float(values[known].mean())
        if not float(band[0]) <= value <= float(band[1]):
            odd.append(f"{label} {shown(value)} (usual {band[0]:g}..{band[1]:g})")
    if odd:
        yield Failure(
            np.zeros(len(rows), bool),
            f"colours of {counted(int(known.sum()))} have {listed(odd)} of full scale.",
            measured={"mean": float(mean[known].mean()), "std": float(std[known].mean())},
            severity=Severity.WARNING,
            kind="dataset",
            fix="Compare some samples with their images; a gamma or a normaliser may have been applied.",
        )
