"""Check that a build is deterministic: make some shards twice, and compare the two.

The second time everything differs that must not matter: processes, hash seed, number of workers,
the order of shards, files and samples, and which samples a step sees together. Where a shard
differs, `trace.find_cause` names the step that causes it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datacheck.build.job import Execution
from datacheck.build.make_shards import shard_tasks
from datacheck.build.plan import BuildPlan
from datacheck.build.prepare import PreparedBuild
from datacheck.build.provenance import ShardRecord, read_records
from datacheck.build.trace import find_cause, hash_seed
from datacheck.cache import Cache, layout
from datacheck.errors import ManyLines, NondeterministicBuildError
from datacheck.model.finding import Tick, note_reporter
from datacheck.workers.parallel import TaskResult, ordered_map

Array = np.ndarray[Any, Any]
Share = Literal["some", "all"]

_SOME = 8  # shards
_NAMED = 3  # samples
_WRITE = "datacheck.build.shard_worker:write_shards"


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


def _first_digests(cache: Cache, plan: BuildPlan, g: int) -> ShardDigests:
    """Return the digests of a shard of a cache.

    Notes:
        The file of a ragged field ends with an index that is unknown while a shard is made; the
        samples' digests cover all of its content. Another version of a codec may give other bytes
        for the same values.
    """
    part = plan.shard(g)
    files = {}
    for name, spec in plan.specs.items():
        if spec.dim is None and not plan.compressed:
            files[name] = cache.manifest.files[layout.shard_file(name, spec, g)]
    return ShardDigests(cache.made[part], cache.digests(np.arange(part.start, part.stop)), files)


def choose_shards(shards: int, share: Share) -> list[int]:
    """Return the numbers of the shards to make again: all, or a few from the first to the last."""
    if share == "all" or shards <= _SOME:
        return list(range(shards))
    return [g * (shards - 1) // (_SOME - 1) for g in range(_SOME)]


def check_shards(
    prepared: PreparedBuild, share: Share, cache: Cache, records: Path, execution: Execution
) -> int:
    """Make shards a second time and compare them with the first; return how many.

    Args:
        prepared: what was built.
        share: which shards.
        cache: the result of the first time, published or not; it is not touched.
        records: a folder of this builder for the records of the second time; shards are not
            written.
        execution: of the first time. The second time uses one worker less; if there was only one,
            every shard gets its own process.

    Raises:
        NondeterministicBuildError: a shard differs; the message names the field, the samples and
            the step that causes it.
    """
    plan = prepared.plan
    backwards = choose_shards(plan.shards, share)[::-1]
    tick = plan.before("checking", backwards)
    with closing(_make_again(prepared, backwards, records, execution, tick)) as outcomes:
        for outcome in outcomes:
            for second in read_records(outcome, records, plan):
                first = _first_digests(cache, plan, second.g)
                _compare(prepared, first, second, records)
                tick = plan.after(tick, [second.g])
            execution.report(tick)
    return len(backwards)


def _make_again(
    prepared: PreparedBuild, shards: Iterable[int], records: Path, execution: Execution, tick: Tick
) -> Generator[TaskResult]:
    tasks = shard_tasks(prepared, ([g] for g in shards), None, records, again=True)
    run = partial(
        ordered_map,
        _WRITE,
        scheduler=execution.scheduler,
        limits=prepared.job.limits,
        environment=hash_seed(1),
        sandbox=prepared.job.sandbox(write=[records]),
        told=note_reporter(execution.progress, tick),
    )
    if execution.parallel:
        yield from run(tasks, workers=execution.workers - 1)
    else:
        for task in tasks:
            yield from run([task])


def _compare(
    prepared: PreparedBuild, first: ShardDigests, second: ShardRecord, folder: Path
) -> None:
    """Raise if a shard came out differently the second time."""
    differs = (first.made != second.made) | (first.digest != second.digest)
    places = np.flatnonzero(differs).tolist()
    files = [name for name in sorted(first.files) if first.files[name] != second.files[name]]
    if not places and not files:
        return
    plan = prepared.plan
    keys = plan.samples.keys[plan.shard(second.g)]
    head = (
        f"split {plan.split}: the build is not deterministic. Made a second time, shard {second.g} "
        f"differs"
    )
    lines = []
    if places:
        lines.append(f"{head} in {len(places):,} of {len(keys):,} samples:")
        lines += _describe_samples(keys, places, first, second)
    else:
        lines.append(f"{head} in its bytes alone; all samples are the same. Please report it.")
    if files:
        lines.append(f"    fields whose files differ: {', '.join(files)}")
    if places:
        lines += find_cause(prepared, second.g, [keys[i] for i in places[:_NAMED]], folder)
    lines.append("No cache was published; one that was there before was not touched.")
    raise NondeterministicBuildError(ManyLines.of(lines))


def _describe_samples(
    keys: Sequence[str], places: Sequence[int], first: ShardDigests, second: ShardRecord
) -> list[str]:
    lines = [
        f"    {keys[i]}: {_describe_sample(first, i)}, then {_describe_sample(second, i)}"
        for i in places[:_NAMED]
    ]
    return [*lines, "    ..."] if len(places) > _NAMED else lines


def _describe_sample(shard: ShardDigests | ShardRecord, i: int) -> str:
    return f"{int(shard.digest[i]):016x}" if shard.made[i] else "not made"
