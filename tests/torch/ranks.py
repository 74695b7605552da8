"""Real processes over gloo: what a function of a test module says on every rank, or its error, under a time limit."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from datacheck.plugins import resolve

LIMIT_S = 800


def on_ranks(python, world_size, calls, folder):
    """Return what each call says on each rank, a process of `python`: a list (calls) of lists (ranks).

    A call is ("module:function", *JSON values), made as function(rank, world_size, *values); an
    exception becomes {"error", "message"}. Processes that do not come to their end in time fail the
    test, and are ended.
    """
    command = [python, "-m", "tests.torch.ranks", json.dumps(calls), str(world_size), str(folder)]
    processes = [
        subprocess.Popen(
            [*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(world_size)
    ]
    try:
        said = [process.communicate(timeout=LIMIT_S) for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        pytest.fail("\n".join(process.communicate()[1] for process in processes))
    for process, (_, errors) in zip(processes, said, strict=True):
        assert process.returncode == 0, errors
    return list(zip(*(json.loads(out.splitlines()[-1]) for out, _ in said), strict=True))


def main(calls, world_size, folder, rank):
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    store = distributed.FileStore(str(Path(folder) / "store"), int(world_size))
    distributed.init_process_group(
        "gloo",
        store=store,
        rank=int(rank),
        world_size=int(world_size),
        timeout=timedelta(seconds=LIMIT_S),
    )
    said = []
    for name, *args in json.loads(calls):
        sys.stderr.write(f"{name}\n")
        try:
            said.append(resolve(name)(int(rank), int(world_size), *args))
        except Exception as error:  # noqa: BLE001  the test looks at it
            said.append({"error": type(error).__name__, "message": str(error)})
    distributed.barrier()
    sys.stdout.write(json.dumps(said) + "\n")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
