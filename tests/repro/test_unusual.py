"""What trainings hold that is not plain: numbers of NumPy, tensors of other layouts and kinds, samplers in pickles."""

from __future__ import annotations

import copy
import gc
import json
import pickle

import numpy as np
import pytest
import torch
from pydantic import BaseModel, field_serializer, model_serializer
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from datacheck.errors import UsageError
from datacheck.repro import Recorder
from datacheck.repro.record import resolve_config
from datacheck.repro.recorded import read_run
from datacheck.repro.sampler_observer import ObservedPass, SamplerObserver, as_indices
from datacheck.repro.tensors import digest_batch, norm


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The environment is captured by tests of its own."""
    monkeypatch.setattr("datacheck.repro.captures.capture", lambda data=(): {})


def lines(recorder, kind="step"):
    text = (recorder.path / "trace-00000.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def digest_of(batch, samples=None):
    return digest_batch(batch, samples)[0].text()


# ----------------------------------------------------------------------------------- configurations


def models(error):
    """Models of pydantic whose serializers raise, one within the other."""

    class Inner(BaseModel):
        rate: float = 0.1

        @field_serializer("rate")
        def said(self, value):
            raise error

    class Outer(BaseModel):
        inner: Inner = Inner()

        @model_serializer(mode="wrap")
        def said(self, handler):
            return handler(self)

    return [Inner(), Outer(), {"train": [Outer()]}]


@pytest.mark.parametrize("place", range(3))
def test_an_interrupt_within_a_serializer_is_one(place):
    with pytest.raises(KeyboardInterrupt):
        resolve_config(models(KeyboardInterrupt())[place])


def test_a_serializer_that_fails_ends_no_training(tmp_path):
    with Recorder(tmp_path, name="x", config={"rate": 0.1, "model": models(ValueError("no"))[1]}):
        pass
    said = {"type": f"{__name__}.models.<locals>.Outer", "unresolved": "PydanticSerializationError"}
    assert read_run(tmp_path / "x").config == {"rate": 0.1, "model": said}


# ------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize(
    "whole", [int, np.int64, np.uint8, torch.tensor], ids=["int", "int64", "uint8", "tensor"]
)
def test_whole_numbers_of_any_library_are_taken(tmp_path, whole):
    with Recorder(tmp_path, name="x", every=whole(2), first_step=whole(7)) as recorder:
        recorder.step(torch.zeros(2), 1.0, epoch=whole(3))
        recorder.evaluation("val", {"loss": np.float32(0.5)}, seen=whole(4), of=whole(5))
        # One index, not nine samples
        recorder.evaluation("val", {"loss": 0.5}, seen=torch.tensor([9]), of=1)
    (step,), (one, other) = lines(recorder), lines(recorder, "eval")
    assert (step["step"], step["epoch"]) == (7, 3)
    assert (one["seen"], one["of"], one["epoch"]) == (4, 5, 3)
    assert other["seen"] == 1
    assert read_run(tmp_path / "x").ended == {0: "done"}


def test_numbers_that_are_not_whole_are_refused_and_the_recording_goes_on(tmp_path):
    with Recorder(tmp_path) as recorder:
        for bad in (1.5, True, -1, "x"):
            with pytest.raises(UsageError, match="no whole number of 0 or more"):
                recorder.step(torch.zeros(2), 1.0, epoch=bad)
            with pytest.raises(UsageError, match="no whole number of 0 or more"):
                recorder.evaluation("val", {}, of=bad)
        recorder.step(torch.zeros(2), 1.0)
    assert [line["step"] for line in lines(recorder)] == [0]


def test_an_epoch_of_numpy_is_that_of_the_pass():
    class Order(torch.utils.data.SequentialSampler):
        epoch = np.int64(5)

    loader = DataLoader(TensorDataset(torch.arange(4)), 2, sampler=Order(range(4)))
    watch = SamplerObserver(
        type(
            "Loader",
            (),
            {"batch_sampler": None, "sampler": loader.sampler, "batch_size": np.int64(2)},
        )
    )
    next(iter(loader.sampler))
    assert watch.take()[0] == 5
    assert json.loads(json.dumps(watch.facts))["batch_size"] == 2


def test_numbers_beyond_float64_in_a_configuration_are_written():
    one, other = (
        resolve_config({"x": np.longdouble(1) / np.longdouble(d), "z": np.clongdouble(d)})
        for d in (3, 7)
    )
    assert json.dumps(one) != json.dumps(other)


# ------------------------------------------------------------------------------------------ tensors


def jagged(numbers):
    return torch.nested.nested_tensor([torch.tensor(row) for row in numbers], layout=torch.jagged)


def nested(numbers):
    return torch.nested.nested_tensor([torch.tensor(row) for row in numbers])


def quantized(numbers, scale=0.5):
    return torch.quantize_per_tensor(torch.tensor(numbers), scale, 0, torch.qint8)


PAIRS = {
    "nested": (nested, [[1.0], [2.0, 3.0]], [[1.0, 2.0], [3.0]]),
    "jagged": (jagged, [[1.0], [2.0, 3.0]], [[1.0], [2.0, 4.0]]),
    "quantized": (quantized, [1.0, 2.0], [1.0, 3.0]),
    "coo": (lambda v: torch.tensor(v).to_sparse(), [[1.0, 0.0]], [[0.0, 1.0]]),
    "csr": (lambda v: torch.tensor(v).to_sparse_csr(), [[1.0, 0.0]], [[0.0, 1.0]]),
    "bsr": (lambda v: torch.tensor(v).to_sparse_bsr((1, 1)), [[1.0, 0.0]], [[2.0, 0.0]]),
    "mkldnn": (lambda v: torch.tensor(v).to_mkldnn(), [1.0, 2.0], [1.0, 3.0]),
    "float8": (lambda v: torch.tensor(v).to(torch.float8_e4m3fn), [1.0, 2.0], [1.0, 3.0]),
    "half complex": (lambda v: torch.tensor(v, dtype=torch.complex32), [1j, 2.0], [1j, 3.0]),
    "conjugate": (lambda v: torch.tensor(v, dtype=torch.complex64).conj(), [1j, 2.0], [1j, 3.0]),
}


# Of PyTorch: nested, sparse and quantized tensors are not finished
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", PAIRS)
def test_tensors_of_any_kind_are_digested_by_their_values(tmp_path, kind):
    make, one, other = PAIRS[kind]
    for samples in (None, 2):
        assert digest_of({"x": make(one)}, samples) == digest_of({"x": make(one)}, samples)
        assert digest_of({"x": make(one)}, samples) != digest_of({"x": make(other)}, samples)
    with Recorder(tmp_path) as recorder:
        recorder.step({"x": make(one)}, 1.0)
    assert lines(recorder, "note") == []


@pytest.mark.filterwarnings("ignore")
def test_the_scale_of_a_quantized_tensor_is_a_part_of_its_value():
    # Both hold the integer 2
    assert digest_of(quantized([1.0], 0.5)) != digest_of(quantized([0.5], 0.25))


@pytest.mark.filterwarnings("ignore")  # as above; PyTorch says it once in a process
@pytest.mark.parametrize("kind", ["float8", "half complex", "csr", "coo"])
def test_the_norm_of_gradients_of_any_kind(kind):
    make, values, _ = PAIRS[kind]
    expected = float(np.linalg.norm(np.array(values)))
    assert norm([make(values)]) == pytest.approx(expected, rel=1e-3)


def test_tensors_without_values_are_told_and_end_no_recording(tmp_path):
    lazy = torch.nn.LazyLinear(2)
    with Recorder(tmp_path, model=lazy, every=1) as recorder:
        recorder.step([torch.zeros(3, device="meta")], 1.0)
        lazy(torch.zeros(1, 3))
    (note,) = lines(recorder, "note")
    assert note["said"] == "batches hold values of type Tensor, of which only the type is digested"
    assert sorted(lines(recorder, "start")[0]["weights"]) == ["bias", "weight"]
    shapes = [digest_of(torch.zeros(n, device="meta")) for n in (3, 4)]
    assert shapes[0] != shapes[1]


class Shut(torch.Tensor):
    """A tensor of which nothing can be had."""

    @staticmethod
    def __new__(cls, shape=()):
        return torch.Tensor._make_wrapper_subclass(cls, shape)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        msg = f"no {function}"
        raise NotImplementedError(msg)


def fake():
    with FakeTensorMode():
        return torch.ones(4, 2)


@pytest.mark.parametrize(
    "value",
    [torch.nn.parameter.UninitializedParameter(), Shut(), Shut((4, 2)), fake()],
    ids=["lazy", "shut", "shut, with rows", "fake"],
)
def test_what_has_no_values_ends_no_training(tmp_path, value):
    with Recorder(tmp_path) as recorder:
        recorder.step({"x": torch.ones(4, 2), "other": value}, 1.0)
    (note,) = lines(recorder, "note")
    assert (
        note["said"]
        == f"batches hold values of type {type(value).__name__}, of which only the type is digested"
    )
    assert lines(recorder)[0]["samples"] == 4


POINTERS = {
    "structured": np.zeros(4, [("name", object), ("x", "f4")]),
    "texts": np.array(["a", "b", "c", "d"], np.dtypes.StringDType()),
    "record": np.zeros(4, [("name", object)])[0],
}


@pytest.mark.parametrize("kind", POINTERS)
def test_what_numpy_holds_as_pointers_is_told_by_its_type(tmp_path, kind):
    value = POINTERS[kind]
    with Recorder(tmp_path, config={"x": value}) as recorder:
        recorder.step({"x": torch.ones(4, 2), "other": value}, 1.0)
    (note,) = lines(recorder, "note")
    assert (
        note["said"]
        == f"batches hold values of type {type(value).__name__}, of which only the type is digested"
    )
    one, other = POINTERS["structured"].copy(), POINTERS["structured"].copy()
    one["name"], other["name"] = (
        [str(i) * 40 for i in range(4)],
        ["".join([str(i)] * 40) for i in range(4)],
    )
    assert digest_of(one) == digest_of(other)  # equal texts, which lie elsewhere
    assert digest_of(one[0]) == digest_of(other[0])
    assert resolve_config(one) == resolve_config(other)


def test_the_order_of_keys_depends_on_the_batch_alone():
    one, other = torch.zeros(2), torch.ones(2)
    assert digest_of({1: one, "1": other}) == digest_of({"1": other, 1: one})
    assert digest_of({1: one, "1": other}) != digest_of({1: other, "1": one})


# ----------------------------------------------------------------------------------------- samplers


def test_a_watched_sampler_is_pickled_and_copied_as_what_it_was():
    loader = DataLoader(TensorDataset(torch.arange(6)), 2, shuffle=True)
    watch = SamplerObserver(loader)
    restored = pickle.loads(pickle.dumps(loader.batch_sampler))  # noqa: S301  written here
    for twin in (restored, copy.deepcopy(loader.batch_sampler)):
        assert type(twin) is torch.utils.data.BatchSampler
        assert sorted(i for batch in twin for i in batch) == list(range(6))
    assert watch.take() is None  # a copy gives its indices to another loader
    first = next(iter(loader.batch_sampler))
    assert as_indices(watch.take()[1]).tolist() == first
    watch.close()
    assert type(loader.batch_sampler) is torch.utils.data.BatchSampler


def test_whoever_looks_on_sees_all_of_it_in_whatever_order_they_end():
    loader = DataLoader(TensorDataset(torch.arange(4)), 2)
    first, second = SamplerObserver(loader), SamplerObserver(loader)
    for some in loader.batch_sampler:
        assert first.take()[1].tolist() == second.take()[1].tolist() == some
    first.close()
    for some in loader.batch_sampler:
        assert (first.take(), second.take()[1].tolist()) == (None, some)
    third = SamplerObserver(loader)
    second.close()
    assert [third.take()[1].tolist() for _ in loader.batch_sampler] == [[0, 1], [2, 3]]
    third.close()
    assert type(loader.batch_sampler) is torch.utils.data.BatchSampler


def test_indices_that_nobody_takes_are_not_kept():
    watch = SamplerObserver(loader := DataLoader(TensorDataset(torch.arange(4)), 2))

    def kept():
        return [one for one in gc.get_objects() if type(one) is ObservedPass]

    before = len(kept())
    for _ in range(3):
        assert len(list(loader)) == 2
    assert len(kept()) == before + 1
    batches = iter(loader.batch_sampler)
    next(batches)
    (latest,) = (one for one in kept() if one.number == 3)
    watch.close()
    next(batches)  # the pass goes on behind the recording
    assert [some.tolist() for some in latest.waiting] == [[0, 1]]


def test_gradients_that_a_framework_had_read_are_not_written_twice(tmp_path):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(tmp_path, model=model, optimizer=optimizer, every=1) as recorder:
        for _ in range(2):
            model(torch.ones(2, 3)).sum().backward()
            recorder.gradients(optimizer)  # as Lightning does behind unscaling, with AMP
            optimizer.step()
            recorder.step(torch.ones(2, 3), 1.0)
    assert [line["lr"] for line in lines(recorder)] == [[0.1], [0.1]]
    assert [len(line["grads"].split()) for line in lines(recorder)] == [1, 1]
    assert [len(line["grad_norm"].split()) for line in lines(recorder)] == [1, 1]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_norm_of_large_tensors_is_the_same_on_any_number_of_threads(layout):
    generator, before = torch.Generator().manual_seed(3), torch.get_num_threads()
    large = torch.randn(300, 8, 9, 9, generator=generator).contiguous(memory_format=layout)
    few = [
        large,
        torch.randn(1 << 17, generator=generator),
        torch.randn(5, generator=generator).to(torch.bfloat16),
    ]
    expected = np.sqrt(sum(float((one.double() ** 2).sum()) for one in few))
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(norm(few))
    finally:
        torch.set_num_threads(before)
    assert found == [pytest.approx(expected, rel=1e-6)] * 3
    assert len(set(found)) == 1


class Operations(TorchDispatchMode):
    """Which operations PyTorch is asked for."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("large", "how"),
    [
        (torch.ones(256, 1024), "linalg_vector_norm"),
        (
            torch.ones(64, 64, 9, 9).contiguous(memory_format=torch.channels_last),
            "linalg_vector_norm",
        ),
        (torch.ones(256, 1024).t(), "_foreach_norm"),  # a row is spread over all of it
        (torch.ones(1, 1024).expand(256, 1024), "linalg_vector_norm"),
        (torch.ones(256, 1).expand(256, 1024), "linalg_vector_norm"),
    ],
    ids=["rows", "channels last", "turned", "one row", "one column"],
)
def test_the_norm_of_large_tensors_copies_none(large, how):
    with Operations() as asked:
        found = norm([large])
    assert found == pytest.approx(large.numel() ** 0.5)
    assert asked.names[0] == how
    assert not {"clone", "copy_", "_to_copy"} & set(asked.names)


class NoSubclasses:
    def __init_subclass__(cls):
        raise ValueError

    def __iter__(self):
        return iter([0, 1])


class Frozen:
    def __setattr__(self, name, value):
        raise AttributeError(name)

    def __iter__(self):
        return iter([0, 1])


def test_a_sampler_that_lets_nobody_look_on_ends_no_training(tmp_path):
    for name, sampler in (("subclasses", NoSubclasses()), ("frozen", Frozen())):
        loader = DataLoader(TensorDataset(torch.arange(2.0)), batch_size=None, sampler=sampler)
        with Recorder(tmp_path, name=name, loader=loader) as recorder:
            for (one,) in loader:
                recorder.step(one, 1.0)
        told = [
            json.loads(line)
            for line in (recorder.path / "trace-00000.jsonl").read_text().splitlines()
        ]
        assert [line["kind"] for line in told] == [
            "start",
            "loader",
            "step",
            "step",
            "epoch",
            "end",
        ]
        assert "cannot be watched" in told[1]["unseen"]
