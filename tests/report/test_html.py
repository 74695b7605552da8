"""The page as a browser's parser reads it: one file, nothing of the user's as markup, small whatever is found."""

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path

import html5lib
import numpy as np
import orjson
import pytest

import datacheck
from datacheck.model.table import Measured
from datacheck.report.html import MOST_ROWS, run_summary, write_page
from datacheck.report.sample_table import _rounded
from datacheck.scan import scan
from datacheck.scan.rescore import Rescore, rescore
from datacheck.scan.run_documents import RESULT, SCHEMA, VALID
from datacheck.schema.load import parse_schema
from tests.report.brushed import brushed_run
from tests.report.conftest import SCHEMA_TEXT, finding, result, table
from tests.report.hostile import HOSTILE, evil_run
from tests.report.made_drift import compared_rules, one

ROOT = "{http://www.w3.org/1999/xhtml}"


def parsed(folder):
    text = write_page(folder).read_bytes().decode()
    parser = html5lib.HTMLParser()
    tree = parser.parse(text)
    assert parser.errors == []
    return text, tree


def data_of(tree):
    (block,) = (s for s in tree.iter(f"{ROOT}script") if s.get("type") == "application/json")
    return json.loads(block.text)


def test_the_page_parses_without_an_error_and_holds_the_run(made_run):
    _, tree = parsed(made_run())
    run = data_of(tree)
    assert run["verdict"]["valid"] == 90
    assert run["findings"][0]["rule"] == "DC201"
    assert [rule["code"] for rule in run["rules"]] == ["DC201", "DC221", "DC804", "DC902"]
    assert run["fields"][0]["name"] == "xyz"
    assert run["schema_text"] == SCHEMA_TEXT
    assert len(run["samples"]["rows"]) == 100
    assert run["samples"]["rows"][0][:4] == ["a/90.npy", "train", "not fit", "DC201"]
    assert tree.get("lang") == "en"


def test_every_real_run_says_of_each_sample_what_valid_json_says_of_it(runs):
    for name, run in runs.items():
        rows = run_summary(Path(run.report.folder))["samples"]["rows"]
        fit = {row[0]: row[2] in {"fit", "warned"} for row in rows}
        assert fit == dict(zip(run.table.keys, run.valid.tolist(), strict=True)), name
        of_folder = write_page(Path(run.report.folder)).read_bytes()
        assert write_page(run).read_bytes() == of_folder, name


def test_a_rule_that_refuses_one_sample_and_warns_of_another_says_so_of_each(made_run):
    folder = made_run(
        failed=3,
        findings=[
            finding(failed=2, of=100),
            finding(severity="warning", kind="near", failed=1, of=100),
        ],
    )
    (folder / VALID).write_text('{"excluded": {"a/97.npy": ["DC201"], "a/99.npy": ["DC201"]}}')
    run = run_summary(folder)
    assert [(row[0], row[2]) for row in run["samples"]["rows"][:4]] == [
        ("a/97.npy", "not fit"),
        ("a/99.npy", "not fit"),
        ("a/98.npy", "warned"),
        ("a/0.npy", "fit"),
    ]
    drawn = run["fields"][0]["measures"][0]["counts"]
    assert sum(sum(unfit) for unfit in drawn[1::2]) == 2


def test_python_writes_the_page_of_a_scan_or_of_the_folder_that_it_left(runs, tmp_path):
    run = runs["broken"]
    path = datacheck.write_page(run)
    assert path == Path(run.report.folder, "report.html")
    assert data_of(parsed(path.parent)[1])["run"]["id"] == run.report.run["id"]
    shutil.copytree(path.parent, tmp_path / "run")
    (tmp_path / "latest").symlink_to("run")
    assert datacheck.write_page(str(tmp_path)) == tmp_path / "latest/report.html"
    with pytest.raises(datacheck.DatacheckError, match="is no finished run"):
        datacheck.write_page(tmp_path / "nowhere")


def test_what_the_baseline_of_a_real_run_knows_is_in_its_page(runs):
    run = run_summary(Path(runs["baseline"].report.folder))
    assert [(f["rule"], f["suppressed"]) for f in run["suppressed"]] == [
        (f.code, f.suppressed) for f in runs["baseline"].report.suppressed
    ]
    assert run["suppressed"]


def test_only_the_script_and_the_style_of_ours_may_run_and_nothing_is_asked_of_the_network(
    made_run,
):
    text, tree = parsed(made_run())
    (policy,) = (m.get("content") for m in tree.iter(f"{ROOT}meta") if m.get("http-equiv"))
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    (script,) = (s for s in tree.iter(f"{ROOT}script") if s.get("type") is None)
    (style,) = tree.iter(f"{ROOT}style")
    assert rules["default-src"] == "'none'"
    for name, node in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(node.text.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert not re.search(r"(?:https?:)?//[a-z]", text.replace("http://www.w3.org/2000/svg", ""))
    assert not any(
        name.startswith("on") or name in {"src", "style"}
        for node in tree.iter()
        for name in node.attrib
    )


def test_the_scripts_never_parse_markup(repository):
    for path in (repository / "datacheck/report/page").glob("*.js"):
        text = path.read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "Function(",
            "srcdoc",
            "fetch(",
        ):
            assert word not in text, (path.name, word)
        assert len(text.splitlines()) <= 400


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_of_the_users_is_parsed_as_markup(made_run, name):
    plain, tree = parsed(evil_run(made_run, "x"))
    tags = [node.tag for node in tree.iter()]
    folder = evil_run(made_run, HOSTILE[name])
    text, tree = parsed(folder)
    assert [node.tag for node in tree.iter()] == tags
    assert text.count("<script") == plain.count("<script")
    run, said = data_of(tree), json.loads((folder / "result.json").read_text())
    for part in ("findings", "suppressed", "unchecked", "crashes", "dataset"):
        assert run[part] == said[part]
    compared = {
        code: rule.pop("compared") for code, rule in said["rules"].items() if "compared" in rule
    }
    assert run["rules"] == [{"code": code} | rule for code, rule in said["rules"].items()]
    names = [
        (one["code"], each["field"], each["split"])
        for one in run["drifts"]
        for each in one["measures"]
    ]
    assert (
        names
        == [
            (c, each["field"], each["split"])
            for c, one in compared.items()
            for each in one["measures"]
        ]
        != []
    )


@pytest.mark.parametrize("kind", ["findings", "unchecked", "crashes"])
def test_what_the_page_has_no_room_for_is_counted(made_run, kind):
    long = "<" * 4000  # 24 kB in the page
    many = {
        "findings": [finding(message=long[:1000], fix=long, kind=str(n)) for n in range(50)],
        "unchecked": [long] * 50,
        "crashes": [{"rule": "DC201", "at": "x", "traceback": long}] * 50,
    }
    run = run_summary(made_run(**{kind: many[kind]}, left_out={kind: 7}))
    assert len(run[kind]) < 50
    assert run["left_out"][kind] == 7 + 50 - len(run[kind])


def test_whole_numbers_of_the_sample_table_are_exact(made_run):
    made, _ = table(3, 1)
    made.columns["xyz:bytes"] = Measured(
        np.array([1_234_567, 89_012_345, 6]), np.array([True, True, False])
    )
    assert _rounded(made.columns["xyz:bytes"], np.arange(3)) == [1_234_567, 89_012_345, None]


def test_a_million_samples_and_fifty_thousand_failures_take_less_than_3_mb(made_run):
    folder = made_run(rows=1_000_000, failed=50_000)
    path = write_page(folder)
    assert path.stat().st_size < 3_000_000
    run = data_of(html5lib.parse(path.read_bytes().decode()))
    assert run["of_samples"] == {"total": 1_000_000, "failing": 50_000}
    assert len(run["samples"]["rows"]) == MOST_ROWS
    counts = np.sum([sum(c) for c in run["fields"][0]["measures"][0]["counts"]])
    assert counts == 1_000_000


@pytest.mark.parametrize("word", ["<", "x", "名", "\x01"])
def test_the_page_stays_small_whatever_is_said(made_run, word):
    long = word * 4000
    findings = [
        finding(message=word * 1000, examples=[long] * 3, fix=word * 1000, kind=str(n))
        for n in range(300)
    ]
    keys = [f"{n:06d}{long[:1000].replace(chr(1), 'y')}" for n in range(6000)]
    path = write_page(
        made_run(rows=6000, failed=3000, findings=findings, unchecked=[long] * 50, keys=keys)
    )
    assert path.stat().st_size < 3_000_000
    run = data_of(html5lib.parse(path.read_bytes().decode()))
    assert run["left_out"].get("findings", 0) + len(run["findings"]) == 300


def test_all_that_has_a_bound_may_be_full_at_once(tmp_path):
    word, whole, values = "<" * 50, np.ones(6000, bool), np.random.default_rng(0).normal(size=6000)
    columns = {
        f"{word}{n:03}:{stat}": (values + n, whole) for n in range(150) for stat in ("box", "near")
    }
    labels = {f"label{n}:classes": (np.ones((6000, 64), np.int32), whole) for n in range(20)}
    folder = brushed_run(tmp_path, 6000, columns | labels, splits=(word, "val"))
    long = [
        one("x", f"m{n}", 1.0 + n, here=values[:999], reference=values, split=word * 6)
        for n in range(200)
    ]
    rules = compared_rules(long) | compared_rules(long, "DC903")
    rules |= {f"DC{n}": compared_rules([])["DC902"] | {"why": word * 5} for n in range(100, 300)}
    findings = [finding(message=word * 16, suppressed=word) for _ in range(300)]
    more = {
        "crashes": [{"rule": "DC201", "at": word, "traceback": word * 80}] * 20,
        "suppressed": findings,
    }
    said = result(6000, 10, findings, rules=rules, unchecked=[word * 20] * 50, **more)
    said["dataset"]["splits"] = {f"{word * 6}{n}": {"samples": 9, "valid": 9} for n in range(200)}
    (folder / RESULT).write_bytes(orjson.dumps(said))
    fields = "".join(f"  label{n}: {{role: class, shape: [P], classes: 60}}\n" for n in range(20))
    schema = (
        f'datacheck: 1\nname: full\nsamples: {{files: "*.npy"}}\nfields:\n{fields}# {word * 2000}\n'
    )
    (folder / SCHEMA).write_text(schema, encoding="utf-8")
    assert write_page(folder).stat().st_size < 3_000_000
    assert 0 < len(run_summary(folder)["samples"]["rows"]) < MOST_ROWS


def test_a_run_without_a_sample_that_could_be_read_has_its_page(made_run):
    folder = made_run(rows=1, failed=1)
    assert data_of(parsed(folder)[1])["of_samples"] == {"total": 1, "failing": 1}


def test_a_run_is_drawn_with_the_run_that_it_was_compared_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    schema = parse_schema(
        'datacheck: 1\nname: drifts\nsamples: {files: "*.npy"}\n'
        "fields: {x: {role: points, shape: [P, 3], unit: m}}\nrules: {DC901: off}\n"
    )
    for name, at in (("old", 0.0), ("new", 3.0)):
        (tmp_path / name).mkdir()
        for n in range(20):
            np.save(
                tmp_path / name / f"{n}.npy",
                np.random.default_rng(n).uniform(at, at + 1 + n / 40, (50, 3)),
            )
    old = scan("old", schema)
    run = scan("new", schema, reference=Path(".datacheck/latest"))
    named = run.report.run["reference"]
    assert named == {
        "run": old.report.run["id"],
        "folder": f".datacheck/{Path(old.report.folder).name}",
    }
    said = run_summary(Path(run.report.folder))
    (x,) = (field for field in said["fields"] if field["name"] == "x")
    lowest = next(measure for measure in x["measures"] if measure["stat"] == "min")
    assert said["reference"] is True
    assert [sum(part) for part in lowest["then"]["counts"]] == [20]
    again = rescore(Rescore(Path(run.report.folder), reference=Path(old.report.folder)))
    assert data_of(parsed(again)[1])["reference"] is True
    # A folder may name any other
    assert data_of(parsed(Path(run.report.folder))[1])["reference"] is False
    shutil.move(named["folder"], tmp_path / "elsewhere")
    said = run_summary(Path(run.report.folder))
    assert (said["reference"], "then" in said["fields"][0]["measures"][0]) == (False, False)
    shutil.copytree(tmp_path / "elsewhere", named["folder"])  # another run has taken the place
    other = Path(named["folder"]) / RESULT
    other.write_bytes(other.read_bytes().replace(named["run"].encode(), b"20010101T000000Z"))
    assert run_summary(Path(run.report.folder))["reference"] is False
    for damaged in (b"", b"[]", b'{"run": 1}'):
        other.write_bytes(damaged)
        assert run_summary(Path(run.report.folder))["reference"] is False
