"""Log the results of a scan or build to an experiment tracker: MLflow or Weights & Biases.

Neither library is loaded before it is needed. datacheck never starts a tracker run: the results
belong to a training run.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from datacheck.build.builder import Built
from datacheck.cache.find import choose_cache, find_caches
from datacheck.cache.reader import Cache
from datacheck.cache.store import is_url
from datacheck.errors import DatacheckError, UsageError
from datacheck.plugins import require
from datacheck.report.html import write_page
from datacheck.report.words import clean, relative_to_cwd
from datacheck.scan.run_documents import PAGE, RESULT, read_result, run_in, unread
from datacheck.scan.scan_run import ScanRun

_MAX_CHARS = 250  # characters of a value: the limit of the strictest server
_PREFIX = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)


@dataclass(frozen=True)
class _TrackedDataset:
    """The logged facts of one dataset or cache.

    Args:
        name: of the dataset; user text, escaped.
        source: its location, or the loader.
        digest: of its content.
        facts: texts by name, including the digest.
        counts: numbers by name.
        files: to log as artifacts.
        loader: whether `source` is a loader.
    """

    name: str
    source: str
    digest: str
    facts: dict[str, str]
    counts: dict[str, int]
    files: list[Path] = field(default_factory=list)
    loader: bool = False


def log_to_mlflow(
    done: ScanRun | Built | str | Path,
    *,
    run_id: str | None = None,
    prefix: str = "datacheck",
    files: bool = True,
) -> None:
    """Log the findings of a scan, or the facts of a built cache, to an MLflow run.

    Args:
        done: the result of `scan_dataset` or `build_cache` (one of its list); the folder of a run
            (``.datacheck`` for the newest); or a cache's folder or URL.
        run_id: the MLflow run; None: the active one.
        prefix: prefix of all names; use another one for a second dataset in the same run.
        files: also log result.json and report.html. They show samples, and paths as typed.

    Raises:
        UsageError: no MLflow run is active; `done` is neither a run nor one cache; or the prefix is
            not a valid name.
        MissingDependencyError: MLflow is not installed.

    Notes:
        Tags hold the digest, the verdict and the schema. Metrics hold the numbers of valid samples,
        of findings, and of failing samples for each rule that judged samples. The dataset becomes
        an input of the run under datacheck's digest. result.json and report.html (written if
        missing) become artifacts. Of a path outside the working folder, only the last part is
        logged. Exceptions of MLflow are not caught.
    """
    mlflow = require("mlflow", "mlflow")
    tracked = _tracked_dataset(done, prefix, files=files)
    if run_id is None:
        active = mlflow.active_run()
        if active is None:
            msg = (
                "no run of MLflow is active: call this inside of mlflow.start_run(), or give "
                "run_id="
            )
            raise UsageError(msg)
        run_id = active.info.run_id
    entities = mlflow.entities
    client = mlflow.MlflowClient()
    now = int(time.time() * 1000)
    client.log_batch(
        run_id,
        metrics=[
            entities.Metric(f"{prefix}/{name}", float(count), now, 0)
            for name, count in tracked.counts.items()
        ],
        tags=[entities.RunTag(f"{prefix}/{name}", text) for name, text in tracked.facts.items()],
    )
    client.log_inputs(run_id, [entities.DatasetInput(entities.Dataset(**_entity(tracked)), [])])
    for file in tracked.files:
        client.log_artifact(run_id, str(file), prefix)


def log_to_wandb(
    done: ScanRun | Built | str | Path,
    *,
    to: Any = None,
    prefix: str = "datacheck",
    files: bool = True,
) -> None:
    """Log the findings of a scan, or the facts of a built cache, to a Weights & Biases run.

    Args:
        done: see `log_to_mlflow`.
        to: the result of ``wandb.init``; None: the open run.
        prefix: prefix of all names; use another one for a second dataset in the same run.
        files: see `log_to_mlflow`.

    Raises:
        UsageError: no run is open; `done` is neither a run nor one cache; or the prefix is not a
            valid name.
        MissingDependencyError: wandb is not installed.

    Notes:
        The configuration holds the facts, the summary holds the counts (so no step is logged), and
        an artifact of type ``datacheck`` holds result.json and report.html, or facts.json without
        files. Paths are logged as by `log_to_mlflow`. An offline run stays offline.
    """
    wandb = require("wandb", "wandb")
    tracked = _tracked_dataset(done, prefix, files=files)
    run = to or wandb.run
    if run is None:
        msg = "no run of Weights & Biases is open: call wandb.init() before, or give to="
        raise UsageError(msg)
    run.config.update(
        {f"{prefix}/{name}": text for name, text in tracked.facts.items()}, allow_val_change=True
    )
    run.summary.update({f"{prefix}/{name}": count for name, count in tracked.counts.items()})
    artifact = wandb.Artifact(
        f"{_artifact_name(prefix)}-{_artifact_name(tracked.name)}"[:128],
        type="datacheck",
        metadata={**tracked.facts, "source": tracked.source},
    )
    for file in tracked.files:
        artifact.add_file(str(file))
    if not tracked.files:
        with artifact.new_file("facts.json") as facts_file:
            facts_file.write(json.dumps(tracked.facts | tracked.counts, indent=2))
    run.log_artifact(artifact)


def _tracked_dataset(
    done: ScanRun | Built | str | Path, prefix: str, *, files: bool
) -> _TrackedDataset:
    if not _PREFIX.fullmatch(prefix):
        msg = (
            f"prefix={prefix!r}: write letters, digits, _, - and ., with / between parts: "
            f"datacheck/val"
        )
        raise UsageError(msg)
    if isinstance(done, ScanRun):
        return _of_run(Path(done.report.folder), done, files=files)
    location = done.path if isinstance(done, Built) else done
    if not isinstance(done, Built) and not is_url(location):
        folder = run_in(Path(location))
        if folder is not None:
            return _of_run(folder, folder, files=files)
    if not is_url(location) and not any(find_caches(Path(location))):
        msg = (
            f"{location}: is neither a finished run nor a cache. Name the folder of one, for "
            f"example .datacheck/latest"
        )
        raise UsageError(msg)
    return _of_cache(choose_cache(location))


def _of_run(folder: Path, run: ScanRun | Path, *, files: bool) -> _TrackedDataset:
    try:
        tracked = _run_facts(folder)
        # a link in its place would upload another file
        if files and ((folder / PAGE).is_symlink() or not (folder / PAGE).is_file()):
            write_page(run)
    except DatacheckError:
        raise
    except Exception as error:
        raise unread(folder, error) from error
    return replace(tracked, files=[folder / RESULT, folder / PAGE]) if files else tracked


def _run_facts(folder: Path) -> _TrackedDataset:
    result = read_result(folder)
    dataset = result["dataset"]
    verdict = result["verdict"]
    rules: dict[str, Any] = result["rules"]
    facts = {
        "digest": dataset["digest"],
        "verdict": verdict["status"],
        "dataset": dataset["name"],
        "root": _portable_path(dataset["root"]),
        "schema_digest": result["schema"]["digest"],
        "level": result["run"]["level"],
        "version": result["run"]["version"],
        "run": result["run"]["id"],
        "failing": " ".join(code for code, rule in rules.items() if rule["status"] == "fail"),
    }
    counts = {"valid": verdict["valid"]}
    for name, count in dataset["samples"].items():
        counts[f"samples/{name}"] = count
    for severity, count in verdict["counts"].items():
        counts[f"findings/{severity}"] = count
    for code, rule in rules.items():
        if _judged_samples(rule):
            counts[f"failed/{_metric_name(code)}"] = rule["failed"]
    facts = {name: _short(text) for name, text in facts.items()}
    return _TrackedDataset(
        name=facts["dataset"],
        source=facts["root"],
        digest=dataset["digest"],
        facts=facts,
        counts=counts,
        loader=not dataset["files"],
    )


def _judged_samples(rule: Mapping[str, Any]) -> bool:
    """Return whether zero failing samples mean success: the rule judged individual samples."""
    return bool(rule.get("checked")) and (rule["failed"] > 0 or rule["status"] != "fail")


def _of_cache(path: Path | str) -> _TrackedDataset:
    cache = Cache(path, verify="manifest")
    root = cache.root
    facts = {
        "digest": cache.manifest.digest,
        "key": root.key,
        "pipeline": root.pipeline,
        "path": _portable_path(str(path)),
    }
    counts = {"samples": len(cache), "made": int(cache.made.sum()), "valid": int(cache.valid.sum())}
    head = f"cache/{_metric_name(root.split)}"
    return _TrackedDataset(
        name=_short(f"{root.pipeline}/{root.split}"),
        source=_short(facts["path"]),
        digest=cache.manifest.digest,
        facts={f"{head}/{name}": _short(text) for name, text in facts.items()},
        counts={f"{head}/{name}": count for name, count in counts.items()},
    )


def _entity(tracked: _TrackedDataset) -> dict[str, str]:
    """Return the dataset in MLflow's form."""
    if tracked.loader:
        source_type = "code"
        source: dict[str, Any] = {"tags": {"mlflow.source.name": tracked.source}}
    else:
        scheme = tracked.source.partition("://")[0]
        source_type = scheme if is_url(tracked.source) else "local"
        source = {"uri": tracked.source}
    return {
        "name": tracked.name,
        "digest": tracked.digest,
        "source_type": source_type,
        "source": json.dumps(source),
        "profile": json.dumps(tracked.counts),
    }


def _portable_path(location: str) -> str:
    """Return a path relative to the working folder, or else its last part.

    It reveals nothing about the machine.
    """
    if is_url(location):
        return location
    inside = Path(relative_to_cwd(Path(location)))
    return inside.name if inside.is_absolute() else str(inside)


def _short(text: str) -> str:
    return clean(text, spaces=True)[:_MAX_CHARS] or "-"


def _metric_name(text: str) -> str:
    """Return part of a name, with characters that trackers refuse replaced by an underscore."""
    return re.sub(r"[^\w.:-]+", "_", text, flags=re.ASCII)[:100].strip(".") or "_"


def _artifact_name(text: str) -> str:
    return _metric_name(text).replace(":", "_")
