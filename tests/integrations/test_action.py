"""``action.yml``: what GitHub's schema allows, and its scripts under bash as the runner calls it."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml

from tests.report.test_github import runner as commands_in

BASH = ["bash", "--noprofile", "--norc", "-eo", "pipefail"]  # "shell: bash"
RECORD = """#!{python} -S
import os, shutil, sys
with open({record!r}, "a") as file:
    file.write(repr(sys.argv[1:]) + "\\n")
if sys.argv[1:4] == ["-I", "-m", "venv"]:
    os.makedirs(sys.argv[4] + "/bin")
    shutil.copy(__file__, sys.argv[4] + "/bin/python")
"""
DATACHECK = """#!/bin/sh
exec {python} -c 'from datacheck.cli.main import main; main()' "$@"
"""
EVIL = [
    "$(touch owned)",
    "`touch owned`",
    "'; touch owned; '",
    '"; touch owned; "',
    "a && touch owned",
    "| touch owned",
    "-x",
    "--help",
    "--output=owned",
    "${{ github.token }}",
    "*",
    "~",
    "$HOME",
    "\\",
    "a\nb",
    "::error::x",
    "x\n::error title=owned::owned",
    "a\r::warning::b",
    "##[error]owned",
]


@pytest.fixture(scope="module")
def action(repository):
    return yaml.safe_load((repository / "action.yml").read_text())


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def step(action, place, repository, monkeypatch, forked_python):
    """Run a step of the action as the runner does; returns (exit code, standard output, standard error, outputs)."""
    temp = place.parent / f"{place.name}-runner"
    executable(temp / "datacheck-venv/bin/datacheck", DATACHECK.format(python=forked_python))
    executable(
        temp / "fakes/python3", RECORD.format(python=sys.executable, record=str(temp / "record"))
    )
    for name in [name for name in os.environ if name.startswith("GITHUB_")]:
        monkeypatch.delenv(name)
    contexts = {
        "github.server_url": "https://example.org",
        "github.action_repository": "them/datacheck",
        "github.action_path": str(repository),
    }

    def step(number, repository_name=None, **inputs):
        given = {name: said.get("default", "") for name, said in action["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        known = contexts | {f"inputs.{name}": value for name, value in given.items()}
        known |= {} if repository_name is None else {"github.action_repository": repository_name}
        one = action["runs"]["steps"][number]
        own = {
            name: re.sub(r"\$\{\{ (.*?) \}\}", lambda match: known[match[1]], value)
            for name, value in one["env"].items()
        }
        script, output, summary = temp / "script.sh", temp / "output", temp / "summary.md"
        script.write_text(one["run"])
        for file in (output, summary):
            file.write_text("")
        env = os.environ | own
        env |= {
            "RUNNER_TEMP": str(temp),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
        }
        env |= {"PYTHONPATH": str(repository), "CI": "true", "GITHUB_ACTIONS": "true"}
        if number == 0:
            env["PATH"] = f"{temp / 'fakes'}{os.pathsep}{env['PATH']}"
        run = subprocess.run([*BASH, script], cwd=place, env=env, capture_output=True, check=False)
        outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
        return run.returncode, run.stdout.decode(), run.stderr.decode(), outputs

    step.temp = temp
    return step


def installed(step):
    """What the fake Python was called with, and nothing where it was not."""
    record = step.temp / "record"
    return [eval(line) for line in record.read_text().splitlines()] if record.exists() else []  # noqa: S307  our own


def test_it_is_an_action_of_github(action, repository):
    schema = json.loads((repository / "tests/data/github-action.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    assert [error.message for error in validator.iter_errors(action)] == []
    assert list(validator.iter_errors({**action, "runs": {"using": "composite"}}))
    assert set(action["inputs"]) == {"data", "schema", "level", "fail-on", "sarif", "version"}


def test_no_script_holds_an_expression(action):
    scripts = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    assert len(scripts) == 2
    assert [script for script in scripts if "${{" in script] == []


def test_every_expression_names_what_there_is(action):
    said = json.dumps(action)
    assert set(re.findall(r"inputs\.([a-z-]+)", said)) == set(action["inputs"])
    assert set(re.findall(r"steps\.scan\.outputs\.([a-z]+)", said)) == set(action["outputs"])


def test_findings_are_annotations_and_a_summary(step):
    code, out, err, outputs = step(1, data="data", schema="plain.yaml")
    assert code == 1
    assert all(line.startswith("| ") for line in err.splitlines())
    ((kind, properties, message),) = commands_in(out)
    assert (kind, properties["title"]) == ("error", "DC221 non-finite · x (1 of 10 samples)")
    assert "  3.npy" in message.splitlines()
    assert (
        (step.temp / "summary.md")
        .read_text()
        .startswith("### ❌ FAIL: 9 of 10 samples are fit for training\n")
    )
    assert set(outputs) == {"results"}
    assert (Path(outputs["results"]) / "report.html").is_file()


def test_sarif_is_written_where_it_is_asked_for(step, place):
    code, out, _, outputs = step(1, data="data", schema="plain.yaml", sarif="true")
    assert (code, len(commands_in(out))) == (1, 1)
    (result,) = json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": "data/3.npy", "uriBaseId": "%SRCROOT%"}
    assert (step.temp / "summary.md").read_text().count("### ") == 1
    np.save(place / "data/3.npy", np.zeros(4, np.float32) + 5)
    code, out, _, outputs = step(1, data="data", schema="plain.yaml", sarif="true")
    assert (code, out) == (0, "")
    assert json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"] == []


def test_options_reach_the_scan(step):
    code, _, _, outputs = step(
        1, data="data", schema="plain.yaml", fail_on="never", level="structure"
    )
    assert code == 0
    said = json.loads((Path(outputs["results"]) / "result.json").read_text())
    assert (said["run"]["level"], said["run"]["fail_on"]) == ("structure", "never")


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"data": "nowhere"}, "nowhere: no such file or folder"),
        ({"data": "data", "schema": "nowhere.yaml"}, "nowhere.yaml"),
        ({"data": "data", "schema": "plain.yaml", "level": "deepest"}, "'deepest' is not one of"),
    ],
)
def test_a_wrong_request_is_told_and_leaves_no_output(step, inputs, told):
    code, out, err, outputs = step(1, sarif="true", **inputs)
    assert (code, outputs) == (2, {})
    assert told in err
    assert "Traceback" not in err
    ((kind, _, message),) = commands_in(out)
    assert (kind, message) == (
        "error",
        "the scan ended with exit code 2; the log of this step says why",
    )


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("name", ["data", "schema", "level", "fail_on", "sarif"])
def test_no_input_is_run_and_none_is_a_command_to_the_runner(step, place, name, evil):
    before = sorted(path.name for path in place.iterdir())
    inputs = {"data": "data", "schema": "plain.yaml"} | {name: evil}
    code, out, err, outputs = step(1, **inputs)
    assert code == (1 if name == "sarif" else 2)
    assert set(outputs) == ({"results"} if name == "sarif" else set())
    assert [kind for kind, _, _ in commands_in(out)] == ["error"]
    assert all(line.startswith("| ") for line in re.split(r"[\r\n]+", err) if line)
    assert {path.name for path in place.iterdir()} - set(before) <= {".datacheck"}


def test_a_file_of_the_data_gives_no_command(step, place):
    for path in (place / "data").iterdir():
        path.unlink()
    (place / "data/\n::error::owned\n.xyz").write_text("x")
    code, out, err, _ = step(1, data="data", schema="plain.yaml")
    assert (code, len(commands_in(out))) == (2, 1)
    assert all(line.startswith("| ") for line in err.splitlines())


def test_the_version_of_the_action_is_installed_into_an_environment_of_its_own(step, repository):
    (step.temp / "datacheck-venv/bin/datacheck").unlink()
    (step.temp / "datacheck-venv/bin").rmdir()
    assert step(0) == (0, "", "", {})
    venv, pip = installed(step)
    assert venv == ["-I", "-m", "venv", f"{step.temp}/datacheck-venv"]
    # Without -I, a pip/ of the workspace would run
    assert pip[:4] == ["-I", "-m", "pip", "install"]
    assert pip[-1] == f"{repository}[clouds,images,text]"


def test_another_version_is_that_of_the_repository_of_the_action(step):
    (step.temp / "datacheck-venv/bin/datacheck").unlink()
    (step.temp / "datacheck-venv/bin").rmdir()
    assert step(0, version="v0.1.0")[0] == 0
    wanted = "datacheck[clouds,images,text] @ git+https://example.org/them/datacheck@v0.1.0"
    assert installed(step)[-1][-1] == wanted
    code, out, _, _ = step(0, version="v0.1.0", repository_name="")
    assert (code, "uses: ./" in out) == (2, True)


@pytest.mark.parametrize(
    "evil", [*EVIL, "x @ https://evil.example/x.whl", "../..", "v1#egg=x", "v1@v2", "é", "x y"]
)
def test_a_version_that_is_none_is_refused(step, place, evil):
    code, out, _, _ = step(0, version=evil)
    assert (code, installed(step)) == (2, [])
    ((kind, _, message),) = commands_in(out)
    assert (kind, message[:8]) == ("error", "version:")
    assert not (place / "owned").exists()


def test_the_page_uses_what_there_is(action, repository):
    page = (repository / "docs/ci.md").read_text()
    hook, workflow, *_ = (
        yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    )
    (ours,) = [step for step in workflow["jobs"]["data"]["steps"] if "/datacheck@" in step["uses"]]
    assert set(ours["with"]) <= set(action["inputs"])
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == set(action["inputs"])
    (manifest,) = yaml.safe_load((repository / ".pre-commit-hooks.yaml").read_text())
    assert hook["repos"][0]["hooks"][0]["id"] == manifest["id"]
