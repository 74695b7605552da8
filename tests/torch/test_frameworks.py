"""The examples of docs/frameworks.md with the real frameworks: each sample once on all ranks, resumed where it was."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from datacheck.sample import ArraySpec
from tests.cache.make import make_cache

COUNT = 16


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    samples = [{"label": np.int64(i)} for i in range(COUNT)]
    return make_cache(tmp_path_factory.mktemp("frameworks"), {"label": ArraySpec("int64")}, samples, k=4)


@pytest.fixture
def run(repository, tmp_path, cache):
    """Run a script beside this file with the examples as modules; return what it printed."""
    text = (repository / "docs/frameworks.md").read_text(encoding="utf-8")
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)):
        (tmp_path / f"snippet_{number}.py").write_text(code)

    def run(script, what, *more):
        script = repository / "tests/torch" / script
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(repository), str(tmp_path)])}
        done = subprocess.run(
            [sys.executable, str(script), what, str(cache), str(tmp_path), *more],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def served(folder, rank=0):
    return json.loads((folder / f"{folder.name}-{rank}.json").read_text())


# ------------------------------------------------------------------------------------------ Lightning


@pytest.mark.slow
def test_lightning_serves_each_sample_once_on_two_ranks_and_never_shards_twice(run, tmp_path):
    said = run("run_lightning.py", "ranks")
    assert said.count("Where Lightning put it here: Trainer(use_distributed_sampler=False)") == 2  # on both ranks
    for kind in ("cached", "workers", "indexed"):
        ranks = [served(tmp_path / kind, rank) for rank in range(2)]
        assert ranks[0] != ranks[1]
        for epoch in range(2):
            rows = [i for rank in ranks for at, _, labels in rank if at == epoch for i in labels]
            assert sorted(rows) == list(range(COUNT)), (kind, epoch)
        assert len({json.dumps([labels for at, _, labels in ranks[0] if at == epoch]) for epoch in range(2)}) == 2
    assert served(tmp_path / "cached") == served(tmp_path / "workers") == served(tmp_path / "indexed")


@pytest.mark.slow
def test_lightning_goes_on_at_the_step_of_a_checkpoint(run, tmp_path):
    run("run_lightning.py", "resume", "3", "8", "11")
    for kind in ("cached", "workers"):
        whole, last = served(tmp_path / kind), served(tmp_path / kind / "ended")
        assert [[epoch, step] for epoch, step, _ in whole] == [[e, s] for e in range(3) for s in range(8)]
        assert sorted(i for _, _, labels in last for i in labels) == list(range(COUNT))
        assert {epoch for epoch, _, _ in last} == {3}
        for step in (3, 8, 11):  # within an epoch, between two, within a later one
            assert served(tmp_path / kind / str(step)) == whole[step:] + last, (kind, step)
    assert served(tmp_path / "cached") == served(tmp_path / "workers")
