"""Find the step by which two makings of a sample differ: read and transform it twice, step by step.

Each time runs in a child of its own, which digests every value after reading and after each step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from datacheck.build.make_shards import shard_tasks
from datacheck.build.prepare import PreparedBuild
from datacheck.build.reading import Beat, open_task, read_blocks
from datacheck.build.shard_task import ShardOrder, TaskSetup
from datacheck.errors import MissingDependencyError, StorageError, UsageError
from datacheck.model.sample import Block
from datacheck.runtime.hashing import digest_array
from datacheck.transforms.base import Refusal, Transform
from datacheck.workers.parallel import ordered_map
from datacheck.workers.wire import answers

Stage = dict[str, dict[str, str]]  # digest of a value, by key and field; under "" why it is refused

_TRIES = 4  # a race does not show every time
_HASH_SEED = "PYTHONHASHSEED"
_TRACE = "datacheck.build.trace:trace"
_ADVICE = (
    "What a step makes of a sample must depend on that sample alone: not on the clock, on random "
    "numbers (seed a "
    "generator with the sample's key), on the order of a set, on id() or hash(), on other samples, "
    "before it or in its "
    "block, or on which thread is first."
)
_READ_TWICE = "The files were read twice and gave other values. Report it."


def hash_seed(number: int) -> dict[str, str]:
    """Return an environment with a hash seed that differs from the user's."""
    seed = str(number)
    return {_HASH_SEED: str(number + 2) if os.environ.get(_HASH_SEED) == seed else seed}


def find_cause(prepared: PreparedBuild, g: int, keys: Sequence[str], folder: Path) -> list[str]:
    """Return lines that name the step by which some samples of shard `g` differ.

    Args:
        prepared: what is built.
        g: the shard.
        keys: the samples.
        folder: a folder that the children may see and write into.
    """
    steps = prepared.steps
    names = ["reading the files"]
    names += [f"step {n} of {len(steps)}, {_name(step)}" for n, step in enumerate(steps, 1)]
    for _ in range(_TRIES):
        first = trace_steps(prepared, g, keys, folder, again=False)
        second = trace_steps(prepared, g, keys, folder, again=True)
        for number, (before, after) in enumerate(zip(first, second, strict=True)):
            difference = _first_difference(before, after, keys)
            if difference is not None:
                by_reading = number == 0
                return [
                    f"    It comes by {names[number]}: {difference.field or 'its refusal'} of "
                    f"{difference.key} is {difference.before}, then {difference.after}.",
                    _READ_TWICE if by_reading else _ADVICE,
                ]
    return [
        f"    Step by step it did not come again in {_TRIES} tries: it is rare, as faults of "
        f"threads are, or shows on "
        f"another machine only. Look at {', '.join(map(_name, steps)) or 'the files'}.",
        _ADVICE,
    ]


def _name(step: Transform) -> str:
    return next(iter(step.as_dict()))


class _Difference(NamedTuple):
    key: str
    field: str
    before: str
    after: str


def _first_difference(before: Stage, after: Stage, keys: Sequence[str]) -> _Difference | None:
    for key in keys:
        was, now = before.get(key, {}), after.get(key, {})
        for field in sorted({*was, *now}):
            if was.get(field) != now.get(field):
                return _Difference(key, field, was.get(field, "absent"), now.get(field, "absent"))
    return None


def trace_steps(
    prepared: PreparedBuild, g: int, keys: Sequence[str], folder: Path, *, again: bool
) -> list[Stage]:
    """Return the digests of some samples of a shard after reading, and after each step."""
    tasks = shard_tasks(prepared, [[g]], None, folder, again=again)
    outcomes = list(
        ordered_map(
            _TRACE,
            ({**task, "wanted": list(keys)} for task in tasks),
            limits=prepared.job.limits,
            environment=hash_seed(int(again)),
            sandbox=prepared.job.sandbox(write=[folder]),
        )
    )
    if not outcomes[0].payloads:  # the child died
        return [{} for _ in range(len(prepared.steps) + 1)]
    stages: list[Stage] = outcomes[0].payloads[0]
    return stages


@answers(
    [{str: {str: object}}],
    lambda answer, task: len(answer) == 1 + len(task["steps"]),
    raises=(UsageError, StorageError, MissingDependencyError),
    of_items=True,
)
def trace(task: dict[str, Any], beat: Beat) -> list[Stage]:
    """Read and transform the samples of one shard step by step; runs in the child.

    Args:
        task: as of `shard_worker.write_shards`, with "wanted" (keys). If `TaskSetup.again` is set,
            everything runs once before the pass that is recorded.
        beat: called as work goes on.

    Returns:
        For reading and for each step: by key and field the digest of the value; under "" why a
        sample was refused.
    """
    setup = TaskSetup.from_dict(task)
    source, steps = open_task(setup)
    reads = ShardOrder.from_dict(task["items"][0]).reads
    stages: list[Stage] = [{} for _ in range(len(steps) + 1)]
    passes = 2 if setup.again else 1
    alive = partial(beat, 0)
    for read_result in chain.from_iterable(
        read_blocks(source, reads, alive, again=setup.again) for _ in range(passes)
    ):
        if isinstance(read_result, Block):
            blocks, refused = [read_result], []
        else:
            blocks, refused = [], [(read_result.key, read_result.reason)]
        _note(stages[0], blocks, refused, task["wanted"])
        for stage, step in zip(stages[1:], steps, strict=True):
            results = [step.apply(block) for block in blocks]
            blocks = [block for made, _ in results for block in made]
            refused = [refusal for _, refusals in results for refusal in refusals]
            _note(stage, blocks, refused, task["wanted"])
    return stages


def _note(
    stage: Stage, blocks: Sequence[Block], refused: Sequence[Refusal], wanted: Sequence[str]
) -> None:
    stage.update({key: {"": reason} for key, reason in refused if key in wanted})
    for block in blocks:
        for i, key in enumerate(block.keys):
            if key in wanted:
                stage[key] = {
                    name: digest_array(column[i]) for name, column in sorted(block.fields.items())
                }
