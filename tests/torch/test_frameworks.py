"""The examples of docs/frameworks.md with the real frameworks: each sample once on all ranks, resumed where it was."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess

import numpy as np
import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset, Sampler
from tests import forked
from tests.cache.make import make_cache
from tests.conftest import shared_folder
from tests.ports import free_port

COUNT = 16
LIMIT_S = 800  # two processes of Lightning take 10 s on a machine of their own


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    samples = [{"label": np.int64(i), "weight": np.float32(i)} for i in range(COUNT)]
    specs = {"label": ArraySpec("int64"), "weight": ArraySpec("float32")}
    return make_cache(tmp_path_factory.mktemp("frameworks"), specs, samples, k=4)


@pytest.fixture(scope="module")
def snippets(repository):
    text = (repository / "docs/frameworks.md").read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(found) == 7  # each is run below
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory, repository, forked_python):
    """A Python that has imported the frameworks, which takes ten seconds."""
    modules = ("lightning", "accelerate", "transformers.trainer")
    executable, held = forked.python(
        shared_folder(tmp_path_factory), repository, modules, forked_python
    )
    with held:
        yield str(executable)


@pytest.fixture
def run(repository, snippets, tmp_path, cache, python):
    """Run a script beside this file, with the examples as modules, as one process or as ranks; return what it said."""
    for number, code in enumerate(snippets):
        (tmp_path / f"snippet_{number}.py").write_text(code)

    def run(script, *more, ranks=None):
        path = os.pathsep.join([str(repository), str(tmp_path)])
        command = [python, str(repository / "tests/torch" / script)]
        command += [more[0] if more else "", str(cache), str(tmp_path), *more[1:]]
        places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks or 0)]
        meet = {
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        meet |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
        common = os.environ | {"PYTHONPATH": path, "STARTS_RANKS": python}
        envs = [common | meet | place for place in places]
        processes = [
            subprocess.Popen(
                command,
                cwd=tmp_path,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for env in envs or [common]
        ]
        try:
            said = [process.communicate(timeout=LIMIT_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
        for process, (_, errors) in zip(processes, said, strict=True):
            assert process.returncode == 0, errors
        return "".join(out for out, _ in said)

    return run


def served(folder, rank=0):
    return json.loads((folder / f"{folder.name}-{rank}.json").read_text())


# ---------------------------------------------------------------------------------------- Lightning


@pytest.mark.slow
def test_lightning_serves_each_sample_once_on_two_ranks_and_never_shards_twice(run, tmp_path):
    said = run("run_lightning.py", "ranks")
    # On both ranks
    assert said.count("Where Lightning put it here: Trainer(use_distributed_sampler=False)") == 2
    for kind in ("cached", "workers", "indexed"):
        ranks = [served(tmp_path / kind, rank) for rank in range(2)]
        assert ranks[0] != ranks[1]
        for epoch in range(2):
            rows = [i for rank in ranks for at, _, labels in rank if at == epoch for i in labels]
            assert sorted(rows) == list(range(COUNT)), (kind, epoch)
        assert (
            len(
                {
                    json.dumps([labels for at, _, labels in ranks[0] if at == epoch])
                    for epoch in range(2)
                }
            )
            == 2
        )
    assert (
        served(tmp_path / "cached") == served(tmp_path / "workers") == served(tmp_path / "indexed")
    )
    evaluated = [served(tmp_path / "evaluated", rank) for rank in range(2)]
    assert [i for rank in evaluated for labels in rank for i in labels] == list(range(15))


@pytest.mark.slow
def test_lightning_goes_on_at_the_step_of_a_checkpoint(run, tmp_path):
    run("run_lightning.py", "resume", "3", "8", "11")
    for kind in ("cached", "workers"):
        whole, last = served(tmp_path / kind), served(tmp_path / kind / "ended")
        assert [[epoch, step] for epoch, step, _ in whole] == [
            [e, s] for e in range(3) for s in range(8)
        ]
        assert sorted(i for _, _, labels in last for i in labels) == list(range(COUNT))
        assert {epoch for epoch, _, _ in last} == {3}
        for step in (3, 8, 11):  # within an epoch, between two, within a later one
            assert served(tmp_path / kind / str(step)) == whole[step:] + last, (kind, step)
    run("run_lightning.py", "two")
    for kind in ("cached", "workers"):
        steps = zip(*(served(tmp_path / kind / "two", rank) for rank in range(2)), strict=True)
        together = [[*one[:2], one[2] + other[2]] for one, other in steps]
        assert together == served(tmp_path / kind / "11"), kind
    assert served(tmp_path / "cached") == served(tmp_path / "workers")


# --------------------------------------------------------------------------- Accelerate and Trainer


def each_once(ranks, epochs=2):
    """Assert that in each epoch of four batches the ranks together get each sample once."""
    for epoch in range(epochs):
        part = slice(4 * epoch, 4 * epoch + 4)
        assert sorted(i for rank in ranks for batch in rank[part] for i in batch) == list(
            range(COUNT)
        )
    assert all(len(rank) == 4 * epochs for rank in ranks)


@pytest.mark.slow
def test_accelerate_serves_each_sample_once_goes_on_at_any_step_and_never_shards_twice(
    run, tmp_path
):
    run("run_accelerate.py", ranks=2)
    ranks = [served(tmp_path, rank) for rank in range(2)]
    each_once([said["whole"] for said in ranks])
    for said in ranks:
        for at in (1, 4, 6):
            assert said[str(at)] == [said["whole"][:at], said["whole"][at:]]
        assert said["prepared"] == said["whole"][4:8]
        assert said["rest"] == said["whole"][7:8]
        assert ["of 2 samples 1 would be lost" in error for error in said["refused"]] == [True] * 3


@pytest.mark.slow
def test_trainer_serves_each_sample_once_with_all_columns_and_goes_on_at_any_step(run, tmp_path):
    run("run_trainer.py", ranks=2)
    ranks = [served(tmp_path, rank) for rank in range(2)]
    for kind in ("cached", "workers"):
        each_once([said[kind][0] for said in ranks])
        for said in ranks:
            whole, *rests = said[kind]
            assert rests == [whole[at:] for at in (4, 6)]


# ---------------------------------------------------------------------------------------- torchdata


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", ["batches", "indices"])
def test_a_stateful_loader_goes_on_at_every_step(snippets, cache, sampler, workers):
    def loader(state=None):
        if sampler == "batches":
            names = {"path": cache, "batch_size": 4, "workers": workers, "state": state}
            exec(snippets[6], names)
            return names["loader"]
        data = CachedDataset(cache)
        one = StatefulDataLoader(data, 4, sampler=data.sampler(4).sampler, num_workers=workers)
        if state is not None:
            one.load_state_dict(state)
        return one

    one, whole, states = loader(), [], []
    for _ in range(2):
        for batch in one:
            whole.append(batch["label"].tolist())
            states.append(copy.deepcopy(one.state_dict()))
    assert sorted(i for labels in whole[:4] for i in labels) == list(range(COUNT))
    assert whole[:4] != whole[4:]
    for done, state in enumerate(states[:-1], 1):
        assert [batch["label"].tolist() for batch in loader(state)] == whole[
            done : 4 * (done // 4) + 4
        ]


def test_single_indices_have_a_state_at_the_end_of_a_batch_only():
    one = Sampler(range(10), 3, shuffle=False).sampler
    taken = iter(one)
    assert [next(taken) for _ in range(3)] == [0, 1, 2]
    state = one.state_dict()
    next(taken)
    with pytest.raises(UsageError, match="1 samples into a batch of 3: give the loader that size"):
        one.state_dict()
    one.load_state_dict(state)
    assert list(one) == [3, 4, 5, 6, 7, 8, 9, 0, 1]
