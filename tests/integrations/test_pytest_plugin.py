"""``pytest --datacheck``: a test for each rule, and nothing at all where nobody asks."""

import json
import re

import numpy as np
import pytest

from datacheck import pytest_plugin
from datacheck.report.words import finding_lines
from tests.integrations.conftest import write_data

pytest_plugins = "pytester"
PLUGIN = "datacheck.pytest_plugin"
ASKED = ("--datacheck", "data", "--datacheck-schema", "plain.yaml")
WARNS = "\nrules: {DC221: {severity: warning}}\n"
RAISES = """
def raises(sample):
    return sample.fields["y"]
"""


@pytest.fixture
def user(pytester, monkeypatch, repository):
    """A user's repository with data and one test; what runs pytest there as a process of its own."""
    write_data(pytester.path)
    pytester.makepyfile(test_own="def test_own(): pass")
    for name in ("PYTEST_ADDOPTS", "CI", "PYTHONWARNINGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # installed or not, it is there once
    monkeypatch.setenv("PYTHONPATH", str(repository))
    return lambda *options: pytester.runpytest_subprocess("-p", PLUGIN, *options)


@pytest.fixture
def quick_user(user, pytester, monkeypatch, forked_python):
    """Like `user`; pytest runs in this process, and a process that was forked scans."""
    monkeypatch.setattr(pytest_plugin, "_SCAN", [forked_python, *pytest_plugin._SCAN[2:]])
    return lambda *options: pytester.runpytest_inprocess("-p", PLUGIN, *options)


def said(pytester):
    return json.loads((pytester.path / ".datacheck/latest/result.json").read_text())


def states(result):
    """What each test came to, by the code of its rule, as -v prints it."""
    found = [
        re.match(r"(?:\.\./)?datacheck::([\w:]+)-\S+ ([A-Z]+)", line) for line in result.outlines
    ]
    return {match[1]: match[2].lower() for match in found if match}


def test_there_is_a_test_for_every_rule_in_its_state(user, pytester):
    result = user("-v", *ASKED)
    assert result.ret == 1
    document = said(pytester)
    shown = {"pass": "passed", "fail": "failed"}
    found = states(result)
    assert found == {
        code: shown.get(rule["status"], "skipped") for code, rule in document["rules"].items()
    }
    tally = list(found.values())
    result.assert_outcomes(
        passed=tally.count("passed") + 1,
        failed=tally.count("failed"),
        skipped=tally.count("skipped"),
    )
    assert tally.count("failed") == 1
    result.stdout.fnmatch_lines([f"*collected {len(tally) + 1} items"])


def test_a_failure_is_the_block_of_the_finding_and_no_traceback(quick_user, pytester):
    result = quick_user(*ASKED)
    (finding,) = said(pytester)["findings"]
    block = "\n".join(finding_lines(finding))
    assert re.search(
        rf"\n_+ datacheck DC221-non-finite _+\n{re.escape(block)}\n", str(result.stdout)
    )
    assert "Traceback" not in str(result.stdout) + str(result.stderr)
    assert (pytester.path / ".datacheck/latest/report.html").is_file()


def test_the_page_asks_in_a_way_that_works_and_shows_what_is_printed(user, pytester, repository):
    page = (repository / "docs/ci.md").read_text()
    (command,) = re.findall(r"^    pytest (.*)$", page, re.MULTILINE)
    (shown,), (asks,) = (
        re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("text", "toml")
    )
    (pytester.path / "plain.yaml").rename(pytester.path / "my.yaml")
    by_command = user(*command.replace("DATA", "data").split())
    pytester.makefile(".toml", pyproject=asks)
    for result in (by_command, user()):
        title, *block = shown.splitlines()
        assert "\n".join(block) in str(result.stdout)
        assert title.strip("_") in str(result.stdout)


def test_a_rule_that_does_not_apply_says_why(quick_user):
    result = quick_user("-rs", *ASKED)
    result.stdout.fnmatch_lines(["SKIPPED * data: does not apply: no --reference given"])


def test_sound_data_pass(quick_user, pytester):
    np.save(pytester.path / "data/3.npy", np.zeros(4, np.float32) + 5)
    assert quick_user(*ASKED).ret == 0


def test_a_warning_passes_and_is_told(quick_user, pytester):
    (pytester.path / "plain.yaml").write_text((pytester.path / "plain.yaml").read_text() + WARNS)
    result = quick_user("-rP", *ASKED)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*datacheck DC221-non-finite*", "warning DC221 non-finite*", "  3.npy"]
    )


def test_a_crash_of_a_users_rule_is_a_failure_with_its_traceback(quick_user, pytester):
    (pytester.path / "own.py").write_text(RAISES)
    (pytester.path / "plain.yaml").write_text(
        (pytester.path / "plain.yaml").read_text() + "checks: [own:raises]\n"
    )
    result = quick_user("-v", *ASKED)
    assert states(result)["own:raises"] == "failed"
    result.stdout.fnmatch_lines(["KeyError: 'y'", "on the dataset", "Traceback*"])
    assert "INTERNALERROR" not in str(result.stdout)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--datacheck", "nowhere"),
            "ERROR: --datacheck nowhere: nowhere: no such file or folder. Check the path.",
        ),
        (("--datacheck=-x",), "ERROR: --datacheck -x: -x: no such file or folder. Check the path."),
        (
            ("--datacheck=data", "--datacheck-schema=nowhere.yaml"),
            "ERROR: --datacheck data: *nowhere.yaml*",
        ),
        (
            ("--datacheck=data", "--datacheck-schema=ho3d"),
            "ERROR: --datacheck data: *none of its 10 files fits*",
        ),
        (
            ("--datacheck-schema=plain.yaml",),
            "ERROR: --datacheck-schema goes with --datacheck DATA",
        ),
    ],
)
def test_a_wrong_request_is_a_usage_error(quick_user, options, told):
    for more in ((), ("-p", "xdist", "-n", "1")):
        result = quick_user(*options, *more)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([told])
        assert "Traceback" not in str(result.stdout) + str(result.stderr)
        assert "INTERNALERROR" not in str(result.stdout) + str(result.stderr)


def test_tests_are_chosen_like_any_others(quick_user):
    assert states(quick_user("-v", *ASKED, "-k", "non-finite")) == {"DC221": "failed"}
    assert len(states(quick_user("-v", *ASKED, "-k", "datacheck"))) > 50
    assert quick_user(*ASKED, "--deselect", "datacheck::DC221-non-finite").ret == 0
    assert states(quick_user("-v", *ASKED, "--lf")) == {"DC221": "failed"}


def test_junit_xml_of_pytest_has_the_rules(quick_user, pytester):
    import junitparser

    quick_user(*ASKED, "--junitxml", "out.xml")
    (suite,) = junitparser.JUnitXml.fromfile(str(pytester.path / "out.xml"))
    (failed,) = [
        case for case in suite if case.result and isinstance(case.result[0], junitparser.Failure)
    ]
    assert (failed.classname, failed.name) == ("datacheck", "DC221-non-finite")
    assert "  3.npy" in failed.result[0].text.splitlines()


def test_workers_share_one_scan(quick_user, pytester):
    quick_user(*ASKED)  # the first scan has nothing to compare with
    alone = states(quick_user("-v", *ASKED))
    before = len(list((pytester.path / ".datacheck").glob("*/result.json")))
    result = quick_user("-v", "-p", "xdist", "-n", "2", *ASKED)
    assert len(list((pytester.path / ".datacheck").glob("*/result.json"))) - before <= 1
    found = [
        re.match(r"\[gw\d\] .* ([A-Z]+) datacheck::([\w:]+)-\S+", line) for line in result.outlines
    ]
    assert {match[2]: match[1].lower() for match in found if match} == alone
    assert "  3.npy" in result.outlines


INI = """
[tool.pytest.ini_options]
datacheck = "data"
datacheck_schema = "plain.yaml"
"""


def test_the_configuration_file_asks_for_runs_that_name_no_tests(quick_user, pytester, monkeypatch):
    (pytester.path / "pyproject.toml").write_text(INI)
    assert states(quick_user("-v"))["DC221"] == "failed"
    quick_user("-v", "test_own.py").assert_outcomes(passed=1)
    quick_user(
        "-v", "-c", "pyproject.toml", "-p", "xdist", "-n", "1", "test_own.py"
    ).assert_outcomes(passed=1)
    (pytester.path / "below").mkdir()
    monkeypatch.chdir(pytester.path / "below")
    assert states(quick_user("-v"))["DC221"] == "failed"


def test_the_command_line_goes_before_the_configuration_file(quick_user, pytester):
    (pytester.path / "pyproject.toml").write_text(
        INI.replace('"data"', '"nowhere"').replace("plain.yaml", "files")
    )
    assert "DC221" in states(quick_user("-v", *ASKED, "test_own.py"))
    result = quick_user()
    result.stderr.fnmatch_lines(["ERROR: --datacheck nowhere: *"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_filters_of_warnings_do_not_reach_the_scan(user):
    assert states(user("-v", *ASKED, "-W", "error"))["DC221"] == "failed"


def test_names_of_files_stay_text(quick_user, pytester):
    evil = "a\x1b[31m\x9b1m\u202egpj\r.npy"
    (pytester.path / "data/3.npy").rename(pytester.path / "data" / evil)
    out = str(quick_user("--color=no", *ASKED).stdout)
    assert r"  a\x1b[31m\x9b1m\u202egpj\r.npy" in out
    assert not set("\x1b\x9b\u202e") & set(out)


def test_names_of_files_give_no_command_to_a_runner_of_ci(quick_user, pytester):
    (pytester.path / "data/3.npy").rename(pytester.path / "data/::error::a##[error]b.npy")
    out = str(quick_user("--color=no", *ASKED).stdout)
    assert r"  \x3a:error::a\x23#[error]b.npy" in out
    assert "##[" not in out


PROBE = """
import sys

HEAVY = {"numpy", "click", "orjson", "datacheck.cli", "datacheck.report", "datacheck.scan"}

def test_probe(pytestconfig):
    assert HEAVY & set(sys.modules) == set()
    assert not pytestconfig.pluginmanager.hasplugin("datacheck-scan")
"""


def test_where_nobody_asks_it_does_and_loads_nothing(user, pytester):
    pytester.makepyfile(test_own=PROBE)
    result = user("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*collected 1 item"])
    assert not (pytester.path / ".datacheck").exists()
