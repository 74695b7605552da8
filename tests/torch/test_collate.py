"""The batch that looks like a list: every edit is seen, and what is served follows it."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from datacheck.cache import layout
from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset
from datacheck.torch.collate import Batch, RaggedColumn, collate_pad, collate_ragged
from tests.cache.make import make_cache


def batch():
    return Batch(
        {
            "x": torch.arange(12.0).reshape(4, 3),
            "p": RaggedColumn(torch.arange(8), [2, 4, 6, 8]),
            "t": ["a", "b", "c", "d"],
        },
        4,
    )


def plain(rows):
    return [
        {name: v.tolist() if isinstance(v, torch.Tensor) else v for name, v in row.items()}
        for row in rows
    ]


def test_it_reads_like_a_list():
    rows = batch()
    assert len(rows) == 4
    assert plain(rows) == plain(rows[:]) == plain([rows[i] for i in range(-4, 0)])
    assert rows[-1]["t"] == "d"
    assert rows[1] is rows[1]
    with pytest.raises(IndexError):
        rows[4]


def test_untouched_it_passes_through():
    rows = batch()
    whole = default_collate(rows)
    assert whole["x"].data_ptr() == rows._columns["x"].data_ptr()
    assert whole["p"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def replaced(rows):
    rows[1]["x"] = torch.zeros(3)


def in_place(rows):
    rows[1]["x"] *= 0


def in_place_unbound(rows):
    rows[1]["x"].zero_()


@pytest.mark.parametrize("edit", [replaced, in_place, in_place_unbound])
def test_a_changed_value_is_served_changed(edit):
    rows = batch()
    edit(rows)
    assert default_collate(rows)["x"].tolist() == [[0, 1, 2], [0, 0, 0], [6, 7, 8], [9, 10, 11]]


def test_added_and_removed_fields_are_seen():
    rows = batch()
    for i, row in enumerate(rows):
        row["new"] = i
        del row["p"]
    whole = default_collate(rows)
    assert list(whole) == ["x", "t", "new"]
    assert whole["new"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("lengths", [(2, 2, 2, 2), (2, 4, 1, 3)])
def test_texts_that_a_collate_has_tokenized_are_a_list(lengths):
    rows = batch()
    for row, length in zip(rows, lengths, strict=True):
        row["t"] = torch.arange(length)
    assert [len(ids) for ids in default_collate(rows)["t"]] == list(lengths)


def test_renamed_fields_are_seen():
    rows = batch()
    for row in rows:
        row["y"] = row.pop("t")
    assert default_collate(rows)["y"] == ["a", "b", "c", "d"]


def test_reordered_shortened_and_extended_lists_are_seen():
    rows = batch()
    random.Random(1).shuffle(rows)
    assert default_collate(rows)["t"] == [row["t"] for row in rows] != ["a", "b", "c", "d"]
    rows = batch()
    rows.pop()
    assert default_collate(rows)["t"] == ["a", "b", "c"]
    rows.append(rows[0])
    assert default_collate(rows)["t"] == ["a", "b", "c", "a"]
    assert default_collate(rows)["x"].shape == (4, 3)


def test_rows_of_several_batches_collate():
    rows = [*batch(), *batch()]
    assert default_collate(rows)["x"].shape == (8, 3)
    assert collate_ragged(rows)["p_offset"].tolist() == [2, 4, 6, 8, 10, 12, 14, 16]


def test_nested_values_of_a_transform_are_collated_as_torch_does():
    rows = batch()
    for row in rows:
        row["obs"] = {"a": torch.ones(2), "b": 1}
    whole = default_collate(rows)
    assert whole["obs"]["a"].shape == (4, 2)
    assert whole["obs"]["b"].tolist() == [1, 1, 1, 1]


def test_what_a_transform_puts_in_the_place_of_a_text_or_of_rows_is_stacked(tmp_path):
    """Text to a number or a tensor, JSON to an array, points to their count."""

    def transform(row):
        size = len(row["say"])
        return {
            "say": size,
            "more": torch.tensor([size]),
            "talk": np.array(row["talk"]),
            "kept": row["kept"],
            "p": row["p"].sum(),
            "q": row["q"][:1],
        }

    specs = {name: ArraySpec("uint8", (), layout.text_dim(name), "text") for name in ("say",)}
    specs |= {
        name: ArraySpec("uint8", (), layout.text_dim(name), "json") for name in ("talk", "kept")
    }
    specs |= {"p": ArraySpec("int64", (), "P"), "q": ArraySpec("int64", (), "P")}
    rows = np.arange(1, 4)
    written = [
        {"say": "a" * i, "talk": [i], "kept": [i], "p": rows[:i], "q": rows[:i]} for i in (1, 2, 3)
    ]
    make_cache(tmp_path, specs, written)
    (batch,) = DataLoader(CachedDataset(tmp_path, transform=transform), batch_size=3)
    assert {
        name: v.tolist() if isinstance(v, torch.Tensor) else v for name, v in batch.items()
    } == {
        "say": [1, 2, 3],
        "more": [[1], [2], [3]],
        "talk": [[1], [2], [3]],
        "kept": [[1], [2], [3]],
        "p": [1, 3, 6],
        "q": [[1], [1], [1]],
    }
    assert isinstance(batch["kept"], list)
    for collate, names in ((collate_ragged, {"q", "q_offset"}), (collate_pad, {"q", "q_mask"})):
        (batch,) = DataLoader(
            CachedDataset(tmp_path, transform=transform), batch_size=3, collate_fn=collate
        )
        assert batch["p"].tolist() == [1, 3, 6]
        assert {name for name in batch if name[0] == "q"} == names


@pytest.mark.parametrize("collate", [collate_ragged, collate_pad])
def test_wrong_requests_are_refused_in_words(collate):
    for rows, ragged, said in [
        ([{"a": torch.ones(2)}], ["b"], "no field b; there are a"),
        ([{"a": torch.tensor(1)}], ["a"], "a: a sample has one number there"),
        ([1, 2], ["a"], "a batch of 2 int; dicts are collated here"),
        ([], ["a"], "a batch of 0 samples"),
    ]:
        with pytest.raises(UsageError, match=said):
            collate(rows, ragged=ragged)
    with pytest.raises(UsageError, match=r"p: nan cannot stand behind its end, it is torch\.int64"):
        collate_pad(batch(), value=float("nan"))


def test_pickled_it_is_a_list_of_rows():
    got = pickle.loads(pickle.dumps(batch()))  # noqa: S301  our own bytes
    assert type(got) is list
    assert plain(got) == plain(batch())
    assert collate_ragged(got)["p"].tolist() == list(range(8))


def test_edited_rows_reach_the_ragged_collate():
    rows = batch()
    rows[1]["p"] = torch.tensor([9])
    whole = collate_ragged(rows)
    assert (whole["p"].tolist(), whole["p_offset"].tolist()) == (
        [0, 1, 9, 4, 5, 6, 7],
        [2, 3, 5, 7],
    )
    padded = collate_pad(rows, value=-1)
    assert padded["p"].tolist() == [[0, 1], [9, -1], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("collate", "name"), [(collate_pad, "p_mask"), (collate_ragged, "p_offset")]
)
@pytest.mark.parametrize("first", [True, False])
def test_a_field_does_not_take_the_place_of_what_is_made_of_another(collate, name, first):
    more = {name: torch.zeros(2)}
    rows = [
        more | {"p": torch.zeros(n, 3)} if first else {"p": torch.zeros(n, 3)} | more
        for n in (2, 3)
    ]
    with pytest.raises(UsageError, match=f"the field {name} has the name of what is made of p"):
        collate(rows, ragged=["p"])


def test_plain_dicts_must_say_what_is_ragged():
    rows = [{"p": torch.ones(n), "y": n} for n in (1, 3)]
    with pytest.raises(UsageError, match="say which fields are ragged"):
        collate_ragged(rows)
    whole = collate_ragged(rows, ragged=["p"])
    assert (whole["p"].shape, whole["p_offset"].tolist(), whole["y"].tolist()) == (
        (4,),
        [1, 4],
        [1, 3],
    )
    assert collate_pad(rows, ragged=["p"])["p_mask"].tolist() == [
        [True, False, False],
        [True, True, True],
    ]
