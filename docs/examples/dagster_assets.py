"""Dagster assets: a dataset with a check that blocks the model where a scan finds its data unfit.

Run it with ``python dagster_assets.py`` beside the folder ``data`` and the schema ``my.yaml``, or
``dagster dev -f dagster_assets.py``.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from datacheck import scan_dataset, write_page


@dg.asset(check_specs=[dg.AssetCheckSpec("scan", asset="dataset", blocking=True)])
def dataset() -> Iterator[dg.Output | dg.AssetCheckResult]:
    """Scan: the digest is the version of the data, the verdict a check that blocks what lies behind."""
    run = scan_dataset("data", "my.yaml")
    page, report = write_page(run), run.report
    digest = report.dataset["digest"]
    checked = {"digest": digest, "valid": report.valid, "results": report.folder}
    yield dg.Output(checked, data_version=dg.DataVersion(digest), metadata=checked)
    told = {**report.counts(), "report": dg.MetadataValue.path(page)}
    yield dg.AssetCheckResult(check_name="scan", passed=not report.exit_code, metadata=told)


@dg.asset
def model(dataset: dict[str, Any]) -> str:
    """Train on what is valid, and write down of which data the model is."""
    excluded = json.loads(Path(dataset["results"], "valid.json").read_text())["excluded"]
    Path("model.json").write_text(
        json.dumps({"data": dataset["digest"], "left_out": sorted(excluded)})
    )
    return dataset["digest"]


defs = dg.Definitions(assets=[dataset, model])

if __name__ == "__main__":
    sys.exit(not dg.materialize([dataset, model], raise_on_error=False).success)
