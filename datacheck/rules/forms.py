"""The form of the columns that the measurements of datacheck itself give: text or numbers, one or several for a sample.

The rules index, compare and add these columns. One of another form, which only a child that was taken over answers,
would fail a rule for the samples of all files. Statistics that are not listed here are not held to a form.
"""

from __future__ import annotations

from collections.abc import Mapping

from datacheck.table import Measured

_TEXT = frozenset(
    [
        "dtype",
        "far_field",
        "id",
        "image_convention",
        "makeup",
        "lacking",
        "missing",
        "refused",
        "spelled",
        "split_key",
        "strange",
        "taken",
        "transposed_at",
        "turns",
        "why",
        "worst",
    ]
)
_WHOLE = frozenset(["bad_row", "count", "dims", "ndim", "nonfinite"])  # whole numbers, whatever the field holds
_ONE = frozenset([
    "absent", "again", "alike_value", "angle", "answers", "back", "bad_row", "bare", "behind", "bom", "bone", "box",
    "boxes", "bytes", "class", "closed", "content", "copies", "count", "cut", "declared", "depth", "distinct",
    "empty", "equal", "euler", "exact", "faces", "far_high", "far_label", "far_low", "far_of", "far_rest", "far_rows",
    "fast_joint", "first_dark", "flat", "flatness", "follows", "frames", "front", "grain", "head", "high",
    "highest", "hollow", "ids", "ignored", "instance", "jerk", "largest", "last_column", "last_row", "leap",
    "leap_at", "lengthless", "lone", "longest", "low", "lowest", "mark", "marked", "marker", "markers", "matrices",
    "moments", "moves", "mute", "n", "nan", "ndim", "near", "negative", "none", "nonfinite", "noop", "norm",
    "normals", "objects", "odd_column", "odd_factor", "odd_first", "odd_high", "odd_low", "odd_rows", "odd_usual",
    "order", "over", "p99", "pad", "path", "peak", "peak_pace", "piled", "placed", "plain", "points", "poses",
    "prompt_bytes", "prompts", "quaternions", "reach", "repeats", "rows", "same", "scripts", "set", "shortest",
    "shuffled", "signs", "skew", "spacing", "span", "step", "steps", "strays", "tail", "tail_trained", "tick",
    "tokens", "told", "told_high", "told_low", "top", "trained", "transposed", "turnless", "twins", "unsaid",
    "upright", "usual_pace", "vanish", "vectors", "vocabulary", "wanted", "whole", "worst_id", "wrapped", "wrong",
    "zero", "zeros",
])  # fmt: skip
_SEVERAL = frozenset([
    "absolute", "agree", "at_high", "at_low", "at_minus", "at_plus", "average", "bands", "box_centres", "box_ends",
    "broken", "centroid", "channels", "classes", "column_mean", "column_scatter", "column_step", "column_unit",
    "column_whole", "compared", "course", "course_range", "dark", "delta", "det", "dims", "end", "excess",
    "flat_axis", "frozen", "funnel", "inside", "lens", "longer", "lost", "lower", "max", "mean", "middle", "min",
    "minhash",
    "mixed", "off", "pairs", "pauses", "posed", "purity", "size", "sizes", "stated", "std", "stored", "strain",
    "sway", "unit", "upper", "variance", "wxyz", "xyzw",
])  # fmt: skip

_EITHER = frozenset(
    ["alike", "between", "first", "least", "most", "outside", "seen", "still"]
)  # one or several numbers
_LISTED = _TEXT | _WHOLE | _ONE | _SEVERAL | _EITHER
_ATTRIBUTE = ":attr/"  # before the name of one of an HDF5 file, which may be anything


def in_form(columns: Mapping[str, Measured]) -> bool:
    """Tell whether columns by their full names have the form of their statistic."""
    return all(_in_form(name, column) for name, column in columns.items())


def is_listed(name: str) -> bool:
    """Tell whether a column by its full name is held to a form."""
    return name.startswith(_ATTRIBUTE) or name.rpartition(":")[2] in _LISTED


def _in_form(name: str, column: Measured) -> bool:
    stat = "count" if name.startswith(_ATTRIBUTE) else name.rpartition(":")[2]
    kind, several = column.values.dtype.kind, column.values.ndim > 1
    return stat not in _LISTED or (
        (kind in "OU") == (stat in _TEXT)
        and (stat not in _WHOLE or kind in "iu")
        and (stat in _EITHER or stat in (_SEVERAL if several else _LISTED - _SEVERAL))
    )
