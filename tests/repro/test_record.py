"""What a Recorder writes: digests at the right moment, nothing drawn or changed, whatever ends the process."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import MutableMapping
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from torch.utils.data import DataLoader, TensorDataset

from datacheck.errors import UsageError
from datacheck.repro import Recorder
from datacheck.repro.record import resolve_config
from datacheck.repro.recorded import read_run
from datacheck.repro.run_diff import diff_runs
from datacheck.repro.sampler_observer import SamplerObserver
from datacheck.repro.tensors import digest_batch, fold
from tests.repro.ranks import run_ranks

LIMIT_S = 800


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The environment is captured by tests of its own."""
    monkeypatch.setattr(
        "datacheck.repro.captures.capture",
        lambda data=(): {"data": {str(one): "0" for one in data}},
    )


def parts(seed=0, lr=0.1, **more):
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=lr, **more)


def batches(count=4):
    generator = torch.Generator().manual_seed(5)
    return [torch.rand(2, 3, generator=generator) for _ in range(count)]


def lines(recorder, kind="step"):
    text = (recorder.path / "trace-00000.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def framed(name, tensor):
    """xxh3_64 of a tensor as it is documented, by NumPy alone."""
    array = tensor.detach().numpy()
    head = f"{name}\0{tensor.dtype}\0{','.join(map(str, array.shape))}\0".encode()
    return head + array.tobytes()


# --------------------------------------------------------------------------------- the right moment


@pytest.mark.parametrize("cleared", ["before", "after"])
def test_gradients_are_those_of_the_update_wherever_they_are_cleared(tmp_path, cleared):
    model, optimizer = parts()
    expected, weights, rates = [], [], []
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with Recorder(tmp_path, model=model, optimizer=optimizer, every=1) as recorder:
        for batch in batches():
            loss = model(batch).sum()
            if cleared == "before":
                optimizer.zero_grad()
            loss.backward()
            gradients = [p.grad for p in model.parameters()]
            raw = b"".join(framed(str(i), g) for i, g in enumerate(gradients))
            norm = float(torch.nn.utils.get_total_norm(gradients))
            expected.append((xxhash.xxh3_64_hexdigest(raw), norm.hex()))
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if cleared == "after":
                optimizer.zero_grad()
            schedule.step()  # what the update was made with is written, not what comes next
            raw = b"".join(framed(name, p) for name, p in model.named_parameters())
            weights.append(xxhash.xxh3_64_hexdigest(raw))
            recorder.step(batch, loss)
    found = lines(recorder)
    assert [(line["grads"], line["grad_norm"]) for line in found] == expected
    assert [line["params"] for line in found] == weights
    assert [line["lr"] for line in found] == [[rate] for rate in rates]


def test_gradients_of_a_closure_are_those_that_it_computes(tmp_path):
    model, optimizer = parts()
    (batch,) = batches(1)

    def closure():
        optimizer.zero_grad()
        loss = model(batch).sum()
        loss.backward()
        return loss

    with Recorder(tmp_path, model=model, optimizer=optimizer, every=1) as recorder:
        loss = optimizer.step(closure)
        recorder.step(batch, loss)
    raw = b"".join(framed(str(i), p.grad) for i, p in enumerate(model.parameters()))
    assert lines(recorder)[0]["grads"] == xxhash.xxh3_64_hexdigest(raw)


def test_gradients_are_those_after_clipping(tmp_path):
    model, optimizer = parts()
    (batch,) = batches(1)
    with Recorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        loss = (100 * model(batch)).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recorder.step(batch, loss)
    assert float.fromhex(lines(recorder)[0]["grad_norm"]) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    ],
)
def test_folding_leaves_a_tensor_as_it_was_and_tells_it_from_others(dtype):
    tensor = torch.arange(1, 9).to(dtype).reshape(2, 4)
    before = tensor.clone()
    found = fold(tensor)
    assert torch.equal(tensor, before)
    assert found == fold(before)
    swapped = before.flip(0)
    assert torch.equal(swapped, before) == (fold(swapped) == found)
    if dtype.is_signed:
        for count in (1, 2, 4, 8):  # of words of eight bytes an even number of signs was lost
            negated = before.reshape(-1).clone()
            negated[:count] *= -1
            assert fold(negated) != found, count


def test_updates_are_counted_where_batches_are_accumulated_and_digested_every_so_many_steps(
    tmp_path,
):
    model, optimizer = parts()
    with Recorder(tmp_path, model=model, optimizer=optimizer, every=6) as recorder:
        for i, batch in enumerate(batches(12)):
            loss = model(batch).sum()
            loss.backward()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
            recorder.step(batch, loss)
    found = lines(recorder)
    assert [line["updates"] for line in found] == [0, 0, 1] * 4
    # The first updates from steps 0 and 6 on
    assert [i for i, line in enumerate(found) if "grads" in line] == [2, 8]
    assert [i for i, line in enumerate(found) if "params" in line] == [2, 8]


@pytest.mark.parametrize(
    ("each", "steps"),
    [(1, [0, 7, 14, 21, 28, 35]), (4, [3, 7, 15, 23, 31, 35])],
    ids=["plain", "accumulated"],
)
def test_a_run_that_goes_on_is_digested_at_the_steps_of_the_whole_one(tmp_path, each, steps):
    def digested(name, first):
        model, optimizer = parts()
        with Recorder(
            tmp_path, name=name, model=model, optimizer=optimizer, every=7, first_step=first
        ) as recorder:
            for step in range(first, 40):
                model(torch.ones(2, 3)).sum().backward()
                if step % each == each - 1:
                    optimizer.step()
                recorder.step(torch.ones(2, 3), 1.0)
        found = lines(recorder)
        return [
            [line["step"] for line in found if key in line]
            for key in ("grads", "params", "optimizer")
        ]

    assert digested("whole", 0) == [steps] * 3
    assert digested("later", 12) == [[step for step in steps if step >= 12]] * 3


def test_all_updates_of_a_step_are_digested_or_none(tmp_path):
    model, optimizer = parts()
    with Recorder(tmp_path, model=model, optimizer=optimizer, every=2) as recorder:
        for batch in batches(4):
            for _ in range(3):
                model(batch).sum().backward()
                optimizer.step()
            recorder.step(batch, 1.0)
    assert [len(line.get("grads", "").split()) for line in lines(recorder)] == [3, 0, 3, 0]


def test_an_update_that_a_scaler_skips_is_none(tmp_path):
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with Recorder(tmp_path, model=model, optimizer=optimizer, scaler=scaler, every=1) as recorder:
        for i, batch in enumerate(batches(2)):
            optimizer.zero_grad()
            loss = model(batch).sum() * (float("inf") if i else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            recorder.step(batch, loss)
    found = lines(recorder)
    assert [line["updates"] for line in found] == [1, 0]
    # Halved where a gradient is not finite
    assert [float.fromhex(line["scale"]) for line in found] == [4.0, 2.0]
    plain = [p.grad for p in model.parameters()]
    assert plain
    assert float.fromhex(found[0]["grad_norm"]) < 10  # unscaled


def test_two_optimisers_each_have_their_gradients(tmp_path):
    model, one = parts()
    other = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))])
    with Recorder(tmp_path, model=model, optimizer=[one, other], every=1) as recorder:
        for batch in batches(2):
            model(batch).sum().backward()
            one.step()
            other.step()
            recorder.step(batch, 1.0)
    found = lines(recorder)
    assert [line["updates"] for line in found] == [2, 2]
    assert [len(line["grads"].split()) for line in found] == [2, 2]
    assert [line["lr"] for line in found] == [[0.1, 0.001]] * 2


def test_weights_are_digested_without_an_optimiser_too(tmp_path):
    model, _ = parts()
    with Recorder(tmp_path, model=model, every=2) as recorder:
        for batch in batches(4):
            recorder.step(batch, model(batch).sum())
    assert ["params" in line for line in lines(recorder)] == [True, False, True, False]
    with pytest.raises(UsageError, match=r"an optimizer of torch\.optim is wanted"):
        Recorder(tmp_path, optimizer=object())


def test_after_the_run_nothing_looks_on_any_more(tmp_path):
    model, optimizer = parts()
    loader = DataLoader(TensorDataset(torch.arange(8.0)), 2)
    with Recorder(tmp_path, model=model, optimizer=optimizer, loader=loader):
        assert type(loader.batch_sampler) is not torch.utils.data.BatchSampler
    assert type(loader.batch_sampler) is torch.utils.data.BatchSampler
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_training_is_the_same_with_and_without_a_recorder(tmp_path):
    def train(record):
        random.seed(1)
        np.random.seed(2)  # noqa: NPY002
        model, optimizer = parts(3)
        loader = DataLoader(TensorDataset(torch.arange(24.0).reshape(8, 3)), 2, shuffle=True)
        recorder = (
            Recorder(tmp_path, model=model, optimizer=optimizer, loader=loader, every=1)
            if record
            else None
        )
        if recorder:
            recorder.__enter__()
        for (batch,) in loader:
            loss = model(batch + torch.rand(3)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if recorder:
                recorder.step(batch, loss)
        if recorder:
            recorder.__exit__(None, None, None)
        drawn = random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002
        return [p.tolist() for p in model.parameters()], drawn

    assert train(record=True) == train(record=False)


# ------------------------------------------------------------------------------- indices and inputs


@pytest.mark.parametrize("workers", [0, 2])
def test_indices_are_those_of_the_batches_in_the_order_in_which_they_come(tmp_path, workers):
    data = torch.arange(20)
    loader = DataLoader(
        TensorDataset(data), 3, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    recorder = Recorder(tmp_path, loader=loader)
    with recorder:
        for _ in range(2):
            for number, (batch,) in enumerate(loader):
                if number == 4:
                    break  # what was fetched ahead belongs to no step
                recorder.input(batch)
                assert recorder._indices.tolist() == batch.tolist()
                recorder.step(loss=0.0)
    assert [line["epoch"] for line in lines(recorder)] == [0] * 4 + [1] * 4
    assert [
        (line["epoch"], line["steps"], line["samples"]) for line in lines(recorder, "epoch")
    ] == [(0, 4, 12), (1, 4, 12)]


def test_indices_are_the_same_however_they_are_known(tmp_path):
    batch = {"x": torch.rand(3, 2), "row": torch.tensor([4, 1, 7])}
    said = []
    for name, more, given in (("key", {"index_key": "row"}, None), ("given", {}, [4, 1, 7])):
        with Recorder(tmp_path, name=name, **more) as recorder:
            recorder.step(batch, 1.0, indices=given)
        said.append(lines(recorder)[0]["indices"])
    assert said == [xxhash.xxh3_64_hexdigest(np.array([4, 1, 7], "<i8").tobytes())] * 2


@pytest.mark.parametrize("kind", ["cached", "plain"])
def test_indices_of_a_cache_are_those_of_its_batches(tmp_path, kind):
    from datacheck.model.sample import ArraySpec
    from datacheck.torch import CachedDataset, CachedLoader
    from tests.cache.make import make_cache

    samples = [{"label": np.int64(i)} for i in range(20)]
    data = CachedDataset(
        make_cache(tmp_path / "cache", {"label": ArraySpec("int64")}, samples, k=4)
    )
    loader = (
        CachedLoader(data, 4, shuffle=True)
        if kind == "cached"
        else DataLoader(data, batch_sampler=data.sampler(4), num_workers=2)
    )
    recorder = Recorder(tmp_path, name="run", loader=loader)
    with recorder:
        for _ in range(2):
            for batch in loader:
                recorder.input(batch)
                assert recorder._indices.tolist() == batch["label"].tolist()
                recorder.step(loss=0.0)
    assert [(line["epoch"], line["samples"]) for line in lines(recorder, "epoch")] == [
        (0, 20),
        (1, 20),
    ]
    assert lines(recorder, "loader")[0]["unseen"] == ""


def test_the_epoch_that_a_datacheck_sampler_packs_into_an_index_is_left_out():
    from datacheck.torch import Sampler

    class Decodes(TensorDataset):
        decodes_epoch = True
        fingerprint = "x"

    sampler = Sampler(Decodes(torch.arange(6)), 2, shuffle=False)
    sampler.set_epoch(3)

    class Loader:
        batch_sampler = sampler

    from datacheck.repro.sampler_observer import as_indices

    watch = SamplerObserver(Loader)
    list(sampler)
    taken = [watch.take() for _ in range(3)]
    watch.close()
    assert [(epoch, as_indices(said).tolist()) for epoch, said in taken] == [
        (3, [0, 1]),
        (3, [2, 3]),
        (3, [4, 5]),
    ]
    assert type(sampler) is Sampler


def test_indices_whose_number_is_not_that_of_the_batch_are_not_written(tmp_path):
    loader = DataLoader(TensorDataset(torch.arange(10)), 4)
    with Recorder(tmp_path, name="x", loader=loader) as recorder:
        for number, (batch,) in enumerate(loader):
            # The loop leaves one out, so the last one, of two samples, meets the indices of four
            if number != 1:
                recorder.step(batch, 1.0)
    assert [line["samples"] for line in lines(recorder)] == [4, 2]
    assert ["indices" in line for line in lines(recorder)] == [True, False]
    assert lines(recorder, "epoch")[0]["order"] is None
    (note,) = read_run(tmp_path / "x").notes
    assert note.startswith(
        "batches have another number of samples than the sampler gave out for them"
    )


def test_batches_without_a_row_for_each_sample_keep_their_indices(tmp_path):
    loader = DataLoader(
        TensorDataset(torch.arange(6)), 2, collate_fn=lambda rows: torch.zeros(1, 3 * len(rows))
    )
    with Recorder(tmp_path, name="x", loader=loader) as recorder:
        for batch in loader:
            recorder.step(batch, 1.0)
    assert [line["samples"] for line in lines(recorder)] == [2] * 3
    assert all("indices" in line for line in lines(recorder))


def test_pictures_that_are_not_stacked_keep_their_indices_though_they_have_as_many_channels(
    tmp_path,
):
    pictures = [torch.full((3, 4, 4), float(i)) for i in range(8)]
    loader = DataLoader(pictures, 3, collate_fn=list)
    with Recorder(tmp_path, name="x", loader=loader) as recorder:
        for batch in loader:
            recorder.step(batch, 1.0)
    assert [line["samples"] for line in lines(recorder)] == [3, 3, 2]
    assert lines(recorder, "epoch")[0]["samples"] == 8
    assert not read_run(tmp_path / "x").notes


def test_what_cannot_be_watched_is_said(tmp_path):
    with Recorder(
        tmp_path, loader=DataLoader(TensorDataset(torch.arange(4)), batch_sampler=[[0, 1], [2, 3]])
    ) as recorder:
        recorder.step(torch.zeros(2), 1.0)
    assert (
        lines(recorder, "loader")[0]["unseen"]
        == "batches are ordered by a list, which cannot be watched"
    )
    assert "indices" not in lines(recorder)[0]


def test_the_order_and_the_set_of_an_epoch_are_told_apart(tmp_path):
    def epoch(name, order):
        with Recorder(tmp_path, name=name) as recorder:
            for rows in order:
                recorder.step(torch.tensor(rows, dtype=torch.float64)[:, None], 1.0, indices=rows)
        return lines(recorder, "epoch")[0]

    one, same = epoch("one", [[0, 1], [2, 3]]), epoch("same", [[0, 1], [2, 3]])
    turned, others = epoch("turned", [[3, 1], [0, 2]]), epoch("others", [[0, 1], [2, 4]])
    assert one == same
    assert one["order"] != turned["order"]
    assert (one["set"], one["values"]) == (turned["set"], turned["values"])
    assert one["set"] != others["set"]
    assert one["values"] != others["values"]


def digest_of(batch, samples=None):
    digest, rows = digest_batch(batch, samples)
    return digest.text(), rows


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(2), torch.tensor([0.0, -0.0])),
        ({"a": torch.zeros(1)}, {"b": torch.zeros(1)}),
        ([torch.zeros(2), torch.ones(2)], [torch.ones(2), torch.zeros(2)]),
        ({"a": "x"}, {"a": "y"}),
        ({"a": 1}, {"a": 1.0}),
        ([], [[]]),
        (torch.tensor(1, dtype=torch.bfloat16), torch.tensor(2, dtype=torch.bfloat16)),
        (np.zeros(2, "f4"), np.zeros(2, "f8")),
    ],
)
def test_batches_that_differ_have_different_digests(one, other):
    for samples in (None, 2):
        assert digest_of(one, samples)[0] != digest_of(other, samples)[0]
        assert digest_of(one, samples) == digest_of(one, samples)


class Held:
    """As batches of PyTorch Geometric: neither a mapping nor a dataclass."""

    def __init__(self, x):
        self.x, self.own = x, self


def test_attributes_of_objects_are_digested_and_what_cannot_be_is_said(tmp_path):
    assert digest_of(Held(torch.zeros(2)))[0] == digest_of(Held(torch.zeros(2)))[0]
    assert digest_of(Held(torch.zeros(2)))[0] != digest_of(Held(torch.ones(2)))[0]
    with Recorder(tmp_path, name="x") as recorder:
        for _ in range(2):
            recorder.step([torch.zeros(2), object(), {1: 2j}], 1.0)
    assert read_run(tmp_path / "x").notes == [
        "batches hold values of type complex, of which only the type is digested",
        "batches hold values of type object, of which only the type is digested",
    ]


def test_a_digest_is_of_values_not_of_memory():
    square = torch.arange(12.0).reshape(3, 4)
    turned = square.t().contiguous().t()  # the same values, column by column
    assert digest_of(square, 3) == digest_of(turned, 3)
    assert digest_of({"b": square, "a": 1}, 3) == digest_of({"a": 1, "b": square}, 3)
    sparse = torch.eye(3).to_sparse()
    assert digest_of(sparse) == digest_of(torch.eye(3).to_sparse())
    assert digest_of(sparse) != digest_of((2 * torch.eye(3)).to_sparse())


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.bool, torch.complex64]
)
def test_a_fold_is_the_sum_of_words_by_their_places(dtype):
    tensor = (torch.arange(1000) % 3).to(dtype).reshape(10, 100)
    raw = torch.view_as_real(tensor) if dtype.is_complex else tensor
    words = raw.contiguous().numpy() if dtype != torch.bfloat16 else raw.view(torch.int16).numpy()
    words = words.reshape(-1).view({1: "u1", 2: "<i2", 4: "<i4", 8: "<i4"}[words.itemsize])
    total = (
        sum(int(word) * (i * 0xC2B2AE3D27D4EB4F % 2**64 | 1) for i, word in enumerate(words))
        % 2**64
    )
    assert fold(tensor) == total * 0x9E3779B97F4A7C15 % 2**64
    changed = tensor.clone()
    changed[7, 7] = 0 if changed[7, 7] else 1
    assert fold(changed) != fold(tensor)


def test_what_tensors_of_a_device_are_folded_to_is_fetched_once(monkeypatch):
    """A device that is not there: tensors in main memory that are said to lie elsewhere."""
    values = {
        "a": torch.arange(6.0).reshape(2, 3),
        "b": torch.ones(4, dtype=torch.int64),
        "c": torch.tensor(2.5),
    }
    expected = xxhash.xxh3_64()
    for name, value in values.items():
        head = f".{name}\0{value.dtype}\0{','.join(map(str, value.shape))}\0".encode()
        expected.update(head + fold(value).to_bytes(8, "little"))
        expected.update(f".{name}2\0str\0said".encode())
    fetched = []
    fetch = {name: getattr(torch.Tensor, name) for name in ("item", "tolist")}
    for name in fetch:
        monkeypatch.setattr(
            torch.Tensor,
            name,
            lambda one, name=name: fetched.append(tuple(one.shape)) or fetch[name](one),
        )
    monkeypatch.setattr("datacheck.repro.tensors.in_main_memory", lambda tensor: False)
    said = {f"{name}2": "said" for name in values}
    digest, rows = digest_batch(values | said, 2)
    assert (digest.text(), rows) == (f"f{expected.hexdigest()}", None)
    assert fetched == [(3,)]
    assert digest.text() == f"f{expected.hexdigest()}"


# ----------------------------------------------------------------------------------- configurations


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Model:
    width: int = 3
    colour: Colour = Colour.RED


class Interpolated(MutableMapping):
    """As OmegaConf's DictConfig: values are made when they are asked for, and may not be there."""

    def __init__(self, values):
        self.values_ = values

    def __getitem__(self, key):
        if self.values_[key] == "???":
            raise LookupError(key)
        return self.values_[key]

    def __setitem__(self, key, value): ...
    def __delitem__(self, key): ...
    def __iter__(self):
        return iter(self.values_)

    def __len__(self):
        return len(self.values_)


def test_a_configuration_is_plain_json_whatever_it_is_made_of():
    loop = []
    loop.append(loop)
    config = {
        "model": Model(),
        "args": argparse.Namespace(lr=0.1),
        "path": Path("a/b"),
        3: (1, 2),
        "set": {"b", "a"},
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "nan": float("nan"),
        "numpy": np.float32(0.5),
        "call": os.path.join,
        "object": object(),
        "loop": loop,
        "omega": Interpolated({"a": 1, "b": "???"}),
        "hub_token": "hf_secret",
        "max_tokens": 5,
        "array": np.zeros(2),
    }
    found = resolve_config(config)
    json.dumps(found, allow_nan=False)
    array = found.pop("array")
    assert (array["dtype"], array["shape"]) == ("<f8", [2])
    assert found == {
        "model": {"width": 3, "colour": "RED"},
        "args": {"lr": 0.1},
        "path": "a/b",
        "3": [1, 2],
        "set": ["a", "b"],
        "dtype": "torch.float32",
        "device": "cpu",
        "nan": {"float": "nan"},
        "numpy": 0.5,
        "call": "posixpath.join",
        "object": {"type": "builtins.object"},
        "loop": [{"type": "builtins.list", "within": "itself"}],
        "omega": {"a": 1, "b": {"unresolved": "LookupError"}},
        "hub_token": {"secret": True},
        "max_tokens": 5,
    }


def test_names_that_are_no_utf8_and_huge_numbers_are_read_again(tmp_path):
    for name, text, count in (("a", "x\udce9", 1 << 70), ("b", "y\udce9", 10**5000)):
        _, optimizer = parts()
        optimizer.param_groups[0]["note"] = text
        with Recorder(
            tmp_path, name=name, config={"path": text, "count": count}, optimizer=optimizer
        ):
            pass
    one, other = (read_run(tmp_path / name) for name in "ab")
    assert (one.config, one.notes) == ({"path": "x\udce9", "count": {"int": hex(1 << 70)}}, [])
    assert [start["hyper"][0]["note"] for start in (one.starts[0], other.starts[0])] == [
        "x\udce9",
        "y\udce9",
    ]
    found = diff_runs(one, other).first
    assert [d.name for d in found.differences] == [
        "config.count.int",
        "config.path",
        "optimizer[0].note",
    ]
    (tmp_path / "a/config.json").write_text('{"version": 1, "config": {"n": ' + "9" * 40 + "}}")
    assert read_run(tmp_path / "a").config == {"n": int("9" * 40)}


# ----------------------------------------------------------------------------- folders and failures


@pytest.mark.parametrize(
    "more",
    [
        {"every": 0},
        {"every": True},
        {"every": None},
        {"first_step": 1.5},
        {"first_step": -1},
        {"name": "a/b"},
        {"name": ".."},
        {"name": ""},
    ],
)
def test_values_out_of_range_are_refused(tmp_path, more):
    with pytest.raises(UsageError):
        Recorder(tmp_path, **more)


def test_a_recorded_run_is_never_written_over(tmp_path):
    with Recorder(tmp_path, name="x"):
        pass
    before = (tmp_path / "x/trace-00000.jsonl").read_bytes()
    with pytest.raises(UsageError, match="recorded there already"), Recorder(tmp_path, name="x"):
        pass
    assert (tmp_path / "x/trace-00000.jsonl").read_bytes() == before
    with Recorder(tmp_path) as one, Recorder(tmp_path) as other:
        assert one.path != other.path


def test_a_loss_that_is_no_number_is_an_error(tmp_path):
    with (
        Recorder(tmp_path) as recorder,
        pytest.raises(UsageError, match=r"loss is of shape \(2,\)"),
    ):
        recorder.step(torch.zeros(2), torch.zeros(2))


def test_an_exception_is_how_the_run_ended(tmp_path):
    with pytest.raises(ZeroDivisionError), Recorder(tmp_path, name="x") as recorder:
        recorder.step(torch.zeros(2), 1 / 0)
    assert read_run(tmp_path / "x").ended == {0: "ZeroDivisionError"}


def test_a_disk_that_takes_no_more_ends_the_recording_and_not_the_training(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, name="x")
    with recorder:
        recorder.step(torch.zeros(2), 1.0)
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, recorder._file)
        os.close(full)
        with pytest.warns(
            UserWarning, match="no space left on device; nothing is recorded from step 1 on"
        ):
            recorder.step(torch.zeros(2), 1.0)
        recorder.step(torch.zeros(2), 1.0)
    assert read_run(tmp_path / "x").steps == {0: 1}


def test_a_run_that_is_killed_keeps_every_line_that_was_written(tmp_path, repository):
    script = (
        "import sys, torch\nimport datacheck.repro.captures\n"
        "datacheck.repro.captures.capture = lambda data=(): {}\n"
        "from datacheck.repro import Recorder\n"
        "with Recorder(sys.argv[1], name='killed') as recorder:\n"
        "    while True:\n"
        "        recorder.step(torch.zeros(64, 8), 1.0)\n"
    )
    env = os.environ | {"PYTHONPATH": str(repository)}
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], env=env)
    trace = tmp_path / "killed/trace-00000.jsonl"
    until = time.monotonic() + LIMIT_S
    while (
        not (trace.exists() and trace.read_bytes().count(b"\n") > 50) and time.monotonic() < until
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    written = trace.read_bytes()
    whole = [json.loads(line) for line in written.split(b"\n")[:-1]]
    assert [line["step"] for line in whole if line["kind"] == "step"] == list(range(len(whole) - 1))
    run = read_run(tmp_path / "killed")
    assert run.steps[0] == len(whole) - 1 > 40
    assert run.ended == {}
    trace.write_bytes(written[:-20])  # as where the kernel had taken a part of the last write
    run = read_run(tmp_path / "killed")
    assert run.steps[0] == len(whole) - 2
    assert [note for note in run.notes if "could not" in note] == []


RANKS = """
import sys, torch
import datacheck.repro.captures
datacheck.repro.captures.capture = lambda data=(): {}
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from datacheck.repro import Recorder
distributed.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with Recorder(sys.argv[1], model=model, optimizer=optimizer, every=1) as recorder:
    for step in range(3):
        batch = torch.full((2, 3), float(step + distributed.get_rank()))
        loss = model(batch).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(batch, loss)
distributed.destroy_process_group()
"""


def test_ranks_write_into_one_folder_and_agree_on_what_they_share(
    tmp_path, repository, forked_python
):
    path = run_ranks(forked_python, RANKS, tmp_path, repository)
    run = read_run(path)
    assert (run.world, sorted(run.traces), run.missing) == (2, [0, 1], [])
    one, other = (list(run.traces[rank].of("step")) for rank in (0, 1))
    assert [line["params"] for line in one] == [line["params"] for line in other]
    assert [line["grads"] for line in one] == [line["grads"] for line in other]
    assert all(x["input"] != y["input"] for x, y in zip(one, other, strict=True))
    assert sorted(run.initial(0, "weights")) == ["bias", "weight"]
    assert not diff_runs(path, path)


def test_ranks_without_a_group_need_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="2 ranks and no process group"), Recorder(tmp_path):
        pass
    with Recorder(tmp_path, name="x") as recorder:
        assert sorted(path.name for path in recorder.path.iterdir()) == ["trace-00001.jsonl"]


@pytest.mark.parametrize(
    "config",
    [
        {"secret_key": "S"},
        {"wandb_key": "S"},
        {"auth": "S"},
        {"apiToken": "S"},
        {"passphrase": "S"},
        {"token": ["S"]},
        {"credentials": {"value": "S", "more": [{"x": "S"}]}},
        {"db": "postgres://u:S@host/x"},
        {"anything": "hf_S"},
        {"db": "postgres://u:p/S@host"},
        {"extra": '{"password": "S"}'},
        {"pass": "S"},
        {"password": b"S"},
    ],
)
def test_no_secret_is_written_at_any_level(config):
    assert "S" not in json.dumps(resolve_config(config))


def test_a_password_of_digits_is_not_written():
    for config in ({"password": 31415}, {"db": {"passcode": np.int64(31415)}}, {"api_key": 31415}):
        assert "31415" not in json.dumps(resolve_config(config))


def test_settings_that_are_called_like_secrets_are_written():
    config = {
        "pad_token": "<pad>",
        "max_tokens": 512,
        "n_token": 3,
        "keypoints": "hand",
        "obs_key": "image",
    }
    config |= {
        "text_token": 4,
        "token_type": "bpe",
        "author": "me",
        "num_pass": 2,
        "image_token": "<image>",
    }
    assert resolve_config(config) == config
