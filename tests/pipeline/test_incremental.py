"""One of 1,000 files changes, then a threshold: what is opened and written, whole commands, counted by the kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_only_what_changed_is_opened_and_only_its_shard_is_written(repository, tmp_path):
    script = repository / "scripts/bench/incremental.py"
    command = [
        sys.executable,
        str(script),
        "--scale",
        "0.01",
        "--rounds",
        "1",
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode in {0, 1}, done.stderr  # 1: too slow, which is not asked here
    counts = {line[:24].strip(): line.split()[-4:] for line in done.stdout.splitlines()[2:5]}
    shards = int(counts["full build"][1])
    assert shards >= 200
    assert (counts["full build"][0], counts["full build"][3]) == ("0", "1,000")
    changed, judged = counts["one file changed, median"], counts["new threshold, median"]
    assert (changed[0], changed[1], changed[3]) == (str(shards - 1), "1", "1")
    assert (judged[0], judged[1], judged[3]) == (str(shards), "0", "0")
