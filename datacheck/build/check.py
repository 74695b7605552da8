"""Check that a build is deterministic: make some shards twice, and find the step that differs.

The second time everything differs that must not matter: processes, hash seed, number of workers,
the order of shards, files and samples, and which samples a step sees together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datacheck.build.job import BuildJob, read_records, tasks_of
from datacheck.build.plan import BuildPlan
from datacheck.build.provenance import ShardRecord
from datacheck.build.shard_worker import Beat, load_task, read_blocks, shard_file
from datacheck.build.staging import AGAIN
from datacheck.cache import Cache, layout
from datacheck.cache.codec import PLAIN
from datacheck.errors import (
    ManyLines,
    MissingDependencyError,
    NondeterministicBuildError,
    StorageError,
    UsageError,
)
from datacheck.model.finding import Progress, note_reporter
from datacheck.model.sample import Block
from datacheck.runtime import fsops
from datacheck.runtime.hashing import digest_array
from datacheck.runtime.sandbox import Sandbox
from datacheck.transforms.base import Refusal, Transform
from datacheck.workers.parallel import TaskResult, ordered_map
from datacheck.workers.wire import answers

Array = np.ndarray[Any, Any]
Share = Literal["some", "all"]
Stage = dict[str, dict[str, str]]  # digest of a value, by key and field

_SOME = 8  # shards
_NAMED = 3  # samples
_TRIES = 4  # a race does not show every time
_HASH_SEED = "PYTHONHASHSEED"
_WRITE = "datacheck.build.shard_worker:write_shards"
_TRACE = "datacheck.build.check:trace"
_ADVICE = (
    "What a step makes of a sample must depend on that sample alone: not on the clock, on random "
    "numbers (seed a "
    "generator with the sample's key), on the order of a set, on id() or hash(), on other samples, "
    "before it or in its "
    "block, or on which thread is first."
)


@dataclass(frozen=True, eq=False)
class ShardDigests:
    """Digests of a shard from the first time.

    Shapes:
        made: bool (samples)
        digest: uint64 (samples)

    Args:
        files: size and xxh3_128 of the field files that can be compared.
    """

    made: Array
    digest: Array
    files: Mapping[str, tuple[int, str]]


def _shard_digests(cache: Cache, plan: BuildPlan, g: int) -> ShardDigests:
    """Return the digests of a shard of a cache.

    Notes:
        The file of a ragged field ends with an index that is unknown while a shard is made; the
        samples' digests cover all of its content. Another version of a codec may give other bytes
        for the same values.
    """
    part = plan.shard(g)
    fixed = [name for name, spec in plan.specs.items() if spec.dim is None and plan.codec == PLAIN]
    files = {
        name: cache.manifest.files[f"{layout.field_path(name)}/{shard_file(g, plan.specs[name])}"]
        for name in fixed
    }
    return ShardDigests(cache.made[part], cache.digests(np.arange(part.start, part.stop)), files)


def choose_shards(shards: int, share: Share) -> list[int]:
    """Return the numbers of the shards to make again: all, or a few from the first to the last."""
    if share == "all" or shards <= _SOME:
        return list(range(shards))
    return [g * (shards - 1) // (_SOME - 1) for g in range(_SOME)]


def checked(
    job: BuildJob,
    plan: BuildPlan,
    steps: Sequence[Transform],
    share: Share,
    cache: Cache,
    folder: Path,
    *,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Make shards a second time and compare them with the first; return how many.

    Args:
        job, plan, steps: what is built, from `builder.prepare`.
        share: which shards.
        cache: the result of the first time, published or not; it is not touched.
        folder: the folder of this builder; holds the records of the second time for a while, but no
            shards.
        workers, scheduler: of the first time. The second time uses one worker less; if there was
            only one, every shard gets its own process.
        progress: called after every shard.

    Raises:
        NondeterministicBuildError: a shard differs; the message names the field, the samples and
            the step that causes it.
    """
    fsops.make_directory(folder := folder / AGAIN, sync=False)
    numbers = choose_shards(plan.shards, share)[::-1]
    tick = plan.before("checking", numbers)
    tasks = (
        task | {"again": True}
        for task in tasks_of(job, plan, steps, ([g] for g in numbers), None, folder)
    )
    box = job.sandbox(write=[folder])
    with closing(
        _remake(job, tasks, workers, scheduler, box, note_reporter(progress, tick))
    ) as outcomes:
        for outcome in outcomes:
            for second in read_records(outcome, folder, plan):
                _compare(job, plan, steps, second, _shard_digests(cache, plan, second.g), folder)
                tick = plan.after(tick, [second.g])
            if progress is not None:
                progress(tick)
    return len(numbers)


def _remake(
    job: BuildJob,
    tasks: Iterable[dict[str, Any]],
    workers: int,
    scheduler: str | None,
    box: Sandbox | None,
    report: Callable[[str], None],
) -> Generator[TaskResult]:
    how: dict[str, Any] = {"limits": job.limits, "environment": _seed(1), "sandbox": box}
    run: Any = partial(ordered_map, _WRITE, scheduler=scheduler, told=report, **how)
    if scheduler is not None or workers > 1:
        yield from run(tasks, workers=workers - 1)
    else:
        for task in tasks:
            yield from run([task])


def _seed(number: int) -> dict[str, str]:
    """Return an environment with a hash seed that differs from the user's."""
    return {_HASH_SEED: str(number if os.environ.get(_HASH_SEED) != str(number) else number + 2)}


# ------------------------------------------------------------------------------------- what differs


def _compare(
    job: BuildJob,
    plan: BuildPlan,
    steps: Sequence[Transform],
    second: ShardRecord,
    first: ShardDigests,
    folder: Path,
) -> None:
    indices = np.flatnonzero((first.made != second.made) | (first.digest != second.digest)).tolist()
    files = [name for name in sorted(first.files) if first.files[name] != second.files[name]]
    if not indices and not files:
        return
    keys = plan.samples.keys[plan.shard(second.g)]
    lines = [
        f"split {plan.split}: the build is not deterministic. Made a second time, shard {second.g} "
        f"differs"
    ]
    if indices:
        lines[0] += f" in {len(indices):,} of {len(keys):,} samples:"
        shown = indices[:_NAMED]
        lines += [
            f"    {keys[i]}: {_describe_sample(first, i)}, then {_describe_sample(second, i)}"
            for i in shown
        ]
        lines += ["    ..."] * (len(indices) > len(shown))
    else:
        lines[0] += " in its bytes alone; all samples are the same. Please report it."
    if files:
        lines.append(f"    fields whose files differ: {', '.join(files)}")
    if indices:
        lines += _cause(job, plan, steps, second.g, [keys[i] for i in indices[:_NAMED]], folder)
    lines.append("No cache was published; one that was there before was not touched.")
    raise NondeterministicBuildError(ManyLines.of(lines))


def _describe_sample(shard: ShardDigests | ShardRecord, i: int) -> str:
    return f"{int(shard.digest[i]):016x}" if shard.made[i] else "not made"


def _cause(
    job: BuildJob,
    plan: BuildPlan,
    steps: Sequence[Transform],
    g: int,
    keys: Sequence[str],
    folder: Path,
) -> Iterator[str]:
    """Yield lines that name the step by which the samples of a shard differ.

    The shard is read and transformed twice, step by step.
    """
    names = [
        "reading the files",
        *(f"step {n} of {len(steps)}, {_name(s)}" for n, s in enumerate(steps, 1)),
    ]
    for _ in range(_TRIES):
        first_trace, second_trace = (
            _trace_steps(job, plan, steps, g, keys, folder, again=again) for again in (False, True)
        )
        for name, before, after in zip(names, first_trace, second_trace, strict=True):
            difference = next(((k, f) for k in keys for f in _fields(before, after, k)), None)
            if difference is not None:
                key, field = difference
                was, now = (stage.get(key, {}).get(field, "absent") for stage in (before, after))
                yield (
                    f"    It comes by {name}: {field or 'its refusal'} of {key} is {was}, then "
                    f"{now}."
                )
                yield (
                    _ADVICE
                    if name is not names[0]
                    else "The files were read twice and gave other values. Report it."
                )
                return
    yield (
        f"    Step by step it did not come again in {_TRIES} tries: it is rare, as faults of "
        f"threads are, or shows on "
        f"another machine only. Look at {', '.join(map(_name, steps)) or 'the files'}."
    )
    yield _ADVICE


def _name(step: Transform) -> str:
    return next(iter(step.as_dict()))


def _fields(before: Stage, after: Stage, key: str) -> list[str]:
    first_digests = before.get(key, {})
    second_digests = after.get(key, {})
    return [
        field
        for field in sorted({*first_digests, *second_digests})
        if first_digests.get(field) != second_digests.get(field)
    ]


def _trace_steps(
    job: BuildJob,
    plan: BuildPlan,
    steps: Sequence[Transform],
    g: int,
    keys: Sequence[str],
    folder: Path,
    *,
    again: bool,
) -> list[Stage]:
    tasks = tasks_of(job, plan, steps, [[g]], None, folder)
    box = job.sandbox(write=[folder])
    trace_tasks = ({**task, "again": again, "wanted": list(keys)} for task in tasks)
    outcomes = list(
        ordered_map(
            _TRACE, trace_tasks, limits=job.limits, environment=_seed(int(again)), sandbox=box
        )
    )
    stages: list[Stage] = (
        outcomes[0].payloads[0] if outcomes[0].payloads else [{} for _ in range(len(steps) + 1)]
    )
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
        task: as of `shard_worker.write_shards`, with "wanted" (keys); if "again" is set, everything
            runs once before the pass that is recorded.
        beat: called as work goes on.

    Returns:
        For reading and for each step: by key and field the digest of the value; under "" why a
            sample
        was refused.
    """
    source, steps = load_task(task)
    stages: list[Stage] = [{} for _ in range(len(steps) + 1)]
    reads = task["items"][0]["reads"]
    again = task["again"]
    for read_result in chain(
        *(read_blocks(source, reads, lambda _: beat(0), again=again) for _ in range(1 + again))
    ):
        blocks, refused = (
            ([read_result], [])
            if isinstance(read_result, Block)
            else ([], [(read_result.key, read_result.reason)])
        )
        _note(stages[0], blocks, refused, task["wanted"])
        for stage, step in zip(stages[1:], steps, strict=True):
            results = [step.apply(block) for block in blocks]
            blocks = [block for made_blocks, _ in results for block in made_blocks]
            _note(
                stage,
                blocks,
                [refusal for _, refusals in results for refusal in refusals],
                task["wanted"],
            )
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
