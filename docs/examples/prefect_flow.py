"""A Prefect flow that trains only on data that a scan lets pass.

Run it with ``python prefect_flow.py`` beside the folder ``data`` and the schema ``my.yaml``.
"""

import json
from pathlib import Path
from typing import Any

from prefect import flow, task

from datacheck import scan_dataset, write_page


@task  # no retries: data do not get better by waiting
def scan(data: str, schema: str) -> dict[str, Any]:
    """Scan; fail where the data do, so that nothing behind this begins."""
    run = scan_dataset(data, schema)
    page, report = write_page(run), run.report
    if report.exit_code:
        msg = f"{data} is not fit for training: {report.counts()}, see {page}"
        raise ValueError(msg)
    return {"digest": report.dataset["digest"], "valid": report.valid, "results": report.folder}


@task
def train(checked: dict[str, Any]) -> str:
    """Train on what is valid, and write down of which data the model is."""
    excluded = json.loads(Path(checked["results"], "valid.json").read_text())["excluded"]
    Path("model.json").write_text(
        json.dumps({"data": checked["digest"], "left_out": sorted(excluded)})
    )
    return checked["digest"]


@flow
def checked_training(data: str = "data", promised: str = "my.yaml") -> str:
    """Scan, then train."""
    return train(scan(data, promised))


if __name__ == "__main__":
    checked_training()
