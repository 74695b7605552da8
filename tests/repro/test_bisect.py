"""A small real training on the CPU, with one switch turned at a time."""

import json
import os
import sys

import pytest
import torch

from datacheck.cli.main import run
from datacheck.errors import UsageError
from datacheck.repro.bisect import Bisection, Effect, Switch, TrainingCommand, bisect
from datacheck.repro.switches import TORCH_SWITCHES, with_workers

SCRIPT = """
import os, sys
import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)
said = dict(word.split("=") for word in sys.argv[1:])

class Data(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, i):
        x = torch.full((4,), i / 24)
        return x + torch.rand(4) if said.get("noise") == "yes" else x

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=float(said.get("lr", 0.01)))
wide = torch.randn(1_000_000)
for i, x in enumerate(DataLoader(Data(), 4)):
    loss = model(x).square().mean()
    if said.get("wide") == "yes":
        loss = loss * (wide * loss).sum()
    if os.environ.get("CHANCE") == "1" and i >= 3:
        loss = loss * (1 + int.from_bytes(os.urandom(4), "little") / 2**32)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
open("finished", "w").close()
"""


@pytest.fixture
def call(tmp_path, repository, forked_python, monkeypatch, capsys):
    """Run `datacheck repro bisect` on the script; returns (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(repository))
    monkeypatch.setattr(sys, "executable", forked_python)

    def call(*words, script=SCRIPT):
        (tmp_path / "train.py").write_text(script)
        code = run(["repro", "bisect", *words])
        return code, *capsys.readouterr()

    return call


def rows(out):
    return {row["name"]: row for row in json.loads(out)["switches"]}


def test_nothing_parts_and_what_cannot_be_turned_is_said(call, tmp_path):
    code, out, _ = call(
        "--steps", "3", "--format", "json", "--switch", "UNUSED=1:2", "--", "train.py"
    )
    found = rows(out)
    assert code == 0
    assert found["UNUSED"]["state"] == "same"
    assert found["UNUSED"]["compared"] == 3
    assert {
        found[name]["state"] for name in ("threads", "workers", "deterministic", "attention")
    } == {"same"}
    if not torch.cuda.is_available():
        assert {found[name]["state"] for name in ("cudnn.benchmark", "cudnn.allow_tf32")} == {
            "not tried"
        }
        assert "no GPU" in found["cudnn.benchmark"]["said"]
    assert not (tmp_path / "finished").exists()


def test_threads_part_a_sum_over_many_numbers_and_a_rate_parts_sooner(call):
    code, out, err = call(
        "--steps",
        "5",
        "--only",
        "threads",
        "--only",
        "lr",
        "--switch",
        "lr=0.01:0.02",
        "--",
        "train.py",
        "wide=yes",
        "lr=0.01",
    )
    assert code == 1, err
    lines = out.splitlines()
    assert lines[0] == "lr parts first: 0.01 -> 0.02, at step 0"
    assert [line.split()[0] for line in lines if "step " in line and " -> " in line][1:] == [
        "lr",
        "threads",
    ]
    threads = next(line for line in lines if line.startswith("threads"))
    assert threads.split()[1:4] == ["1", "->", "2"]
    assert threads.endswith(", loss")
    assert "the forward pass gives another result" in out
    assert "step 0, lr" in out


def test_workers_part_a_global_random_transform(call):
    code, out, err = call(
        "--steps", "3", "--only", "workers", "--format", "json", "--", "train.py", "noise=yes"
    )
    assert code == 1, err
    (row,) = json.loads(out)["switches"]
    assert (row["state"], row["step"], row["column"], row["old"], row["new"]) == (
        "parts",
        0,
        "input",
        [0],
        2,
    )


def test_a_training_that_is_not_deterministic_and_what_makes_it_steady(call, monkeypatch):
    monkeypatch.setenv("CHANCE", "1")
    words = (
        "--steps",
        "5",
        "--only",
        "CHANCE",
        "--only",
        "threads",
        "--switch",
        "CHANCE=1:0",
        "--",
        "train.py",
    )
    code, out, err = call(*words)
    assert code == 1, err
    assert (
        out.splitlines()[0]
        == "not deterministic by itself: two runs part at step 3; they do not with CHANCE"
    )
    ranked = [line.split() for line in out.splitlines() if line.startswith(("CHANCE", "threads"))]
    assert [(words[0], words[-1]) for words in ranked] == [
        ("CHANCE", "steady"),
        ("threads", "noise"),
    ]
    assert "it differs from itself at step 3, loss" in out


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        ("print(1)", [], "took no step of an optimizer"),
        ("raise ValueError('away')", [], "ValueError: away"),
        (SCRIPT, ["lr=0.5"], "the command says 0.5, and not 0.01"),
    ],
)
def test_what_cannot_be_run(call, script, words, said):
    code, out, err = call("--switch", "lr=0.01:0.02", "--", "train.py", *words, script=script)
    assert code == 2
    assert said in err
    assert not out


def test_a_trial_that_fails_is_no_success(call):
    code, out, _ = call(
        "--steps", "2", "--only", "lr", "--switch", "lr=0.01:much", "--", "train.py"
    )
    assert code == 2
    assert "could not convert string to float: 'much'" in out


def test_a_switch_that_the_script_sets_itself_is_turned_nevertheless(call):
    script = SCRIPT.replace("torch.set_num_threads(1)", "torch.use_deterministic_algorithms(True)")
    _, out, err = call(
        "--steps",
        "1",
        "--only",
        "deterministic",
        "--format",
        "json",
        "--",
        "train.py",
        script=script,
    )
    assert err.count("...") == 3
    (row,) = json.loads(out)["switches"]
    assert (row["old"], row["new"], row["state"]) == (True, False, "same")


@pytest.mark.parametrize("text", ["lr", "lr=1", "=1:2", "--=1:2", "lr=1:1"])
def test_switches_that_say_nothing(text):
    with pytest.raises(UsageError, match="name=OLD:NEW is wanted"):
        Switch.parse(text)


def test_old_ends_at_the_first_colon():
    switch = Switch.parse("CUBLAS_WORKSPACE_CONFIG=::4096:8")
    assert (switch.old, switch.new, switch.variable) == ("", ":4096:8", True)
    assert not Switch.parse("data.use_cached=true:false").variable


def test_names_are_checked_before_anything_runs(tmp_path):
    training = TrainingCommand(
        ["none"], ["train.py"], {}, 1, 0, tmp_path, [Switch("threads", "1", "2")]
    )
    with pytest.raises(UsageError, match="two of that name"):
        bisect(training)
    with pytest.raises(UsageError, match="no such switch"):
        bisect(training, only=["colour"])


def test_no_workers_take_no_options_of_workers():
    options = {
        "num_workers": 4,
        "persistent_workers": True,
        "prefetch_factor": 2,
        "timeout": 5,
        "batch_size": 3,
    }
    with_workers(options, 0)
    assert options == {"num_workers": 0, "batch_size": 3}


def test_each_switch_is_turned_and_turned_back():
    for name in ("deterministic", "attention", "threads"):
        flip = TORCH_SWITCHES[name]
        before = flip.read(torch)
        try:
            flip.write(torch, flip.turn(before))
            assert flip.read(torch) == flip.turn(before) != before
        finally:
            flip.write(torch, before)


def test_exit_codes():
    def code(*states):
        return Bisection((1, 1), 2, None, [Effect("a", 1, 2, state) for state in states]).code

    assert [code(), code("same", "not tried"), code("same", "failed"), code("failed", "parts")] == [
        0,
        0,
        2,
        1,
    ]


TWO = """
import os, sys
import torch

torch.manual_seed(0)
first, second = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
torch.nn.init.constant_(second.weight, float(sys.argv[1]))
x = torch.ones(2, 4)
for model in (first, second):
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    for model in (first, second):
        model.optimizer.zero_grad()
        model(x).square().mean().backward()
        model.optimizer.step()
"""


def test_the_weights_of_each_optimizer_are_digested_before_the_first_step(
    tmp_path, repository, forked_python
):
    (tmp_path / "train.py").write_text(TWO)
    starts = []
    # The forked interpreter, which all tests here use, gives what the real one does
    for python, value in ((sys.executable, "0.5"), (forked_python, "0.5"), (forked_python, "0.25")):
        training = TrainingCommand(
            [python],
            [str(tmp_path / "train.py"), value],
            os.environ | {"PYTHONPATH": str(repository)},
            2,
            0,
            tmp_path,
        )
        starts.append(training.run(str(len(starts))).start)
    assert starts[0] == starts[1]
    assert starts[1]["weights"] != starts[2]["weights"]
