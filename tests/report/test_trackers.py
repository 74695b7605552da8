"""What MLflow and Weights & Biases keep of a run, read back by their own clients; wandb is offline."""

import contextlib
import copy
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar
from urllib.request import urlopen

import pytest

import datacheck
from datacheck.cache import open_cache
from datacheck.errors import MissingDependencyError, UsageError
from datacheck.report import trackers
from tests.integrations.conftest import write_data
from tests.report.hostile import HOSTILE, evil_run, leaks

CODES = ("valid", "samples/listed", "findings/error", "failed/DC221")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with ten samples, of which one holds NaN."""
    monkeypatch.chdir(tmp_path)
    return write_data(tmp_path)


@pytest.fixture(scope="module")
def scanned(tmp_path_factory):
    """A working folder with a finished scan, and that scan."""
    place = write_data(tmp_path_factory.mktemp("scanned"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return place, datacheck.scan_dataset("data", "plain.yaml")


@pytest.fixture
def done(scanned, here):
    """The scan as if it had been made here."""
    place, scan = copy.deepcopy(scanned)
    shutil.copytree(place, here, symlinks=True, dirs_exist_ok=True)
    folder = here / Path(scan.report.folder).relative_to(place)
    moved = replace(scan, report=replace(scan.report, folder=str(folder)))
    assert str(place) not in repr(moved)
    return moved


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    # set_tracking_uri outlasts a test
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    yield mlflow
    while mlflow.active_run():
        mlflow.end_run()


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-store"))
    return wandb


@pytest.fixture
def begin(wandb, tmp_path):
    """What opens a run that asks no server."""
    yield lambda **how: wandb.init(project="trackers", dir=tmp_path, **{"mode": "offline"} | how)
    if wandb.run is not None:
        wandb.run.finish()


def test_mlflow_keeps_the_digest_the_counts_and_the_files(done, mlflow):
    with mlflow.start_run() as active:
        datacheck.log_to_mlflow(done)
    kept = mlflow.get_run(active.info.run_id)
    digest = done.report.dataset["digest"]
    assert {k: kept.data.metrics[f"datacheck/{k}"] for k in CODES} == dict(
        zip(CODES, (9, 10, 1, 1), strict=True)
    )
    assert kept.data.metrics["datacheck/failed/DC101"] == 0
    assert kept.data.tags["datacheck/digest"] == digest
    assert kept.data.tags["datacheck/verdict"] == "fail"
    assert kept.data.tags["datacheck/failing"] == "DC221"
    (used,) = kept.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("plain", digest)
    names = {f.path for f in mlflow.MlflowClient().list_artifacts(active.info.run_id, "datacheck")}
    assert names == {"datacheck/result.json", "datacheck/report.html"}
    copy = mlflow.artifacts.download_artifacts(
        run_id=active.info.run_id, artifact_path="datacheck/result.json"
    )
    assert json.loads(Path(copy).read_text())["dataset"]["digest"] == digest


def test_mlflow_finds_the_runs_of_a_dataset_by_its_digest(done, mlflow):
    with mlflow.start_run() as active:
        datacheck.log_to_mlflow(done)
    with mlflow.start_run():
        pass
    wanted = f"tags.`datacheck/digest` = '{done.report.dataset['digest']}'"
    found = mlflow.MlflowClient().search_runs([active.info.experiment_id], wanted)
    assert [run.info.run_id for run in found] == [active.info.run_id]


def test_no_number_is_told_of_a_rule_that_judged_nothing(done, mlflow):
    with mlflow.start_run() as active:
        datacheck.log_to_mlflow(done)
    rules = {v.code: v for v in done.report.verdicts}
    told = {
        name.rpartition("/")[2]
        for name in mlflow.get_run(active.info.run_id).data.metrics
        if "/failed/" in name
    }
    assert told == {code for code, v in rules.items() if v.checked}
    assert len(told) < len(rules)


def test_a_rule_that_fails_as_a_whole_is_no_zero():
    assert not trackers._judged_samples({"status": "fail", "checked": 5, "failed": 0})
    assert trackers._judged_samples({"status": "pass", "checked": 5, "failed": 0})
    assert not trackers._judged_samples({"status": "not_applicable"})


def test_no_run_of_mlflow_is_begun(done, mlflow):
    with pytest.raises(UsageError, match=r"mlflow.start_run\(\)"):
        datacheck.log_to_mlflow(done)
    assert mlflow.active_run() is None
    assert mlflow.search_runs(output_format="list") == []


def test_a_run_of_mlflow_is_chosen_by_its_id_and_the_open_one_stays_as_it_is(done, mlflow):
    with mlflow.start_run() as other:
        pass
    with mlflow.start_run() as active:
        datacheck.log_to_mlflow(".datacheck", run_id=other.info.run_id, prefix="datacheck/val")
        assert mlflow.active_run().info.run_id == active.info.run_id
    assert mlflow.get_run(active.info.run_id).data.metrics == {}
    assert mlflow.get_run(other.info.run_id).data.metrics["datacheck/val/valid"] == 9


def test_both_keep_the_digest_of_a_cache(here, mlflow, begin):
    # A build notices that the files of the copied scan are others
    done = datacheck.scan_dataset("data", "plain.yaml")
    (built,) = datacheck.build_cache("plain.yaml", "data", "cache", run=done)
    cache = open_cache(built.path)
    with mlflow.start_run() as active:
        datacheck.log_to_mlflow(done)
        datacheck.log_to_mlflow(built)
    kept = mlflow.get_run(active.info.run_id)
    assert kept.data.tags["datacheck/cache/all/digest"] == cache.manifest.digest
    assert kept.data.tags["datacheck/digest"] == done.report.dataset["digest"]
    assert (
        kept.data.metrics["datacheck/cache/all/samples"],
        kept.data.metrics["datacheck/cache/all/valid"],
    ) == (10, 9)
    assert {d.dataset.name for d in kept.inputs.dataset_inputs} == {"plain", "plain/all"}
    run = begin()
    datacheck.log_to_wandb("cache")
    assert run.config["datacheck/cache/all/digest"] == cache.manifest.digest
    run.finish()


def test_wandb_keeps_the_digest_and_the_counts_and_takes_no_step(done, wandb, begin, tmp_path):
    run = begin()
    datacheck.log_to_wandb(done)
    assert run.step == 0
    assert run.config["datacheck/digest"] == done.report.dataset["digest"]
    assert {k: run.summary[f"datacheck/{k}"] for k in CODES} == dict(
        zip(CODES, (9, 10, 1, 1), strict=True)
    )
    run.finish()
    wandb.teardown()  # its service may write the last of a run after finish()
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    raw = b"".join(path.read_bytes() for path in folder.glob("*.wandb"))
    for said in (
        b"datacheck-plain",
        b"result.json",
        b"report.html",
        done.report.dataset["digest"].encode(),
    ):
        assert said in raw


def test_no_run_of_wandb_is_begun(done, wandb, tmp_path):
    with pytest.raises(UsageError, match=r"wandb.init\(\)"):
        datacheck.log_to_wandb(done)
    assert wandb.run is None
    assert not (tmp_path / "wandb").exists()


def test_a_run_of_wandb_that_is_disabled_is_told_in_vain(done, begin):
    run = begin(mode="disabled")
    datacheck.log_to_wandb(done, to=run)
    run.finish()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_told_and_act_on_nothing(name, made_run, mlflow, begin):
    folder = evil_run(made_run, HOSTILE[name])
    with mlflow.start_run() as active:
        datacheck.log_to_mlflow(folder)
    kept = mlflow.get_run(active.info.run_id)
    assert all(
        not leaks(text) for key, text in kept.data.tags.items() if key.startswith("datacheck/")
    )
    assert all(not leaks(key) for key in kept.data.metrics)
    assert all(not leaks(used.dataset.name) for used in kept.inputs.dataset_inputs)
    run = begin()
    datacheck.log_to_wandb(folder)
    assert all(not leaks(str(text)) for text in dict(run.config).values())
    run.finish()


@pytest.mark.parametrize("prefix", ["", "/", "a//b", "../x", "a b", "a\n", "x" + "\x1b"])
def test_a_prefix_that_is_no_name_is_refused(done, mlflow, prefix):
    with mlflow.start_run(), pytest.raises(UsageError, match="prefix="):
        datacheck.log_to_mlflow(done, prefix=prefix)


def test_what_is_neither_a_run_nor_a_cache_is_refused(here, mlflow):
    with (
        mlflow.start_run(),
        pytest.raises(UsageError, match="data: is neither a finished run nor a cache"),
    ):
        datacheck.log_to_mlflow("data")


def test_the_page_is_written_where_it_is_missing(done, mlflow, here):
    assert not list(here.glob(".datacheck/*/report.html"))
    with mlflow.start_run():
        datacheck.log_to_mlflow(done)
    assert list(here.glob(".datacheck/*/report.html"))


def test_a_link_in_the_place_of_the_page_sends_no_other_file(done, here):
    page = Path(done.report.folder, "report.html")
    (here / "secret").write_text("mine")
    page.symlink_to(here / "secret")
    told = trackers._tracked_dataset(".datacheck", "datacheck", files=True)
    assert Path(told.files[1]).resolve() == page
    assert not page.is_symlink()
    assert (here / "secret").read_text() == "mine"


@pytest.mark.parametrize(
    "bad", ["{", "{}", "[]", "null", '{"dataset": {"root": 5}, "verdict": 0, "rules": {}}']
)
def test_a_run_that_cannot_be_read_is_told(done, mlflow, bad):
    Path(done.report.folder, "result.json").write_text(bad)
    with (
        mlflow.start_run(),
        pytest.raises(UsageError, match=r"this run cannot be read \(.*Scan the data again"),
    ):
        datacheck.log_to_mlflow(".datacheck")


def test_a_page_that_cannot_be_made_of_a_damaged_run_is_told(done, mlflow):
    Path(done.report.folder, "samples.parquet").chmod(0o644)
    Path(done.report.folder, "samples.parquet").write_bytes(b"PAR1")
    with mlflow.start_run() as active, pytest.raises(UsageError, match="this run cannot be read"):
        datacheck.log_to_mlflow(".datacheck")
    assert mlflow.get_run(active.info.run_id).data.metrics == {}


def test_no_path_of_the_machine_is_told_and_files_that_show_samples_can_stay(
    here, mlflow, begin, monkeypatch
):
    """The folder of the data lies outside of the working folder."""
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    done = datacheck.scan_dataset(here / "data", here / "plain.yaml")
    (built,) = datacheck.build_cache(here / "plain.yaml", here / "data", here / "cache", run=done)
    with mlflow.start_run() as active:
        datacheck.log_to_mlflow(done, files=False)
        datacheck.log_to_mlflow(built)
    kept = mlflow.get_run(active.info.run_id)
    tags = {key: text for key, text in kept.data.tags.items() if key.startswith("datacheck/")}
    used = [str(used.dataset.to_dictionary()) for used in kept.inputs.dataset_inputs]
    assert (tags["datacheck/root"], tags["datacheck/cache/all/path"]) == ("data", built.path.name)
    assert str(here) not in "".join([*tags.values(), *used])
    assert mlflow.MlflowClient().list_artifacts(active.info.run_id) == []
    run, artifacts = begin(), []
    monkeypatch.setattr(type(run), "log_artifact", lambda run, artifact: artifacts.append(artifact))
    datacheck.log_to_wandb(done, files=False)
    (artifact,) = artifacts
    assert set(artifact.manifest.entries) == {"facts.json"}
    said = json.loads(Path(artifact.manifest.entries["facts.json"].local_path).read_text())
    assert (said["digest"], said["valid"]) == (done.report.dataset["digest"], 9)
    assert str(here) not in str([dict(run.config), dict(run.summary), artifact.metadata, said])


def test_data_in_the_working_folder_are_named_as_seen_from_it(here, mlflow):
    done = datacheck.scan_dataset(here / "data", "plain.yaml")
    with mlflow.start_run() as active:
        datacheck.log_to_mlflow(done)
    (used,) = mlflow.get_run(active.info.run_id).inputs.dataset_inputs
    assert Path(mlflow.data.get_source(used).load()).samefile(here / "data")


class Counted(BaseHTTPRequestHandler):
    """A server of W&B that answers nothing, and counts who asks."""

    asked: ClassVar[list[str]] = []

    def do_POST(self):
        self.asked.append(self.path)
        self.send_error(404)

    def do_GET(self):
        self.do_POST()

    def log_message(self, *args):
        pass


def test_offline_nothing_is_sent(done, begin, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Counted) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        run = begin()
        datacheck.log_to_wandb(done)
        run.finish()
        assert Counted.asked == []
        with contextlib.suppress(OSError):
            urlopen(f"http://127.0.0.1:{server.server_port}/seen")
        assert Counted.asked == ["/seen"]
        server.shutdown()


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_library_that_is_missing_is_told(done, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    wanted = rf"{name} is not installed: pip install 'datacheck\[{name}\]'"
    with pytest.raises(MissingDependencyError, match=wanted) as raised:
        getattr(datacheck, f"log_to_{name}")(done)
    assert raised.value.exit_code == 3


def test_neither_is_loaded_before_it_is_asked_for():
    script = (
        "import sys, datacheck; datacheck.log_to_mlflow, datacheck.log_to_wandb; "
        "print('\\n'.join(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"mlflow", "wandb", "torch", "zarr", "dask"} & set(run.stdout.split()) == set()
