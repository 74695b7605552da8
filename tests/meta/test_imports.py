"""What an import loads, in a process of its own: contracts see names, this sees what really happens."""

import subprocess
import sys

import pytest

import datacheck.repro
import datacheck.torch

HEAVY = {
    "zarr",
    "dask",
    "distributed",
    "yaml",
    "torch",
    "pydantic",
    "h5py",
    "pyarrow",
    "numcodecs",
    "obstore",
    "PIL",
    "laspy",
}

FORBIDDEN = {
    "datacheck": HEAVY | {"numpy"},
    "datacheck.cli.main": HEAVY | {"numpy", "rich"},
    "datacheck.pytest_plugin": HEAVY
    | {"numpy", "orjson", "click", "datacheck.report", "datacheck.cli"},
    "datacheck.cache": HEAVY,
    "datacheck.torch": HEAVY - {"torch"}
    | {"datacheck.schema", "datacheck.formats", "datacheck.rules"},
    "datacheck.scan.loader_audit.loader_child": HEAVY
    | {"datacheck.schema", "datacheck.formats", "datacheck.rules", "datacheck.workers.parallel"},
    "datacheck.rules": HEAVY - {"pydantic"}
    | {"datacheck.formats", "datacheck.sources", "datacheck.cache"},
    "datacheck.schema": HEAVY - {"pydantic"},
    "datacheck.formats.base": HEAVY,
    "datacheck.scan": HEAVY - {"pydantic"},
    "datacheck.build": {"torch", "dask", "distributed", "yaml"},
    "datacheck.repro": HEAVY | {"numpy", "datacheck.repro.captures"},
    "datacheck.pipeline": {"torch", "dask", "distributed"},
    "datacheck.report.trackers": {"mlflow", "wandb", "torch", "dask", "distributed", "zarr"},
    "datacheck.repro.manifest": HEAVY,
    "datacheck.repro.compare": HEAVY,
    "datacheck.repro.bisect": HEAVY,
    "datacheck.sources.file_digests": HEAVY
    | {"datacheck.schema", "datacheck.cache", "datacheck.workers.parallel", "datacheck.repro"},
}


def loaded(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize("module", sorted(FORBIDDEN))
def test_an_import_loads_nothing_that_its_layer_may_not_reach(module):
    assert loaded(f"import {module}") & FORBIDDEN[module] == set()


def test_the_guard_sees_a_forbidden_import():
    assert loaded("import datacheck, yaml") & FORBIDDEN["datacheck"] == {"yaml"}


@pytest.mark.parametrize("package", [datacheck, datacheck.repro, datacheck.torch])
def test_names_that_are_loaded_later_are_shown_now(package):
    assert set(package.__all__) <= set(dir(package))


def test_the_public_names_are_few_and_all_there():
    assert len(datacheck.__all__) <= 16
    for name in datacheck.__all__:
        assert getattr(datacheck, name) is not None


SCAN = """
import numpy as np, pathlib
from datacheck.scan import scan
pathlib.Path("d").mkdir(exist_ok=True)
for i in range(3):
    np.save(f"d/{i}.npy", np.full((4, 3), np.nan if i == 0 else i, "f4"))
for _ in range(2):  # the second reads what the first wrote
    scan("d", schema="files")
"""


def test_a_scan_imports_no_pandas(tmp_path, monkeypatch):
    pytest.importorskip("pandas", reason="where there is none, none can be imported")
    monkeypatch.chdir(tmp_path)
    assert "pandas" not in loaded(SCAN)
    # As nearly all of Arrow does
    assert "pandas" in loaded(SCAN + "\nimport pyarrow; pyarrow.array(['a'])")
