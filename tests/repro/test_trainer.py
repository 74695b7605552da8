"""A Trainer of transformers that fails, tries again, copies its model, or goes on within an epoch."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import xxhash
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

from datacheck.repro import TrainerRecorder
from datacheck.repro.recorded import read_run

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers on itself


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The environment is captured by tests of its own."""
    monkeypatch.setattr("datacheck.repro.captures.capture", lambda data=(): {"data": {}})


class Config(PretrainedConfig):
    model_type = "line"


class Line(PreTrainedModel):
    """Learns a line; may fail at one call, and remembers what it was given in training."""

    config_class = Config

    def __init__(self, config, fails=None):
        super().__init__(config)
        self.layer = torch.nn.Linear(3, 1)
        self.fails, self.given = fails, []
        self.post_init()

    def forward(self, x=None, labels=None):
        self.given.append(x.clone())
        if len(self.given) - 1 == self.fails:
            msg = "CUDA out of memory."
            raise RuntimeError(msg)
        said = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(said, labels), "logits": said}


def rows(count=12):
    generator = torch.Generator().manual_seed(0)
    both = torch.rand(count, 3, generator=generator), torch.rand(count, 1, generator=generator)
    return [{"x": x, "labels": y} for x, y in zip(*both, strict=True)]


def trainer_of(folder, callback, kind=Trainer, model=None, **more):
    torch.manual_seed(0)
    quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no"}
    more = {"num_train_epochs": 2, "save_strategy": "no"} | more
    args = TrainingArguments(
        output_dir=str(folder / "out"), per_device_train_batch_size=4, **quiet, **more
    )
    return kind(
        model=model or Line(Config()), args=args, train_dataset=rows(), callbacks=[callback]
    )


def steps(path):
    return list(read_run(path).traces[0].of("step"))


# --------------------------------------------------------------------------- what fails, and copies


def test_a_batch_size_that_is_tried_again_is_a_run_of_its_own(tmp_path):
    model = Line(Config(), fails=2)
    trainer_of(
        tmp_path, TrainerRecorder(tmp_path, name="a"), model=model, auto_find_batch_size=True
    ).train()
    first, second = read_run(tmp_path / "a"), read_run(tmp_path / "a-2")
    assert (first.steps, first.ended) == ({0: 2}, {0: "Exception"})
    sizes = [len(x) for x in model.given[3:]]  # transformers takes a tenth off: 3 of 12 samples
    assert [line["samples"] for line in steps(second.path)] == sizes == [3] * 8
    assert all({"input", "indices", "loss"} <= set(line) for line in steps(second.path))
    assert second.ended == {0: "done"}


def test_a_training_that_is_begun_again_after_an_exception_writes_each_batch_once(tmp_path):
    trainer = trainer_of(
        tmp_path, TrainerRecorder(tmp_path, name="a"), model=Line(Config(), fails=4)
    )
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer.train()
    trainer.train()
    assert [line["step"] for line in steps(tmp_path / "a")] == [0, 1, 2, 3]
    assert [line["step"] for line in steps(tmp_path / "a-2")] == [0, 1, 2, 3, 4, 5]
    assert all("loss" in line for line in steps(tmp_path / "a-2"))
    assert not trainer.model._forward_hooks
    assert not trainer.model._forward_pre_hooks


class Copies(Trainer):
    """Calls a copy of the model before the model, as an average of weights (EMA) may be."""

    average = None

    def compute_loss(self, model, inputs, **_):
        self.average = self.average or copy.deepcopy(model)
        self.average(**inputs)
        return model(**inputs)["loss"]


class Replicas(Trainer):
    """Calls replicas, as nn.DataParallel does on two devices."""

    def compute_loss(self, model, inputs, **_):
        replicas = [model._replicate_for_data_parallel() for _ in range(2)]
        return sum(replica(**inputs)["loss"] for replica in replicas)


def test_a_copy_of_the_model_is_not_recorded(tmp_path):
    trainer_of(tmp_path, TrainerRecorder(tmp_path, name="plain")).train()
    trainer_of(tmp_path, TrainerRecorder(tmp_path, name="copies"), Copies).train()
    plain, copies = steps(tmp_path / "plain"), steps(tmp_path / "copies")
    assert [line["step"] for line in copies] == list(range(6))
    assert [line["input"] for line in copies] == [line["input"] for line in plain]


def test_replicas_of_the_model_write_no_lines_of_their_own_and_that_is_said(tmp_path):
    trainer_of(tmp_path, TrainerRecorder(tmp_path, name="a"), Replicas).train()
    found = steps(tmp_path / "a")
    assert [(line["step"], line["updates"], "input" in line, "loss" in line) for line in found] == [
        (i, 1, False, False) for i in range(6)
    ]
    (note,) = read_run(tmp_path / "a").notes[-1:]
    assert "nn.DataParallel calls copies of it" in note


# ----------------------------------------------------------------------- going on from a checkpoint


def digests(given):
    """The digests of the indices of batches that a model was given: of where their rows stand in the data."""
    known = torch.stack([row["x"] for row in rows()])
    found = [[int((known == x).all(1).nonzero()) for x in batch] for batch in given]
    return [xxhash.xxh3_64_hexdigest(np.array(some, "<i8").tobytes()) for some in found]


@pytest.mark.parametrize("each", [1, 2])
def test_a_training_that_goes_on_within_an_epoch_has_the_indices_of_its_batches(tmp_path, each):
    """An epoch has 3 batches; with two to an update the first update of an epoch has 2, the second 1."""
    more = {"gradient_accumulation_steps": each, "num_train_epochs": 3, "save_strategy": "steps"}
    whole = trainer_of(tmp_path, TrainerRecorder(tmp_path, name="whole"), **more, save_steps=1)
    whole.train()
    saved, first = (2, 2) if each == 1 else (3, 5)  # updates, batches
    later = trainer_of(tmp_path, TrainerRecorder(tmp_path, name="later"), **more, save_steps=100)
    later.train(resume_from_checkpoint=str(tmp_path / f"out/checkpoint-{saved}"))
    one, other = steps(tmp_path / "whole"), steps(tmp_path / "later")
    assert [line.get("indices") for line in one] == digests(whole.model.given)
    assert [(line["step"], line["epoch"]) for line in other] == [
        (i, i // 3) for i in range(first, 9)
    ]
    next_epoch = -(-first // 3) * 3
    seen = digests(later.model.given)
    assert [line.get("indices") for line in other] == [None] * (next_epoch - first) + seen[
        next_epoch - first :
    ]
    assert "goes on within an epoch" in read_run(tmp_path / "later").notes[-1]


def test_a_training_that_goes_on_at_an_epoch_has_all_of_its_indices(tmp_path):
    more = {"save_strategy": "epoch"}
    trainer_of(tmp_path, TrainerRecorder(tmp_path, name="whole"), **more).train()
    later = trainer_of(tmp_path, TrainerRecorder(tmp_path, name="later"), **more)
    later.train(resume_from_checkpoint=str(tmp_path / "out/checkpoint-3"))
    found = steps(tmp_path / "later")
    assert [(line["step"], line["epoch"]) for line in found] == [(3, 1), (4, 1), (5, 1)]
    assert [line["indices"] for line in found] == digests(later.model.given)
