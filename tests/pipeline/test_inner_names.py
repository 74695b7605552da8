"""Names inside files that no terminal, file or program can take: through a scan, a build and what comes after."""

import json
import sys

import numpy as np
import orjson
import pytest

from datacheck.cli import main as cli
from tests.sources.test_inner_names import pickled

SCHEMA = 'datacheck: 1\nname: any\nsamples: {files: "*.*"}\nfields: {"*": {}}\n'
NAMES = {
    "half a character": "a\udc80b",
    "nul": "a\0b",
    "lines": "a\nb",
    "upwards": "../../evil",
    "terminal": "\x1b[31mb",
    "direction": "a\u202eb",
    "absolute": "/etc/passwd",
    "empty": "",
    "dots": "..x/..",
    "slashes": "a//b",
    "back": "a\\..\\b",
    "markup": "<script>alert(1)</script>",
    "long": "n" * 300,
}
REFUSED = {"a\0b", "/etc/passwd", "", "a//b", "n" * 300}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command line; returns (exit code, standard output)."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/any.yaml").write_text(SCHEMA)
    monkeypatch.chdir(tmp_path / "work")

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["datacheck", *map(str, args)])
        code = cli.run()
        return code, capsys.readouterr().out

    return run


def everything(folder):
    return {path.relative_to(folder).parts[0] for path in folder.rglob("*")}


def write(folder, names):
    """Write one file for each name; returns the folder."""
    folder.mkdir()
    for number, name in enumerate(names):
        pickled(folder / f"{number}.pkl", ["good", name])
    return folder


def test_no_name_ends_a_command_that_reads_the_data_or_the_run(tmp_path, run):
    data = write(tmp_path / "data", NAMES.values())
    before = everything(tmp_path)
    assert run("scan", data, "--schema", "any.yaml", "--workers", 1, "--output", "run")[0] == 0
    for form in ("text", "json", "sarif", "junit", "github"):
        assert run("report", "run", "--format", form)[0] == 0
    for number in range(len(NAMES)):
        assert (
            run("view", f"{number}.pkl", "--run", "run", "--out", "view.html", "--no-open")[0] == 0
        )
    assert run("init", data, "-o", "draft.yaml")[0] == 0
    assert run("scan", data, "--schema", "draft.yaml", "--workers", 1, "--output", "second")[0] in {
        0,
        1,
    }
    assert everything(tmp_path) == before


def test_no_name_leads_out_of_a_cache_or_an_export(tmp_path, run):
    data = write(tmp_path / "data", [name for name in NAMES.values() if name not in REFUSED])
    before = everything(tmp_path)
    assert (
        run("cache", "build", "any.yaml", "--data", data, "--out", "cache", "--workers", 1)[0] == 0
    )
    (place,) = (path.parent for path in (tmp_path / "work/cache").rglob("manifest.json"))
    assert run("cache", "verify", place)[0] == 0
    # Of an npz file each name is that of a member.
    for form, code in (("npz", 2), ("webdataset", 0)):
        assert run("cache", "export", place, "--as", form, "--to", f"out-{form}")[0] == code
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_field_that_no_cache_can_have_is_a_wrong_request(tmp_path, run, name):
    data = write(tmp_path / "data", [name])
    assert (
        run("cache", "build", "any.yaml", "--data", data, "--out", "cache", "--workers", 1)[0] == 2
    )


def test_a_scan_says_which_names_are_no_text(tmp_path, run):
    data = tmp_path / "data"
    data.mkdir()
    pickled(data / "a.pkl", ["good", "x\udc80"])
    pickled(data / "b.pkl", ["good", "y\x07"])
    pickled(data / "c.pkl", ["good"])
    code, out = run(
        "scan", data, "--schema", "any.yaml", "--workers", 1, "--format", "json", "--output", "run"
    )
    (finding,) = (one for one in json.loads(out)["findings"] if one["rule"] == "DC107")
    assert code == 0
    assert finding["failed"] == 2
    assert r"x\udc80" in finding["message"]
    assert r"y\x07" in finding["message"]


def test_a_cache_has_the_field_under_its_escaped_name(tmp_path, run):
    data = tmp_path / "data"
    data.mkdir()
    pickled(data / "a.pkl", ["good", "x\udc80"])
    assert (
        run("cache", "build", "any.yaml", "--data", data, "--out", "cache", "--workers", 1)[0] == 0
    )
    (place,) = (path.parent for path in (tmp_path / "work/cache").rglob("manifest.json"))
    assert run("cache", "export", place, "--as", "npz", "--to", "out")[0] == 0
    (made,) = (tmp_path / "work/out").rglob("*.npz")
    with np.load(made) as values:
        assert values[r"x\udc80"].tolist() == [0, 1, 2]
    assert orjson.loads((place / "manifest.json").read_bytes())
