"""The examples of docs/recording.md, with the real frameworks."""

from __future__ import annotations

import json
import re
import sys

import pytest
import torch
from torch.utils.data import DataLoader

from datacheck.repro.recorded import read_run
from datacheck.repro.run_diff import diff_runs
from tests.repro.lines import dataset
from tests.repro.ranks import run_ranks


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The environment is captured by tests of its own."""
    monkeypatch.setattr("datacheck.repro.captures.capture", lambda data=(): {"data": {}})


@pytest.fixture(scope="module")
def snippets(repository):
    text = (repository / "docs/recording.md").read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(found) == 4  # each is run below
    return found


@pytest.fixture(scope="module")
def fits():
    from tests.repro import fits  # which takes seconds

    return fits


def steps(run, rank=0):
    return list(run.traces[rank].of("step"))


def test_the_plain_loop_is_recorded_and_repeats_itself(snippets, tmp_path):
    space = {}
    exec(snippets[0], space)
    for name, rate in (("a", 0.1), ("same", 0.1), ("b", 0.2)):
        torch.manual_seed(0)
        space["train"](dataset(), torch.nn.Linear(3, 1), {"lr": rate}, str(tmp_path), name)
    run = read_run(tmp_path / "a")
    assert [line["epoch"] for line in steps(run)] == [0, 0, 0, 1, 1, 1]
    assert [line["samples"] for line in run.traces[0].of("epoch")] == [12, 12]
    assert not diff_runs(tmp_path / "a", tmp_path / "same")
    assert diff_runs(tmp_path / "a", tmp_path / "b").first.differences[0].name == "config.lr"


def test_ranks_are_recorded_into_one_folder(snippets, tmp_path, repository):
    script = (
        "import sys, torch\nimport datacheck.repro.captures\n"
        "datacheck.repro.captures.capture = lambda data=(): {}\n"
        f"{snippets[1]}\n"
        "torch.manual_seed(0)\n"
        "from torch.utils.data import TensorDataset\n"
        "train(TensorDataset(torch.rand(8, 3)), sys.argv[1])\n"
    )
    run = read_run(run_ranks(sys.executable, script, tmp_path, repository))
    assert (sorted(run.traces), run.missing) == ([0, 1], [])
    assert [len(steps(run, rank)) for rank in range(2)] == [2, 2]


@pytest.mark.filterwarnings("ignore")  # of Lightning on itself
def test_lightning_is_recorded(fits, snippets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {}
    exec(snippets[2], space)
    fits.fit(space["callbacks"][0])
    (path,) = (tmp_path / "runs").iterdir()
    run = read_run(path)
    assert [(line["step"], line["epoch"], line["updates"]) for line in steps(run)] == [
        (0, 0, 1),
        (1, 0, 1),
        (2, 0, 1),
        (3, 1, 1),
        (4, 1, 1),
        (5, 1, 1),
    ]
    assert all({"indices", "input", "loss", "grad_norm", "lr"} <= set(line) for line in steps(run))
    assert [line["samples"] for line in run.traces[0].of("epoch")] == [12, 12]
    assert run.config == {"rate": 0.1}
    evaluations = list(run.traces[0].of("eval"))
    assert [(sorted(line["values"]), line["seen"], line["of"]) for line in evaluations] == [
        (["val_loss"], 12, 12)
    ] * 2
    assert run.ended == {0: "done"}


@pytest.mark.filterwarnings("ignore")
def test_two_fits_of_lightning_are_compared(fits, tmp_path):
    for name, rate in (("a", 0.1), ("same", 0.1), ("b", 0.2)):
        fits.fit(fits.LightningRecorder(tmp_path, name=name, every=1, config={}), rate)
    assert not diff_runs(tmp_path / "a", tmp_path / "same")
    found = diff_runs(tmp_path / "a", tmp_path / "b")
    assert found.first.differences[0].name == "optimizer[0].lr"
    assert (found.column.name, found.column.step) == ("lr", 0)


@pytest.mark.filterwarnings("ignore")
def test_lightning_writes_the_gradients_of_the_update_and_counts_those_of_several_batches(
    fits, tmp_path
):
    seen = []

    class Sees(fits.L.Callback):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            seen.append(
                float(torch.nn.utils.get_total_norm([p.grad for p in module.parameters()])).hex()
            )

    class Both(fits.LightningRecorder):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            Sees().on_before_optimizer_step(trainer, module, optimizer)
            super().on_before_optimizer_step(trainer, module, optimizer)

    fits.fit(Both(tmp_path, name="a"), accumulate_grad_batches=3)
    run = read_run(tmp_path / "a")
    assert [line["updates"] for line in steps(run)] == [0, 0, 1] * 2
    assert [line["grad_norm"] for line in steps(run) if line["updates"]] == seen


def _loaders(count=1, **more):
    return [DataLoader(dataset(), 5, **more) for _ in range(count)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("judged", "more", "counts"),
    [
        (_loaders(), {"limit_val_batches": 1}, (5, 12)),
        (_loaders(), {"limit_val_batches": 1, "num_sanity_val_steps": 0}, (5, 12)),
        (_loaders(drop_last=True), {}, (10, 12)),
        (_loaders(sampler=[0, 0, 1, 1, 2, 2]), {}, (3, 12)),
        (_loaders(2), {"limit_val_batches": 2}, (20, 24)),
        (_loaders(2), {}, (24, 24)),
        ([DataLoader(dataset(), batch_sampler=[[0, 1], [2, 3]])], {}, (None, 12)),
    ],
)
def test_an_evaluation_of_lightning_counts_the_samples_that_it_saw(
    fits, tmp_path, judged, more, counts
):
    class Several(fits.Module):
        def validation_step(self, batch, index, dataloader_idx=0):
            super().validation_step(batch, index)

    callback = fits.LightningRecorder(tmp_path, name="a")
    torch.manual_seed(0)
    quiet = {
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = fits.L.Trainer(
        accelerator="cpu", max_epochs=2, callbacks=[callback], logger=False, **quiet, **more
    )
    trainer.fit(Several() if len(judged) > 1 else fits.Module(), DataLoader(dataset(), 4), judged)
    found = list(read_run(tmp_path / "a").traces[0].of("eval"))
    assert [(line["seen"], line["of"]) for line in found] == [counts] * 2
    assert [type(loader.batch_sampler).__iter__ for loader in judged if loader.batch_size] == [
        torch.utils.data.BatchSampler.__iter__ for loader in judged if loader.batch_size
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("same", [True, False], ids=["the same again", "new ones"])
def test_loaders_that_each_epoch_asks_for_anew_are_looked_at_and_let_go(fits, tmp_path, same):
    held, watched = (DataLoader(dataset(), 4), DataLoader(dataset(), 6)), []

    class Anew(fits.Module):
        def train_dataloader(self):
            return held[0] if same else DataLoader(dataset(), 4)

        def val_dataloader(self):
            return held[1] if same else DataLoader(dataset(), 6)

        def on_validation_epoch_end(self):
            watched.append(len(callback._judged))

    callback = fits.LightningRecorder(tmp_path, name="a")
    quiet = {
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = fits.L.Trainer(
        accelerator="cpu",
        max_epochs=4,
        callbacks=[callback],
        logger=False,
        reload_dataloaders_every_n_epochs=1,
        **quiet,
    )
    trainer.fit(Anew())
    run = read_run(tmp_path / "a")
    assert [line["samples"] for line in run.traces[0].of("epoch")] == [12] * 4
    assert len({line["indices"] for line in steps(run)}) == 3
    assert [(line["seen"], line["of"]) for line in run.traces[0].of("eval")] == [(12, 12)] * 4
    assert set(watched) == {1}
    assert [type(loader.batch_sampler) for loader in held] == [torch.utils.data.BatchSampler] * 2


@pytest.mark.filterwarnings("ignore")  # of transformers on itself
def test_the_trainer_of_transformers_is_recorded(fits, snippets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {}
    exec(snippets[3], space)
    fits.teach(space["callbacks"], tmp_path / "out")
    (path,) = (tmp_path / "runs").iterdir()
    run = read_run(path)
    assert [(line["step"], line["epoch"], line["updates"]) for line in steps(run)] == [
        (0, 0, 1),
        (1, 0, 1),
        (2, 0, 1),
        (3, 1, 1),
        (4, 1, 1),
        (5, 1, 1),
    ]
    assert all({"indices", "input", "loss", "grad_norm", "lr"} <= set(line) for line in steps(run))
    assert [line["samples"] for line in run.traces[0].of("epoch")] == [12, 12]
    assert run.config["arguments"]["learning_rate"] == 0.1
    assert run.config["model"]["model_type"] == "line"
    assert [sorted(line["values"]) for line in run.traces[0].of("eval")] == [["eval_loss"]] * 2
    assert run.ended == {0: "done"}
    json.dumps(run.config, allow_nan=False)


@pytest.mark.filterwarnings("ignore")
def test_two_trainings_of_transformers_are_compared(fits, tmp_path):
    for name, rate in (("a", 0.1), ("same", 0.1), ("b", 0.2)):
        fits.teach(
            [fits.TrainerRecorder(tmp_path, name=name, every=1)], tmp_path / f"out-{name}", rate
        )
    assert not diff_runs(tmp_path / "a", tmp_path / "same")
    found = diff_runs(tmp_path / "a", tmp_path / "b")
    assert found.first.differences[0].name == "config.arguments.learning_rate"


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_transformers_accumulates(fits, tmp_path):
    fits.teach(
        [fits.TrainerRecorder(tmp_path, name="a")], tmp_path / "out", gradient_accumulation_steps=3
    )
    assert [line["updates"] for line in steps(read_run(tmp_path / "a"))] == [0, 0, 1] * 2


@pytest.mark.filterwarnings("ignore")
def test_each_set_of_the_trainer_of_transformers_is_an_evaluation_with_its_samples(fits, tmp_path):
    more = {"per_device_eval_batch_size": 5, "dataloader_drop_last": True}
    fits.teach(
        [fits.TrainerRecorder(tmp_path, name="a")],
        tmp_path / "out",
        judged={"near": 12, "far": 7},
        **more,
    )
    found = list(read_run(tmp_path / "a").traces[0].of("eval"))
    said = [(line["name"], sorted(line["values"]), line["seen"], line["of"]) for line in found]
    assert (
        said
        == [("eval_near", ["eval_near_loss"], 10, 12), ("eval_far", ["eval_far_loss"], 5, 7)] * 2
    )


@pytest.mark.filterwarnings("ignore")
def test_a_whole_evaluation_of_the_trainer_of_transformers_is_told_as_one(fits, tmp_path):
    fits.teach(
        [fits.TrainerRecorder(tmp_path, name="a")], tmp_path / "out", per_device_eval_batch_size=5
    )
    found = list(read_run(tmp_path / "a").traces[0].of("eval"))
    assert [(line["name"], line["seen"], line["of"]) for line in found] == [("eval", 12, 12)] * 2
