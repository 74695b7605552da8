"""The wheel that users install holds everything: every module imports, every data file is found."""

import os
import subprocess
import sys

import pytest

PROBE = """
import importlib, importlib.resources, pkgutil, sys
import datacheck
assert {folder!r} in datacheck.__file__, datacheck.__file__
for module in pkgutil.walk_packages(datacheck.__path__, "datacheck."):
    importlib.import_module(module.name)
    print(module.name)
from datacheck.schema.load import builtin, load_schema, builtin_folder
names = builtin()
assert "files" in names and "ho3d" in names, names
for name in names:
    load_schema(name)
assert {folder!r} in str(builtin_folder("schemas")) and list(builtin_folder("pipelines").glob("*.yaml"))
from datacheck.schema.robots import load_robot
from datacheck.schema.grammar import ROBOT_FOLDER, ROBOTS
assert {folder!r} in str(ROBOT_FOLDER) and "panda" in ROBOTS and all(map(load_robot, ROBOTS))
from datacheck.report.rule_pages import chinese
from datacheck.rules import catalogue
assert all(map(chinese, catalogue().values()))
exec({example!r})  # of docs/outputs.md: the schema of result.json
assert schema["$schema"] and {folder!r} in str(importlib.resources.files("datacheck"))
page = importlib.resources.files("datacheck.report").joinpath("page")
notice = page.joinpath("twgl.LICENSE.md").read_text()
assert "Gregg Tavares" in notice and notice.strip() in page.joinpath("twgl.js").read_text()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory, repository):
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(repository),
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    target = folder / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
    ]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    return target


@pytest.mark.slow
def test_every_module_of_the_installed_wheel_imports_and_finds_its_data(installed, repository):
    example = (
        (repository / "docs/outputs.md").read_text().split("```python\n")[1].partition("```")[0]
    )
    probe = PROBE.format(folder=str(installed), example=example)
    script = f"import sys\nsys.path.insert(0, {str(installed)!r})\n{probe}"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=installed, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    ours = {
        ".".join(p.relative_to(repository).with_suffix("").parts).removesuffix(".__init__")
        for p in (repository / "datacheck").rglob("*.py")
    }
    assert set(run.stdout.split()) | {"datacheck"} == ours


@pytest.mark.slow
def test_pytest_finds_the_plugin_of_the_installed_wheel(installed, tmp_path):
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "--datacheck",
        "nowhere",
        "-p",
        "no:cacheprovider",
    ]
    env = {**os.environ, "PYTHONPATH": str(installed)}
    run = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (run.returncode, "nowhere: no such file or folder" in run.stderr) == (4, True), (
        run.stdout + run.stderr
    )
