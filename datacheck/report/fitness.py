"""The first sentence of every report: whether the data is fit for training."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from datacheck.rules.selection import UNREAD


def fitness(listed: int, valid: int, errors: Collection[str], exit_code: int) -> str:
    """Return how many samples are fit for training, or that the dataset as a whole is not.

    The sentence begins in lower case.

    Args:
        listed, valid: numbers of samples.
        errors: codes of the rules that found errors.
        exit_code: of the scan.
    """
    unfit = listed - valid
    if not unfit:
        alone = (
            "the sample is fit for training"
            if listed == 1
            else f"all {_samples(listed)} are fit for training"
        )
        return dataset_sentence(listed, errors, exit_code) or alone
    if listed == 1:
        return "the sample is not fit for training"
    if not valid:
        return f"none of {_samples(listed)} is fit for training"
    return f"{unfit:,} of {_samples(listed)} {'is' if unfit == 1 else 'are'} not fit for training"


def dataset_sentence(listed: int, errors: Collection[str], exit_code: int) -> str:
    """Return the sentence for an error that concerns no sample, while all are fit; otherwise ""."""
    if UNREAD in errors:
        return "most of the data was not read"
    if not errors or not exit_code:
        return ""
    subject = "its sample is" if listed == 1 else f"its {_samples(listed)} are"
    return f"the dataset as a whole is not fit for training, {subject}"


def error_codes(result: Mapping[str, Any]) -> set[str]:
    """Return the codes of the rules that found errors.

    Args:
        result: ``datacheck.result/1``.
    """
    return {finding["rule"] for finding in result["findings"] if finding["severity"] == "error"}


def _samples(count: int) -> str:
    return f"{count:,} sample" if count == 1 else f"{count:,} samples"
