"""A folder of its own for each test, in which loaders of ``tests.audit.loaders`` find their data."""

import pytest

from datacheck.scan import scan_loader
from datacheck.schema.model import Schema
from datacheck.testing.synth import write
from tests.audit.forks import forked_loaders


@pytest.fixture
def place(tmp_path, monkeypatch, repository):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(repository))
    return tmp_path


@pytest.fixture
def data(place):
    def make(system, **size):
        write(system, place / "data", seed=3, **size)
        return place / "data"

    return make


@pytest.fixture
def audit(audit_anew):
    """Scan what a loader of this folder returns; its fields are given as a schema writes them."""
    with forked_loaders():
        yield audit_anew


@pytest.fixture
def audit_anew(place):
    """Scan as `audit` does, with a new interpreter for each process of the loader."""

    def run(factory, fields=None, data=None, **options):
        keys = {key: options.pop(key) for key in ("rules", "loader", "windows") if key in options}
        schema = None
        if fields is not None:
            base = {"datacheck": 1, "name": "served", "samples": {"files": "*"}, "fields": fields}
            schema = Schema.model_validate(base | keys)
        return scan_loader(f"tests.audit.loaders.{factory}", schema, data, **options)

    return run


def told(run):
    """Return (code, kind of the cause) of every finding but those for information."""
    return sorted(
        (f.code, f.cause.kind if f.cause else "")
        for f in run.report.findings
        if f.severity != "info"
    )


def finding(run, code, kind=None):
    """Return the one finding with this code and cause."""
    (found,) = [
        f for f in run.report.findings if f.code == code and (kind is None or f.cause.kind == kind)
    ]
    return found
