"""Batches taken apart: padding off, absent values gone, and what only looks like a mask left alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from datacheck.model.named_values import RefusedError
from datacheck.torch.served import samples_of


def test_masks_and_padding_are_taken_off():
    values = torch.arange(12.0).reshape(2, 3, 2)
    real = torch.tensor([[True, True, False], [True, False, False]])
    for beside in ({"x_mask": real}, {"x_is_pad": ~real}):
        found = samples_of({"x": values} | beside, {"x": ""})
        assert [sample["x"].tolist() for sample in found] == [[[0, 1], [2, 3]], [[6, 7]]]
    assert [
        len(s["x"]) for s in samples_of({"x": values, "x_is_pad": ~real}, {"x": ""}, ["x"])
    ] == [3, 3]
    both = samples_of({"x": values, "x_mask": real}, {"x": "", "x_mask": ""})
    assert [sample["x_mask"].tolist() for sample in both] == real.tolist()
    assert [len(sample["x"]) for sample in both] == [3, 3]
    listed = [{"x": values[i], "x_is_pad": ~real[i], "n": torch.tensor(0)} for i in range(2)]
    found = samples_of(listed, {"x": ""}, rest=True)
    assert [sample["x"].tolist() for sample in found] == [[[0, 1], [2, 3]], [[6, 7]]]
    with pytest.raises(RefusedError, match="x_mask marks the rows of each sample"):
        samples_of({"x": values, "x_mask": real[:, :2]}, {"x": ""})


def test_other_things_may_have_the_names_that_collating_gives():
    batch = {
        "x": torch.zeros(2, 3, 4),
        "x_mask": torch.ones(2, 3, 4, dtype=torch.bool),
        "x_offset": torch.zeros(2),
        "x_is_pad": 0.5,
        "x_is_present": None,
    }
    assert [sample["x"].shape for sample in samples_of(batch, {"x": ""})] == [(3, 4), (3, 4)]
    with pytest.raises(RefusedError, match="ends"):
        samples_of(batch | {"x_offset": torch.tensor([1, 3])}, {"x": ""})


def test_absent_samples_lack_the_field():
    batch = {
        "x": torch.zeros(2, 3),
        "x_is_present": torch.tensor([True, False]),
        "y": [{"a": 1}, {"a": 2}],
    }
    found = samples_of(batch, {}, rest=True)
    assert [sorted(sample) for sample in found] == [["x", "y"], ["y"]]
    assert [sample["y"] for sample in found] == [{"a": 1}, {"a": 2}]
    half = samples_of({"x": torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)}, {"x": ""})
    assert half[0]["x"].dtype == np.float32
