"""The examples of docs/orchestration.md, each run by its own engine: training begins where the data are sound only."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import datacheck
from tests.integrations.conftest import write_data

EXAMPLES = {
    "prefect": "prefect_flow.py",
    "dagster": "dagster_assets.py",
    "airflow": "airflow_dag.py",
}


@pytest.fixture
def engine(request, tmp_path, repository, monkeypatch):
    """What runs an example beside data and a schema, and returns its exit code and what it says."""
    name = request.param
    if importlib.util.find_spec(name) is None:
        pytest.skip(
            f"{name} is not installed: it is large, or asks for other versions than the constraints"
        )
    monkeypatch.chdir(write_data(tmp_path))
    (tmp_path / "plain.yaml").rename(tmp_path / "my.yaml")
    (tmp_path / "dags").mkdir()
    shutil.copy(repository / "docs/examples" / EXAMPLES[name], tmp_path / "dags")
    own = {
        "PYTHONPATH": str(repository),
        "HOME": str(tmp_path / "home"),
        "DO_NOT_TRACK": "1",
        "PREFECT_HOME": str(tmp_path / "home"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    (tmp_path / "home").mkdir()
    environment = {**os.environ, **own}
    if name == "airflow":
        subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"], env=environment, check=True
        )

    def run():
        command = [sys.executable, f"dags/{EXAMPLES[name]}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.slow
@pytest.mark.parametrize("engine", EXAMPLES, indirect=True)
def test_training_begins_where_the_data_are_sound_and_knows_their_digest(engine, tmp_path):
    code, said = engine()
    assert code != 0, said
    assert "'error': 1" in said or "blocking asset check failed" in said
    assert not (tmp_path / "model.json").exists()
    assert list(tmp_path.glob(".datacheck/*/report.html"))
    np.save(tmp_path / "data/3.npy", np.full(4, 5, np.float32))
    code, said = engine()
    assert code == 0, said
    made = json.loads((tmp_path / "model.json").read_text())
    digest = datacheck.scan_dataset("data", "my.yaml", output=tmp_path / "again").report.dataset[
        "digest"
    ]
    assert made == {"data": digest, "left_out": []}


def test_the_page_names_every_example_and_no_other(repository):
    page = (repository / "docs/orchestration.md").read_text()
    assert {path.name for path in (repository / "docs/examples").glob("*.py")} == set(
        EXAMPLES.values()
    )
    assert all(f"(examples/{name})" in page for name in EXAMPLES.values())
