"""Two ranks of one training: processes of their own that find each other."""

from __future__ import annotations

import os
import subprocess
import time

from tests.ports import free_port

LIMIT_S = 800


def run_ranks(python, script, folder, repository):
    """Run a script, given as text, as two ranks that record into a folder; return the run in it."""
    env = os.environ | {
        "PYTHONPATH": str(repository),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    # By loopback: the name of a machine may lead to an address that answers late or never.
    env |= {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [python, "-c", script, str(folder)]
    processes = [subprocess.Popen(command, env=env | {"RANK": str(rank)}) for rank in range(2)]
    end = time.monotonic() + LIMIT_S
    try:
        # A rank whose partner has failed waits for half an hour.
        while (codes := [process.poll() for process in processes]) != [0, 0]:
            assert not any(codes), codes
            assert time.monotonic() < end, codes
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()
    (path,) = folder.iterdir()
    return path
