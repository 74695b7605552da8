"""What a scan's child runs in tests of death: some files kill it, hang it, or meet a fault of ours."""

import os
import signal
import time

from datacheck.scan import worker
from datacheck.workers.wire import answers, text


def misbehave(path):
    kind = path.partition("_")[0]
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "ended":  # by somebody else: no parser does that
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(60)
    if kind == "bug":
        raise RuntimeError(kind)


def measure_items(task, beat):
    for place, item in enumerate(task["items"]):
        beat(place)
        misbehave(item["path"])
    return worker.measure_items(task, beat)


def measure_parts(task, beat):
    for place, item in enumerate(task["items"]):
        beat(place)
        start = (item.get("part") or [0])[0]
        if start and item["path"].startswith("kill"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if start and item["path"].startswith("bug"):
            raise RuntimeError(item["path"])
    return worker.measure_items(task, beat)


@answers([text])
def on_a_weak_machine(task, beat):
    """Return the items; where the machine is weak, this process is ended first."""
    beat(0)
    if os.environ.get("WEAK"):
        os.kill(os.getpid(), signal.SIGKILL)
    return task["items"]
