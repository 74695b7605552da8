"""The demo's workflow for one system, from writing data to training, and its results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from datacheck.cache.verify import verify
from datacheck.model.finding import Finding, Severity, Verdict
from datacheck.pipeline import build
from datacheck.plugins import require
from datacheck.preview.run_previews import PreviewProcess
from datacheck.report.html import write_page
from datacheck.scan import Request, ScanRun, run_scan, schema_for
from datacheck.testing import faults, synth
from datacheck.testing.faults import Planted

if TYPE_CHECKING:  # `datacheck demo` must be able to say that PyTorch is absent
    from datacheck.demo.training import TrainingResult


STEPS = 300  # of training
SCHEMAS = {"minimind": ("minimind_sft", "minimind_pretrain", "minimind_dpo")}
PIPELINES = {"minimind": "minimind_sft"}
EXTRAS = {"minimind": (("tokenizers", "text"), ("jinja2", "text"))}


@dataclass(frozen=True)
class FaultAnswer:
    """The scan's answer to one planted fault.

    `found` is whether one finding of the fault's code named all of its samples.
    """

    planted: Planted
    found: bool
    severity: str = ""


@dataclass(frozen=True)
class CacheResult:
    """The built and verified caches of one system.

    Args:
        splits: names of the splits.
        train: folder of the split to train on.
        samples, usable: number of samples in all splits, and of valid ones.
        nbytes: size of all caches.
        problems: what a full verification found.
    """

    splits: tuple[str, ...]
    train: Path
    samples: int
    usable: int
    nbytes: int
    problems: tuple[str, ...]


@dataclass
class DemoResult:
    """Results of one system.

    Args:
        samples: counts of all scans together.
        answers: one per planted fault.
        others: findings that no planted fault explains: (severity, code, message).
        seconds: by stage.
        differs: requirements that do not hold, one sentence each.
    """

    system: str
    folder: Path
    files: int = 0
    nbytes: int = 0
    samples: dict[str, int] = field(default_factory=dict)
    answers: list[FaultAnswer] = field(default_factory=list)
    others: list[tuple[str, str, str]] = field(default_factory=list)
    cache: CacheResult | None = None
    training: TrainingResult | None = None
    crashes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)


def require_extras(systems: Sequence[str]) -> None:
    """Require the optional libraries of these systems before anything is written.

    Raises:
        MissingDependencyError: a library is absent; the message names the extra.
    """
    for module, extra in [
        ("torch", "torch"),
        *(pair for s in systems for pair in EXTRAS.get(s, ())),
    ]:
        require(module, extra)


def run(system: str, folder: Path, seed: int) -> DemoResult:
    """Run the whole workflow for one system in an empty folder.

    Args:
        system: one of `synth.SYSTEMS`.
        folder: receives ``data``, ``scan`` and ``cache``.
        seed: for data, faults and training order.
    """
    # They import PyTorch, so only after `require_extras` has checked for it.
    from datacheck.demo.training import train, training_task  # noqa: PLC0415

    course = DemoResult(system, folder)
    data = folder / "data"
    with _timed(course, "write"):
        synth.write(system, data, seed=seed)
        planted = faults.plant(system, data, seed=seed)
    files = [f for f in data.rglob("*") if f.is_file()]
    course.files, course.nbytes = len(files), sum(f.stat().st_size for f in files)
    with _timed(course, "scan"):
        runs = _scans(system, folder)
        course.answers = _answers(planted, runs)
        later = [fault.name for fault in faults.faults_of(system, later=True)]
        # Plant the faults that show only against an earlier scan, and scan again.
        if later:
            spare = [key for p in planted for key in (*p.keys, *p.others)]
            planted += (replanted := faults.plant(system, data, later, seed=seed, spare=spare))
            runs = _scans(system, folder)
            course.answers += _answers(replanted, runs)
    course.samples = _total_counts(runs)
    course.others = _unexplained(planted, runs)
    course.crashes = [
        f"{v.code}: {v.why}" for r in runs for v in r.report.verdicts if v.verdict is Verdict.CRASH
    ]
    with _timed(course, "build"):
        course.cache = _build_caches(system, folder, runs[0])
    with _timed(course, "train"):
        course.training = train(
            training_task(system, data), course.cache.train, _broken(runs), seed, STEPS
        )
    course.differs = list(_course_failures(course))
    return course


@contextlib.contextmanager
def _timed(course: DemoResult, stage: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    course.seconds[stage] = time.monotonic() - began


def _scans(system: str, folder: Path) -> list[ScanRun]:
    data = folder / "data"
    names = SCHEMAS.get(system, (None,))
    request = Request(data, output=folder / "scan", command=f"scan {data}")
    runs = []
    for name in names:
        schema_request = (
            request if name is None else replace(request, output=folder / "scan" / name)
        )
        with PreviewProcess(data, {}) as preview_process:
            runs.append(run := run_scan(schema_for(data, name), schema_request))
            write_page(run, drawn=preview_process.write(run))
    return runs


def _failing_keys(run: ScanRun) -> list[tuple[Finding, set[str]]]:
    return [
        (finding, {run.table.keys[int(i)] for i in finding.rows}) for finding in run.report.findings
    ]


def _answers(planted: Sequence[Planted], runs: Sequence[ScanRun]) -> list[FaultAnswer]:
    failing = [pair for run in runs for pair in _failing_keys(run)]
    answers = []
    for fault in planted:
        hits = [f for f, keys in failing if f.code == fault.code and keys.issuperset(fault.keys)]
        answers.append(FaultAnswer(fault, bool(hits), hits[0].severity.value if hits else ""))
    return answers


def _unexplained(planted: Sequence[Planted], runs: Sequence[ScanRun]) -> list[tuple[str, str, str]]:
    explained: dict[str, set[str]] = {}
    unkeyed = {p.code for p in planted if not p.keys}
    for fault in planted:
        explained.setdefault(fault.code, set()).update(fault.keys, fault.others)
    unexplained = []
    for finding, keys in (pair for run in runs for pair in _failing_keys(run)):
        unexplained_keys = keys - explained.get(finding.code, set())
        if finding.code not in unkeyed and (unexplained_keys or not keys):
            about = f"{min(unexplained_keys)}: " if unexplained_keys else ""
            unexplained.append((finding.severity.value, finding.code, about + finding.message))
    return unexplained


def _total_counts(runs: Sequence[ScanRun]) -> dict[str, int]:
    total: dict[str, int] = {}
    for run in runs:
        counts = {k: v for k, v in run.report.dataset["samples"].items() if isinstance(v, int)}
        for name, count in {**counts, "valid": run.report.valid}.items():
            total[name] = total.get(name, 0) + count
    return total


def _broken(runs: Sequence[ScanRun]) -> set[str]:
    return {
        key for run in runs for key, fit in zip(run.table.keys, run.valid, strict=True) if not fit
    }


def _build_caches(system: str, folder: Path, run: ScanRun) -> CacheResult:
    built = build(PIPELINES.get(system, system), folder / "data", folder / "cache", run=run)
    return CacheResult(
        splits=tuple(cache.split for cache in built),
        train=Path(next((cache.path for cache in built if cache.split == "train"), built[0].path)),
        samples=sum(cache.samples for cache in built),
        usable=sum(cache.valid for cache in built),
        nbytes=sum(cache.nbytes for cache in built),
        problems=tuple(
            f"{cache.split}: {problem}" for cache in built for problem in verify(cache.path)
        ),
    )


def _course_failures(course: DemoResult) -> Iterator[str]:
    for answer in course.answers:
        if not answer.found:
            keys = answer.planted.keys
            yield (
                f"{answer.planted.code} does not name {keys[0] if keys else 'the dataset'}: "
                f"{answer.planted.what}"
            )
    for severity, code, message in course.others:
        if severity == Severity.ERROR:
            yield f"{code} is an error that nothing planted explains: {message}"
    yield from (f"a rule crashed: {crash}" for crash in course.crashes)
    yield from _training_failures(course)


def _training_failures(course: DemoResult) -> Iterator[str]:
    if course.cache is not None and course.cache.problems:
        yield f"the cache does not verify: {course.cache.problems[0]}"
    training = course.training
    if training is not None and training.broken:
        yield f"{len(training.broken)} broken samples were served, such as {training.broken[0]}"
    if training is not None and not training.last < training.first:
        yield f"the loss does not fall: {training.first:.3g} to {training.last:.3g} {training.unit}"
