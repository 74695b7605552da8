"""A Dask cluster of real processes over TCP, which a test may kill, stop or let see other things."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from datacheck.workers.wire import answers


def worker_pid() -> int:
    """Return the number of the worker whose child this process is: started by it, or forked of its server."""
    parent = Path(f"/proc/{os.getppid()}")
    forked = b"datacheck.workers.fork_server" in (parent / "cmdline").read_bytes()
    return (
        int((parent / "stat").read_text().rpartition(")")[2].split()[1]) if forked else os.getppid()
    )


@answers({"done": list, "pid": int}, of_items=True)
def done(task, beat):
    """Answer at once."""
    beat(0)
    return {"done": task["items"], "pid": os.getpid()}


def gated(task, beat):
    """Say where the item is made; all but the first wait while there is a file `shut`."""
    beat(0)
    while task["item"] and os.path.exists(task["shut"]):
        time.sleep(0.01)
    return [task["item"], worker_pid()]


class Cluster:
    """A scheduler and workers; all of them end with `cluster`, where the arguments are described."""

    def __init__(
        self, folder: Path, scheduler: str = "", worker: str = "", **environment: str
    ) -> None:
        self.folder, self.environment = folder, environment
        self._python = {
            "scheduler": scheduler or sys.executable,
            "worker": worker or sys.executable,
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        self._file.unlink(missing_ok=True)
        # Its own choice of a port: another process may take one that is free now.
        options = ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self._file)]
        self.scheduler = self._start("scheduler", *options)
        self.address = self._address()

    def worker(self, *, before: Sequence[str] = (), **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker of one thread, without a nanny that would start it again."""
        options = [
            "--host",
            "127.0.0.1",
            "--nthreads",
            "1",
            "--no-nanny",
            "--local-directory",
            str(self.folder),
        ]
        self.workers.append(
            self._start("worker", self.address, *options, before=before, environment=environment)
        )
        return self.workers[-1]

    def wait(self) -> None:
        """Return when all workers have come to the scheduler."""
        import distributed

        with distributed.Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers), timeout=800)

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def _start(
        self, *words: str, before: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(p for p in sys.path if p)
        variables = os.environ | {"PYTHONPATH": path} | self.environment | (environment or {})
        command = [*before, self._python[words[0]], "-m", "dask", *words, "--no-dashboard"]
        return subprocess.Popen(command, cwd=self.folder, stdout=-3, stderr=-3, env=variables)

    @property
    def _file(self) -> Path:
        return self.folder / "scheduler.json"

    def _address(self) -> str:
        """Return the address of the scheduler when it has written it."""
        end = time.monotonic() + 800
        while time.monotonic() < end and self.scheduler.poll() is None:
            with contextlib.suppress(FileNotFoundError, ValueError):  # half written
                return str(json.loads(self._file.read_bytes())["address"])
            time.sleep(0.05)
        raise RuntimeError("the scheduler did not start")


@contextlib.contextmanager
def cluster(
    folder: Path, workers: int = 2, *, scheduler: str = "", worker: str = "", **environment: str
) -> Iterator[Cluster]:
    """A scheduler and so many workers, in `folder`.

    Args:
        folder: the working folder of all processes.
        workers: how many.
        scheduler, worker: the Python of each. A forked one has read the variables of Dask already,
            and its pid is not the process's.
        environment: variables of all processes.
    """
    running = Cluster(folder, scheduler, worker, **environment)
    try:
        for _ in range(workers):
            running.worker()
        if workers:
            running.wait()
        yield running
    finally:
        running.end()
