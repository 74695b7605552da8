"""The pytest plug-in: ``pytest --datacheck DATA`` adds one test for each rule.

Without the option or its setting, the plug-in only adds options. The scan runs in a process of its
own, so the test process loads nothing for it, the two do not affect each other, and the warning
filters, patches and coverage of the tests do not reach the scan. With pytest-xdist the scan runs
once, before the workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

_SCAN = [
    sys.executable,
    "-P",
    "-c",
    "from datacheck.cli.main import main; main()",
    "scan",
    "--format=json",
]
_RESULT_KEY = "datacheck_result"  # in the input of a pytest-xdist worker


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and the settings for runs whose command line names no tests."""
    group = parser.getgroup("datacheck", "scan of data, a test for each rule")
    group.addoption(
        "--datacheck",
        metavar="DATA",
        help="Scan DATA, a folder or a file, and add a test for each rule.",
    )
    group.addoption(
        "--datacheck-schema",
        metavar="NAME|FILE",
        help="Built-in schema or YAML file. Default: the built-in one that fits.",
    )
    parser.addini(
        "datacheck", "data to scan where no tests are named, relative to this file", default=""
    )
    parser.addini(
        "datacheck_schema", "built-in schema, or YAML file relative to this file", default=""
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the scan where an option or the configuration file asks for one."""
    if hasattr(config, "workerinput"):
        if _RESULT_KEY in config.workerinput:
            config.pluginmanager.register(
                _Scan(config, "", config.workerinput[_RESULT_KEY]), "datacheck-scan"
            )
        return
    data = config.option.datacheck
    if (
        data is None
        and config.getini("datacheck")
        and config.args_source is not pytest.Config.ArgsSource.ARGS
    ):
        data = _configured_path(config, config.getini("datacheck"))
    if data is not None:
        config.pluginmanager.register(_Scan(config, data), "datacheck-scan")
    elif config.option.datacheck_schema is not None:
        msg = "--datacheck-schema goes with --datacheck DATA"
        raise pytest.UsageError(msg)


def _configured_path(config: pytest.Config, name: str) -> str:
    """Return a path in the configuration file, relative to where pytest was called."""
    folder = config.rootpath if config.inipath is None else config.inipath.parent
    return os.path.relpath(folder / name, config.invocation_params.dir)


class _Scan:
    """Scans once, in the main pytest process, and adds the tests."""

    def __init__(self, config: pytest.Config, data: str, said: str | None = None) -> None:
        self._config, self._data, self._result = config, data, said

    @property
    def result_json(self) -> str:
        """The result.json of the scan, as text."""
        if self._result is None:
            self._result = _run_scan(self._data, self._schema(), self._config.invocation_params.dir)
        return self._result

    def _schema(self) -> str | None:
        option: str | None = self._config.option.datacheck_schema
        name = self._config.getini("datacheck_schema")
        if option is not None or not name:
            return option
        file = _configured_path(self._config, name)
        return file if (self._config.invocation_params.dir / file).is_file() else str(name)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the result to a pytest-xdist worker."""
        node.workerinput[_RESULT_KEY] = self.result_json

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """Add the tests after all others, before pytest selects any (-k, -m, --lf)."""
        rules = _RuleCollector.from_parent(
            session, name="datacheck", nodeid="datacheck", said=json.loads(self.result_json)
        )
        report = session.ihook.pytest_make_collect_report(collector=rules)
        session.ihook.pytest_collectreport(report=report)  # the terminal counts them
        items.extend(report.result)


def _run_scan(data: str, schema: str | None, folder: Path) -> str:
    """Return the result.json of a scan, as text.

    Raises:
        pytest.UsageError: the scan wrote no result; the message is the command line's.
    """
    options = [] if schema is None else [f"--schema={schema}"]
    run = subprocess.run(
        [*_SCAN, *options, "--", data], cwd=folder, capture_output=True, check=False
    )
    if run.stdout:
        return run.stdout.decode()
    lines = run.stderr.decode(errors="replace").splitlines()
    messages = [
        line.removeprefix("datacheck: ") for line in lines if line.startswith("datacheck: ")
    ] or lines[-1:]
    msg = (
        f"--datacheck {data}: "
        f"{' '.join(messages) or f'the scan ended with {run.returncode} and said nothing'}"
    )
    raise pytest.UsageError(msg)


class _RuleCollector(pytest.Collector):
    """The rules of one scan."""

    def __init__(self, *, said: dict[str, Any], **more: Any) -> None:
        super().__init__(**more)
        self._result = said

    def collect(self) -> Iterable[pytest.Item]:
        """Return one test per rule."""
        return list(self._items())

    def _items(self) -> Iterator[pytest.Item]:
        from datacheck.report.exports.junit import outcomes, without_ci_commands  # noqa: PLC0415  needed by runs with a scan only

        # Names without brackets: pytest takes brackets for parameters.
        for outcome in map(without_ci_commands, outcomes(self._result)):
            name = f"{outcome.code}-{outcome.name}" if outcome.name else outcome.code
            yield _RuleItem.from_parent(
                self, name=name, outcome=outcome, root=self._result["dataset"]["root"]
            )


class _RuleItem(pytest.Item):
    """The test of one rule: it fails with the rule's findings."""

    def __init__(self, *, outcome: Any, root: str, **more: Any) -> None:
        super().__init__(**more)
        self._outcome, self._root = outcome, root
        if outcome.state == "skipped":
            self.add_marker(pytest.mark.skip(reason=outcome.message))

    def runtest(self) -> None:
        """Fail where the rule failed; report findings that do not count as a section."""
        if self._outcome.state in {"failed", "error"}:
            raise _RuleFailed
        if self._outcome.text:
            self.add_report_section("call", "datacheck", self._outcome.text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the findings as the command line prints them, without a traceback."""
        if not isinstance(excinfo.value, _RuleFailed):
            return super().repr_failure(excinfo, style)
        outcome = self._outcome
        summary = (
            f"{outcome.message}\n{outcome.trace}"
            if outcome.trace
            else ""
            if outcome.text
            else outcome.message
        )
        return "\n\n".join(part for part in (summary, outcome.text) if part)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the data folder and the name of the rule."""
        return self.config.invocation_params.dir / self._root, 0, f"datacheck {self.name}"


class _RuleFailed(Exception):  # noqa: N818  a verdict on the data, not an error of the program
    """A rule has failed."""
