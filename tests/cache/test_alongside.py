"""Calls side by side: in order, so many at a time, and none is begun that nobody wants."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from datacheck.cache.concurrent_map import concurrent_map


def test_results_come_in_order_and_so_many_run_at_a_time():
    meeting, lock, running, most = threading.Barrier(3), threading.Lock(), [0], [0]

    def work(item):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        meeting.wait(800)
        with lock:
            running[0] -= 1
        return -item

    assert list(concurrent_map(work, range(12), 3)) == [-i for i in range(12)]
    assert most == [3]
    assert list(concurrent_map(work, [], 3)) == []


def test_the_first_failure_is_raised_and_no_more_is_begun():
    begun = []

    def work(item):
        begun.append(item)
        if item == 1:
            raise ValueError(item)
        return item

    found = concurrent_map(work, range(1000), 1)
    assert next(found) == 0
    with pytest.raises(ValueError, match="1"):
        list(found)
    assert begun == [0, 1]


def test_nothing_is_begun_when_nobody_asks_for_more():
    begun, on = [], threading.Event()

    def work(item):
        begun.append(item)
        if item:
            on.wait(800)

    found = concurrent_map(work, range(1000), 1)
    next(found)
    found.close()
    on.set()
    for thread in threading.enumerate():
        if thread.name == "datacheck-request":
            thread.join(800)
    assert len(begun) <= 2


WAITS = """
import os, signal, threading
from datacheck.cache.concurrent_map import concurrent_map
def hang(event):
    os.kill(os.getpid(), signal.SIGINT)
    event.wait()
try:
    for _ in concurrent_map(hang, [threading.Event()], 1):
        pass
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_process_ends_while_a_call_hangs(repository):
    done = subprocess.run(
        [sys.executable, "-c", WAITS],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=800,
        check=True,
    )
    assert done.stdout == "interrupted\n"


def test_a_signal_that_does_not_wake_the_main_thread_interrupts():
    on = threading.Event()

    def hang(_):
        # This thread takes the signal, so that the wait of the main thread goes on.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        on.wait(800)

    with pytest.raises(KeyboardInterrupt):
        list(concurrent_map(hang, [0], 1))
    on.set()
