"""Guesses the declaration of each field from its name and its profile.

`guess` combines the guesses of the other modules of `infer`: axes (`axes`), role (`roles`), unit
and ranges (`ranges`), and the kinds of text (`texts`). A guess is made where the values leave little
doubt; a fault in few samples is left to the scan rather than declared as allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from datacheck.infer.axes import Axis, fixed_row_length, joint_count, usual_length
from datacheck.infer.base import Guess
from datacheck.infer.point_table import ONE_ARRAY
from datacheck.infer.profile import FieldProfile
from datacheck.infer.ranges import guess_limits
from datacheck.infer.roles import guess_role, has_integer_type
from datacheck.infer.texts import guess_text
from datacheck.infer.worker import RECORDS
from datacheck.schema.grammar import JOINT_COUNTS

# Field name for the content of a .bin that is not float32, and the reason to state for it.
UNTYPED = "bytes"
_UNTYPED_REASON = (
    "unknown: no float32 coordinates; labels, a mask or tokens, of uint8, uint16, uint32 or "
    "int64: say which"
)
# Field name for the sound in a .wav.
_SOUND = "samples"
# Non-finite numbers in half of the samples mean missing values if there are at least this many
# samples, or if at least this share of the numbers is non-finite.
_FEWEST_WITH_GAPS = 4
_MISSING_SHARE = 0.05
# Files of many samples are few (train.npy, val.npy, test.npy) and have many rows; a sequence of
# steps is shorter, or there are more files.
_MOST_SPLIT_FILES = 6
_FEWEST_SAMPLE_ROWS = 256
# Names of token columns.
_TOKEN_NAMES = r"(?:input|token)_ids|tokens"
_TABLE_ENDINGS = {".parquet", ".arrow", ".feather"}


def guess(
    name: str, profile: FieldProfile, axes: Mapping[str, Axis], samples: int, files: str = ""
) -> Guess:
    """Return the guessed declaration of a field.

    Args:
        name: of the field.
        profile: its profile.
        axes: the first axis by field.
        samples: how many samples were profiled.
        files: names of folder and files, which say more than the field name of a file's one array.
    """
    hint = files if name == ONE_ARRAY else name.rpartition("/")[2]
    if name == UNTYPED and files.lower().endswith(".bin"):
        # Without a dtype, so that the field does not count as judged.
        declared = Guess({"shape": ["N"]}, (_UNTYPED_REASON,))
    elif {"text", "json"} & profile.dtypes.keys():
        declared = _guess_values(hint.lower(), profile)
    else:
        declared = _guess_array(hint.lower(), profile, axes.get(name))
    if name == _SOUND and files.lower().endswith(".wav") and has_integer_type(profile):
        declared = declared.without("range")  # a louder recording is no fault
    if profile.samples >= samples:
        return declared
    why = f"in {profile.samples:,} of {samples:,} samples"
    return declared.plus(Guess({"optional": True}, (why,)))


def _guess_values(name: str, profile: FieldProfile) -> Guess:
    """Return the guess for texts or JSON values, none if some samples have arrays."""
    if profile.dtypes.keys() <= {"text", "json"}:
        return guess_text(name, profile)
    kinds = ", ".join(f"{kind} in {count:,}" for kind, count in sorted(profile.dtypes.items()))
    return Guess({}, (f"{kinds} samples: declare one of them",))


def _guess_array(name: str, profile: FieldProfile, axis: Axis | None) -> Guess:
    role = guess_role(name, profile)
    return role.plus(
        _guess_shape(profile, axis),
        _guess_dtype(profile),
        _guess_finite(profile),
        guess_limits(role.spec.get("role"), profile),
    )


def _guess_shape(profile: FieldProfile, axis: Axis | None) -> Guess:
    why = _remark_on_lengths(profile, axis)
    if len(profile.ndims) != 1 or profile.item is None:
        return Guess({}, why)
    if not profile.lengths:
        shape = list(profile.item)
        return Guess({"shape": shape}, why)
    first = _fixed_length(profile) if axis is None else axis.name
    return Guess({"shape": ["N" if first is None else first, *profile.item]}, why)


def _fixed_length(profile: FieldProfile) -> int | None:
    """Return the length that nearly all samples have, None if it is open or the samples are few."""
    is_fixed = (
        len(set(profile.lengths)) == 1 or joint_count(profile) > 0 or fixed_row_length(profile) > 0
    )
    return usual_length(profile) if is_fixed and len(profile.lengths) > 2 else None


def _remark_on_lengths(profile: FieldProfile, axis: Axis | None) -> tuple[str, ...]:
    """Return in how many samples the length differs from the guessed one."""
    if axis is not None and axis.deviating:
        deviating_share = f"{axis.deviating:,} of {profile.samples:,} samples"
        return (f"another length than the others with {axis.name} in {deviating_share}",)
    usual = fixed_row_length(profile) if axis is None else 0
    if usual:
        deviating = sum(length != usual for length in profile.lengths)
        return (f"of another length in {deviating:,} of {len(profile.lengths):,} samples",)
    return ()


def _guess_dtype(profile: FieldProfile) -> Guess:
    """Return the type of flags and bytes; other types stay undeclared."""
    dtypes = list(profile.dtypes)
    return Guess({"dtype": dtypes[0]}) if dtypes in (["bool"], ["uint8"]) else Guess()


def _guess_finite(profile: FieldProfile) -> Guess:
    """Return that NaN is allowed if it means missing values in most samples."""
    if not profile.nonfinite_samples:
        return Guess()
    why = f"NaN or infinity in {profile.nonfinite_samples:,} of {profile.samples:,} samples"
    are_gaps = profile.samples >= _FEWEST_WITH_GAPS or profile.nonfinite_share >= _MISSING_SHARE
    if are_gaps and 2 * profile.nonfinite_samples >= profile.samples:
        return Guess({"finite": False}, (why,))
    # In fewer samples they are more likely a fault for a scan to find than intended.
    return Guess({}, (why, "finite: false where that means missing"))


def inner_samples(fields: Mapping[str, FieldProfile], files: int, ending: str) -> str:
    """Return ``samples.each`` where few files more likely hold many samples than one each, or "".

    Args:
        fields: their profiles, with each file read as one sample.
        files: how many files there are.
        ending: of their names.
    """
    ending = ending.lower()
    if ending in _TABLE_ENDINGS:
        return "row" if _is_table_of_texts(fields) else ""
    if files > _MOST_SPLIT_FILES or len(fields) != 1:
        return ""
    ((name, profile),) = fields.items()
    if name == RECORDS and ending == ".json" and profile.record_keys:
        return "line"
    return "row" if name == ONE_ARRAY and _are_skeletons(profile) else ""


def _is_table_of_texts(fields: Mapping[str, FieldProfile]) -> bool:
    """Tell whether a table has a column of tokens, or of texts that differ from row to row."""
    if any(re.fullmatch(_TOKEN_NAMES, name) for name in fields):
        return True
    return any(2 * profile.varied_lists > profile.samples for profile in fields.values())


def _are_skeletons(profile: FieldProfile) -> bool:
    """Tell whether the rows of an array are many skeletons."""
    item = profile.item or []
    is_skeleton = len(item) == 2 and item[0] in JOINT_COUNTS and item[1] == 3
    return is_skeleton and min(profile.lengths, default=0) >= _FEWEST_SAMPLE_ROWS
