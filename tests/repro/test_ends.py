"""How recordings begin and end: what fails, is interrupted or forks leaves the files as they should be."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from contextlib import suppress

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

from datacheck.errors import UsageError
from datacheck.repro import Recorder, record
from datacheck.repro.recorded import read_run


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The environment is captured by tests of its own."""
    monkeypatch.setattr("datacheck.repro.captures.capture", lambda data=(): {})


def kinds(path):
    return [
        json.loads(line)["kind"] for line in (path / "trace-00000.jsonl").read_text().splitlines()
    ]


class Late:
    """A loader that cannot be looked at."""

    @property
    def batch_sampler(self):
        raise KeyboardInterrupt


def test_a_recording_that_cannot_begin_leaves_nothing_open_and_its_name_free(tmp_path):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    before = os.listdir("/proc/self/fd")
    with (
        pytest.raises(KeyboardInterrupt),
        Recorder(tmp_path, name="x", optimizer=optimizer, loader=Late()),
    ):
        pass
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    with Recorder(tmp_path, name="x", optimizer=optimizer) as recorder:
        recorder.step(torch.zeros(2), 1.0)
    assert kinds(tmp_path / "x") == ["start", "step", "epoch", "end"]


def test_a_fork_has_no_part_in_the_recording(tmp_path):
    loader = DataLoader(TensorDataset(torch.arange(8.0)), 2)
    with Recorder(tmp_path, name="x", loader=loader) as recorder:
        for (batch,) in loader:
            recorder.step(batch, 1.0)
            if (child := os.fork()) == 0:
                try:
                    recorder.step(batch, 2.0)
                    recorder.evaluation("val", {"loss": 2.0})
                    recorder.__exit__(SystemExit, None, None)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
    assert kinds(tmp_path / "x") == ["start", "loader", *["step"] * 4, "epoch", "end"]
    assert read_run(tmp_path / "x").ended == {0: "done"}


def test_an_interrupt_while_the_end_is_looked_at_loses_no_line(tmp_path, monkeypatch):
    def interrupted(said, *, ended=False):
        if ended:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("datacheck.repro.captures.extend_capture", interrupted)
    before = os.listdir("/proc/self/fd")
    recorder = Recorder(tmp_path, name="x").__enter__()
    recorder.step(torch.zeros(2), 1.0)
    with pytest.raises(KeyboardInterrupt):
        recorder.__exit__(KeyboardInterrupt, None, None)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert kinds(tmp_path / "x") == ["start", "step", "epoch", "end"]
    assert read_run(tmp_path / "x").ended == {0: "KeyboardInterrupt"}


def test_a_disk_that_says_late_what_it_did_not_take_ends_no_training(tmp_path, monkeypatch):
    close = os.close

    def late(descriptor):
        close(descriptor)
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    recorder = Recorder(tmp_path, name="x").__enter__()
    recorder.step(torch.zeros(2), 1.0)
    monkeypatch.setattr(os, "close", late)
    with pytest.warns(UserWarning, match="quota exceeded; nothing is recorded from step 1 on"):
        recorder.__exit__(None, None, None)
    monkeypatch.undo()
    assert recorder._file is None


class Interrupts:
    """Interrupts the code of a file at its n-th line that runs, and says in which function that was."""

    def __init__(self, file, at):
        self.file, self.left, self.function = file, at, None

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename != self.file:
            return None
        self.left -= event == "line"
        if event == "line" and not self.left:
            self.function = frame.f_code.co_name
            sys.settrace(None)
            raise KeyboardInterrupt
        return self


def training(recorder, model, optimizer, loader):
    with recorder:
        for (batch,) in loader:
            model(batch[:, None]).sum().backward()
            optimizer.step()
            recorder.step(batch, 1.0)


def interrupted(folder, at):
    """Interrupt a recorded training; return in which function, and what of the recording was left behind."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    loader = DataLoader(TensorDataset(torch.arange(4.0)), 2)
    recorder = Recorder(
        folder.parent, name=folder.name, model=model, optimizer=optimizer, loader=loader
    )
    before, interrupts, old = (
        os.listdir("/proc/self/fd"),
        Interrupts(record.__file__, at),
        sys.gettrace(),
    )
    sys.settrace(interrupts)
    try:
        with suppress(KeyboardInterrupt):
            training(recorder, model, optimizer, loader)
    finally:
        sys.settrace(old)
    left = {
        "files": len(os.listdir("/proc/self/fd")) - len(before),
        "hooks": len(optimizer._optimizer_step_pre_hooks)
        + len(optimizer._optimizer_step_post_hooks),
        "looks": type(loader.batch_sampler) is not BatchSampler,
    }
    return interrupts.function, left


def test_an_interrupt_at_any_line_leaves_nothing_open_and_a_run_that_can_be_read(tmp_path):
    functions = set()
    for at in range(1, 10_000):
        path = tmp_path / str(at)
        function, left = interrupted(path, at)
        functions.add(function)
        if function not in {"__exit__", "_detach", "_close"}:  # an end that is interrupted is none
            assert left == {"files": 0, "hooks": 0, "looks": 0}, (function, at)
        if function is None:
            break
        trace = path / "trace-00000.jsonl"
        if trace.exists() and trace.stat().st_size:
            run = read_run(path)
            assert [line["step"] for line in run.traces[0].of("step")] == list(
                range(run.steps[0])
            ), (function, at)
    assert functions >= {
        "__enter__",
        "_begin",
        "step",
        "input",
        "gradients",
        "_after",
        "_write",
        "__exit__",
        None,
    }


def test_a_recorder_records_one_run(tmp_path):
    first = Recorder(tmp_path, name="x")
    with first:
        first.step(torch.zeros(2), 1.0)
        with pytest.raises(UsageError, match="records one run"):
            first.__enter__()
        first.step(torch.zeros(2), 2.0)
    assert kinds(tmp_path / "x") == ["start", "step", "step", "epoch", "end"]
    with pytest.raises(UsageError, match="records one run"), first:
        pass
    late = Recorder(tmp_path, name="y", loader=Late())
    with pytest.raises(KeyboardInterrupt), late:
        pass
    with pytest.raises(KeyboardInterrupt), late:  # it has not begun
        pass


def test_steps_that_nobody_records_are_an_error(tmp_path):
    recorder = Recorder(tmp_path, name="x")
    with pytest.raises(UsageError, match="nothing is recorded yet"):
        recorder.step(torch.zeros(2), 1.0)
    with recorder:
        recorder.step(torch.zeros(2), 1.0)
    recorder.step(torch.zeros(2), 1.0)  # what comes behind is let be
    assert kinds(tmp_path / "x") == ["start", "step", "epoch", "end"]


@pytest.mark.parametrize("seen", [True, 3.0, -1])
def test_what_counts_no_samples_is_told(tmp_path, seen):
    with (
        Recorder(tmp_path, name="x") as recorder,
        pytest.raises(UsageError, match=f"seen={seen!r}"),
    ):
        recorder.evaluation("val", {"loss": 1.0}, seen=seen, of=3)


def test_a_number_beyond_those_of_a_float_is_told(tmp_path):
    with Recorder(tmp_path, name="x") as recorder, pytest.raises(UsageError, match="loss is a int"):
        recorder.step(torch.zeros(2), 10**400)
