"""Tasks for the children of the tests: a child imports this module, without pytest and Hypothesis."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from datacheck.errors import FormatError, MissingDependencyError, UsageError
from datacheck.workers.wire import answers, int64, text


@answers({"done": list, "pid": int}, raises=(FormatError,), of_items=True)
def work(task, beat):
    """What a child is asked to do in these tests; an item says how it misbehaves."""
    done = []
    for place, item in enumerate(task["items"]):
        beat(place)
        _misbehave(item)
        _killed(item)
        if item == "slow":
            time.sleep(0.05)
        if item == "long":
            for _ in range(8):
                time.sleep(0.2)
                beat(place)
        done.append(item)
    return {"done": done, "pid": os.getpid()}


@answers({"done": list, "pid": int}, raises=(UsageError,), of_items=True)
def refusing(task, beat):
    """Do a task that does not say that it is none."""
    if "function" in task:
        msg = "not this one"
        raise UsageError(msg)
    return work(task, beat)


def _misbehave(item):
    if item == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if item == "hang":
        time.sleep(3600)
    if item == "memory":
        bytearray(16 << 30)
    if item == "noise":
        os.write(1, b"a library prints here")
    if item in {"exit", "no sandbox"}:
        os._exit(3 if item == "exit" else 78)
    if item == "bug":
        raise RuntimeError(item)
    if item == "refuse":
        raise FormatError("no such thing")


def _killed(item):
    """Send this process what others would."""
    if item == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    name, _, times = item.partition(":")
    if name == "kill" and killed_before(times) < int(times):
        os.kill(os.getpid(), signal.SIGKILL)


def killed_before(item):
    """Count in a file, which outlives the process."""
    with open(os.environ["KILLED"] + item, "ab+") as file:
        file.write(b"x")
        return file.tell() - 1


@answers({"items": [int64], "name": text})
def answered(task, beat):
    """What a child would be asked that has been taken over: the stub answers in its place."""


def multiply(task, beat):
    """Let BLAS multiply what is worth a second thread; return how many threads there are then."""
    beat(0)
    np.ones((700, 700)) @ np.ones((700, 700))
    return len(os.listdir("/proc/self/task"))


@answers({}, raises=(UsageError, MissingDependencyError))
def asked(task, beat):
    """Refuse a task, or fall to its item and raise what that says."""
    if task["refuse"]:
        raise UsageError("of the task")
    for item in task["items"]:
        raise {"usage": UsageError, "library": MissingDependencyError}[item["kind"]](item["text"])
    return {}


@answers({})
def taking(task, beat):
    beat(0)
    beat.files(0)
    bytearray(4 << 30)
    return {}
