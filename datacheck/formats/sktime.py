"""Time series of sktime and aeon (NAME_TRAIN.ts, NAME_TEST.ts): each case is a group.

``case_0`` holds "series" [steps, channels] and "label", a text, or "target", a number of regression.
Cases are counted from 0 in the order of the lines. "?" is NaN. A case that breaks the header gives a
`FormatError` in place of its values, and the others are still read.

Reference:
    https://www.aeon-toolkit.org/en/stable/examples/datasets/data_loading.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import TEXT_BYTES, Values, check_bytes, numbers, text, text_lines
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_BOM = b"\xef\xbb\xbf"
_VIDEO = b"G"  # each packet of an MPEG transport stream begins with it
_PACKET_BYTES = 188
_SHOWN = 40  # characters of a label


def _parse(data: bytes, hint: Hint) -> Values:
    del hint
    check_bytes(len(data), "the file", TEXT_BYTES)
    if data[:1] == _VIDEO and data[_PACKET_BYTES : _PACKET_BYTES + 1] in {b"", _VIDEO}:
        msg = "an MPEG transport stream (video), not time series"
        raise FormatError(msg)
    lines = enumerate(text_lines(data.removeprefix(_BOM)), 1)
    header = _header(lines)
    labels = frozenset(header.get("@classlabel", [])[1:])
    values: dict[str, Any] = {}
    cases = ((number, line) for number, line in lines if line.strip() and line[:1] != b"#")
    for case, (number, line) in enumerate(cases):
        group = f"case_{case}"
        try:
            values |= {
                f"{group}/{name}": value for name, value in _case(line, header, labels).items()
            }
        except FormatError as error:
            values[f"{group}/series"] = FormatError(f"line {number:,}: {error}")
    return Values(values)


def _header(lines: Iterator[tuple[int, bytes]]) -> dict[str, list[str]]:
    """Return the words of each tag by its name in lower case, and leave the lines of the cases.

    Raises:
        FormatError: this is no header, or one of series with time stamps.
    """
    header: dict[str, list[str]] = {}
    for _, line in lines:
        if line.startswith(b"@"):
            tag, *words = text(line, "the header").split()
            header[tag.lower()] = words
        if "@data" in header or line.strip()[:1] not in {b"", b"#", b"@"}:
            break
    if "@data" not in header:
        msg = "not time series of sktime: no line @data follows the header"
        raise FormatError(msg)
    if _says(header, "@timestamps"):
        msg = "series with time stamps (@timeStamps true) are not read"
        raise FormatError(msg)
    return header


def _says(header: Mapping[str, list[str]], tag: str) -> bool:
    return header.get(tag, [])[:1] in (["true"], ["True"], ["TRUE"])


def _case(line: bytes, header: Mapping[str, list[str]], labels: frozenset[str]) -> dict[str, Any]:
    """Return the series and the label or target of one line.

    Raises:
        FormatError: the line breaks the header, or holds more than numbers.
    """
    channels = line.strip().split(b":")
    answer: dict[str, Any] = {}
    if _says(header, "@classlabel"):
        label = text(channels.pop(), "the label").strip()
        if labels and label not in labels:
            msg = f"the label {label[:_SHOWN]!r} is none of the {len(labels):,} that @classLabel names"
            raise FormatError(msg)
        answer["label"] = label
    elif _says(header, "@targetlabel"):
        target = _numbers(channels.pop())
        if len(target) != 1:
            msg = f"{len(target):,} numbers stand where the target is expected"
            raise FormatError(msg)
        answer["target"] = np.asarray(target[0])
    series = list(map(_numbers, channels))
    _check_size(series, header)
    return answer | {"series": np.ascontiguousarray(np.array(series).reshape(len(series), -1).T)}


def _numbers(words: bytes) -> Array:
    return numbers(words.replace(b"?", b"nan").replace(b",", b" "))


def _check_size(series: list[Any], header: Mapping[str, list[str]]) -> None:
    """Compare the number of channels and steps with the header.

    Raises:
        FormatError: they differ, or channels of one case have several lengths.
    """
    stated = "1" if _says(header, "@univariate") else "".join(header.get("@dimensions", [])[:1])
    if stated.isdecimal() and stated != str(len(series)):
        msg = f"{len(series):,} channels; the header says {stated[:_SHOWN]}"
        raise FormatError(msg)
    lengths = sorted({len(channel) for channel in series})
    if len(lengths) != 1:
        msg = (
            f"channels of {lengths[0]:,} to {lengths[-1]:,} steps in one case"
            if lengths
            else "no channel"
        )
        raise FormatError(msg)
    steps = "".join(header.get("@serieslength", [])[:1])
    if _says(header, "@equallength") and steps.isdecimal() and steps != str(lengths[0]):
        msg = f"{lengths[0]:,} steps; the header says {steps[:_SHOWN]}"
        raise FormatError(msg)


def _open(path: AnyPath, hint: Hint) -> Values:
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    return _parse(path.read_bytes(), hint)


SKTIME = Format("sktime", (".ts",), _open, member=_parse, stems=("_train", "_test"))
