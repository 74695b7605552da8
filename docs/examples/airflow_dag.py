"""An Airflow 3 DAG that trains only on data that a scan lets pass.

It lies in the DAGs folder; ``python dags/airflow_dag.py`` runs it once, beside the folder ``data`` and the schema
``my.yaml``.
"""

import json
import sys
from pathlib import Path
from typing import Any

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

FOLDER = Path.cwd()  # of your project: a worker begins somewhere else


@task
def scan() -> dict[str, Any]:
    """Scan; fail for good where the data do (no retry: they do not get better by waiting)."""
    from datacheck import scan_dataset, write_page  # noqa: PLC0415  the scheduler reads this file again and again

    run = scan_dataset(FOLDER / "data", FOLDER / "my.yaml")
    page, report = write_page(run), run.report
    if report.exit_code:
        msg = f"the data are not fit for training: {report.counts()}, see {page}"
        raise AirflowFailException(msg)
    return {
        "digest": report.dataset["digest"],
        "valid": report.valid,
        "results": str(Path(report.folder).absolute()),
    }


@task
def train(checked: dict[str, Any]) -> str:
    """Train on what is valid, and write down of which data the model is."""
    excluded = json.loads(Path(checked["results"], "valid.json").read_text())["excluded"]
    (FOLDER / "model.json").write_text(
        json.dumps({"data": checked["digest"], "left_out": sorted(excluded)})
    )
    return checked["digest"]


@dag(schedule=None, catchup=False)
def checked_training() -> None:
    """Scan, then train: the result of the scan goes on as an XCom."""
    train(scan())


whole = checked_training()

if __name__ == "__main__":
    sys.exit(whole.test().state != "success")
