"""SARIF: every log fulfils the schema of the standard and GitHub's limits; no text of the data is more than text."""

import gzip
import json
import re
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.cli.run_output import _example_files
from datacheck.report import rule_pages
from datacheck.report.exports.sarif import sarif
from datacheck.scan.run_documents import dump_json, truncated
from tests.report.hostile import HOSTILE, hostile_result, leaks

HERE = Path("/work place")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")


@pytest.fixture(scope="module")
def validator(repository):
    schema = json.loads((repository / "tests/data/sarif-2.1.0-rtm.5.json").read_text())
    formats = jsonschema.FormatChecker(formats=())
    formats.checks("uri-reference")(
        lambda text: re.fullmatch(r"[A-Za-z0-9._~!$&'()*+,;=:@/?#%-]*", text) is not None
    )
    formats.checks("uri")(lambda text: bool(urlsplit(text).scheme))
    formats.checks("date-time")(lambda text: DATE.fullmatch(text) is not None)
    return jsonschema.Draft4Validator(schema, format_checker=formats)


def wrong(validator, log):
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(log)]


def of(run, here=None):
    said = json.loads(Path(run.report.folder, "result.json").read_bytes())
    return sarif(
        said, _example_files(run.report, run), here or Path(run.report.folder).parent
    ), said


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for item in pair for text in strings(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in strings(item))


def test_every_real_run_fulfils_the_schema(validator, runs):
    found = {name: wrong(validator, of(run)[0]) for name, run in runs.items()}
    assert found == {name: [] for name in runs}


def test_the_schema_refuses_a_log_that_is_wrong(validator, runs):
    log, _ = of(runs["broken"])
    log["runs"][0]["results"][0]["level"] = "fatal"
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] = (
        "a b"
    )
    log["runs"][0]["tool"]["driver"]["rules"][0]["code"] = "x"
    assert len(wrong(validator, log)) == 3


def test_a_finding_is_one_result_with_its_rule_level_place_and_fingerprint(runs):
    log, said = of(runs["broken"])
    (run,) = log["runs"]
    (result,) = [r for r in run["results"] if r["ruleId"] == "DC224"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (rule["id"], rule["name"]) == ("DC224", said["rules"]["DC224"]["name"])
    assert rule["help"]["text"].startswith("DC224 ")
    assert rule["help"]["markdown"].startswith("# DC224 ")
    assert len(run["results"]) == len(said["findings"])
    assert result["level"] == next(f["severity"] for f in said["findings"] if f["rule"] == "DC224")
    assert "(2 of 10 samples)" in result["message"]["text"]
    uris = [
        place["physicalLocation"]["artifactLocation"]
        for place in result["locations"] + result["relatedLocations"]
    ]
    assert [(uri["uri"], uri["uriBaseId"]) for uri in uris] == [
        ("bad/3.npy", "%SRCROOT%"),
        ("bad/5.npy", "%SRCROOT%"),
    ]
    assert result["partialFingerprints"]["datacheckFinding/v1"] == "DC224:x"
    assert run["invocations"][0]["executionSuccessful"] is True


def test_the_fingerprint_is_the_finding_and_not_its_numbers(runs):
    def prints(name):
        return {
            r["ruleId"]: r["partialFingerprints"]
            for r in of(runs[name])[0]["runs"][0]["results"]
            if "suppressions" not in r
        }

    assert prints("broken")["DC224"] == prints("unreadable")["DC224"] == prints("partly")["DC224"]
    results = of(runs["faults"])[0]["runs"][0]["results"]
    assert (
        len({r["partialFingerprints"]["primaryLocationLineHash"] for r in results})
        == len(results)
        >= 8
    )


def test_what_a_baseline_knows_is_a_suppressed_result(runs):
    results = of(runs["baseline"])[0]["runs"][0]["results"]
    (known,) = [r for r in results if "suppressions" in r]
    assert known["ruleId"] == "DC224"
    (suppression,) = known["suppressions"]
    assert suppression["justification"].endswith(": the old rig")
    assert (suppression["kind"], suppression["status"]) == ("external", "accepted")


def test_what_is_new_and_what_is_known_of_one_finding_are_told_apart(runs):
    new, known = [r for r in of(runs["partly"])[0]["runs"][0]["results"] if r["ruleId"] == "DC224"]
    assert ("suppressions" in new, "suppressions" in known) == (False, True)
    marks = [r["partialFingerprints"]["primaryLocationLineHash"] for r in (new, known)]
    assert [mark.rpartition(":")[2] for mark in marks] == ["1", "2"]
    assert marks[0].partition(":")[0] == marks[1].partition(":")[0]


@pytest.mark.parametrize(
    "text", ["[](x) " * 400, "[]\n(x) " * 400, "\x1b[](x)" * 400, "[a](" * 400]
)
def test_a_message_of_links_is_cut_behind_their_escapes(text):
    said = hostile_result("x")
    said["findings"][0] |= {"message": text, "fix": text}
    for result in sarif(said, {}, HERE)["runs"][0]["results"]:
        assert units(result["message"]["text"]) <= 1024
        assert not re.search(r"(?<!\\)\[[^\[\]]*\]\(", result["message"]["text"])


def test_levels_are_those_of_the_findings(runs):
    log, said = of(runs["faults"])
    levels = {"error": "error", "warning": "warning", "info": "note"}
    found = [*said["findings"], *said.get("suppressed", [])]
    assert [r["level"] for r in log["runs"][0]["results"]] == [levels[f["severity"]] for f in found]


def test_a_crash_is_a_notification_and_the_run_no_success(runs):
    (invocation,) = of(runs["crash"])[0]["runs"][0]["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 4)
    assert "KeyError" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    assert invocation["toolExecutionNotifications"][0]["associatedRule"] == {"id": "own:raises"}


def test_samples_of_a_loader_lie_in_no_file(runs):
    results = of(runs["loader"])[0]["runs"][0]["results"]
    uris = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results}
    assert uris == {"tests.report.real_runs%3AServed"}
    named = {
        place["logicalLocations"][0]["fullyQualifiedName"]
        for r in results
        for place in r["locations"]
        if "logicalLocations" in place
    }
    assert "000000000002" in named


@pytest.mark.parametrize(
    ("root", "file", "base", "uri"),
    [
        ("data", "/work place/data/a b.npy", "%SRCROOT%", "data/a%20b.npy"),
        ("/work place/data", "/work place/data/ü%.npy", "%SRCROOT%", "data/%C3%BC%25.npy"),
        ("/elsewhere/data", "/elsewhere/data/train/x#1.npy", "DATAROOT", "train/x%231.npy"),
        ("../data", "/data/c:d.npy", "DATAROOT", "c%3Ad.npy"),
        ("data", "/elsewhere/y.npy", "DATAROOT", "y.npy"),
        ("data", None, "%SRCROOT%", "data"),
        (".", None, "%SRCROOT%", "."),
        ("/elsewhere/data", None, "DATAROOT", "."),
    ],
)
def test_places_are_relative_and_say_nothing_of_the_machine(runs, root, file, base, uri):
    said = hostile_result("x")
    said["dataset"]["root"] = root
    if file is None:
        said["findings"][0]["examples"] = []
    places = {} if file is None else {"x": Path(file)}
    first = sarif(said, places, HERE)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert first["artifactLocation"] == {"uri": uri, "uriBaseId": base}


def test_a_rule_page_that_is_published_is_linked(validator, runs, monkeypatch):
    monkeypatch.setattr(rule_pages, "RULE_PAGES", "https://example.org/rules")
    log, _ = of(runs["broken"])
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert {rule["helpUri"] for rule in rules} == {
        f"https://example.org/rules/{rule['id']}.md" for rule in rules
    }
    assert wrong(validator, log) == []


def check_limits(log):
    """What code scanning refuses or cuts: docs.github.com, "SARIF support for code scanning"."""
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) <= 5_000
    assert len(rules) <= 25_000
    assert len(gzip.compress(json.dumps(log).encode("utf-8", "surrogatepass"))) < 10_000_000
    for rule in rules:
        assert 1 <= units(rule["name"]) <= 255
        assert len(rule["properties"]["tags"]) <= 10
        texts = [rule["shortDescription"]["text"], rule["fullDescription"]["text"]]
        assert all(1 <= units(text) <= 1024 for text in texts)
        assert rule["help"]["text"]
    for result in run["results"]:
        assert 1 <= units(result["message"]["text"]) <= 1024
        assert len(result["locations"]) == 1
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]


def units(text):
    return len(text.encode("utf-16-le")) // 2


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_the_data_is_more_than_text(validator, name):
    evil = HOSTILE[name]
    said = hostile_result(evil)
    log = sarif(said, {evil: HERE / "data" / f"d{evil}e"}, HERE)
    assert wrong(validator, log) == []
    json.dumps(log).encode("utf-8")  # no half of a character that no file can hold
    dump_json(log)
    for text in strings({**log["runs"][0], "tool": []}):
        assert leaks(text, allowed="") == set(), text
    check_limits(log)
    for result in log["runs"][0]["results"]:
        assert not re.search(r"(?<!\\)\[[^\[\]]*\]\(", result["message"]["text"])
        location = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert location["uri"].isascii()
        assert not location["uri"].startswith(("/", "..")) or location["uriBaseId"] == "DATAROOT"
        assert ":" not in location["uri"]


@given(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=[]), min_size=1).filter(
        lambda t: t not in {".", ".."}
    )
)
def test_a_uri_gives_back_the_name_of_the_file(name):
    log = sarif(hostile_result("x"), {"x": HERE / "data" / name}, HERE)
    uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"][
        "uri"
    ]
    assert PurePosixPath(unquote(uri, errors="surrogatepass")) == PurePosixPath("data") / name


def test_the_largest_result_stays_below_the_limits(validator):
    said = hostile_result(HOSTILE["markup"])
    many = [
        {**said["findings"][0], "id": f"DC902:{i}", "message": "m" * 5000} for i in range(30_000)
    ]
    small = truncated({**said, "findings": many}, lambda value: len(dump_json(value)))
    log = sarif(small, {}, HERE)
    assert 100 < len(log["runs"][0]["results"]) == len(small["findings"]) + len(small["suppressed"])
    check_limits(log)
    assert wrong(validator, log) == []


def test_a_finding_is_not_held_against_all_others(monkeypatch):
    asked = 0

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal asked
            asked += 1
            return str.__eq__(self, other)

    said = hostile_result("x")
    rule = said["findings"][0]["rule"]
    many = [
        {**said["findings"][0], "id": f"DC902:{i % 150}", "rule": Counted(rule)} for i in range(300)
    ]
    others = {Counted(f"X{i}"): said["rules"][rule] for i in range(300)}
    monkeypatch.setattr("datacheck.report.exports.sarif._cleaned", Counted)
    log = sarif(
        {**said, "rules": {**others, **said["rules"]}, "findings": many, "suppressed": []}, {}, HERE
    )
    results = log["runs"][0]["results"]
    numbers = [
        one["partialFingerprints"]["primaryLocationLineHash"].rpartition(":")[2] for one in results
    ]
    assert numbers == ["1"] * 150 + ["2"] * 150
    assert {one["ruleIndex"] for one in results} == {300 + list(said["rules"]).index(rule)}
    assert asked < 3_000


def test_time_and_version_are_spelled_out_whoever_wrote_them():
    """A run is checked when it is read; this is what holds where it is not."""
    document = hostile_result("x")
    evil = "\x1b]0;owned\x07\x9b31m\0"
    document["run"] |= {"started": f"{document['run']['started']}{evil}", "version": evil}
    assert not leaks(json.dumps(sarif(document, {}, Path.cwd()), ensure_ascii=False))


def test_numbers_beyond_64_bits_are_written_as_fractions_or_text():
    """A count of 1e308 in a dataset ended the writing of the report."""
    value = {"rows": 2 * 10**19, "list": [-(10**30), 7], "large": 1 << 1030}
    assert json.loads(dump_json(value)) == {
        "rows": 2e19,
        "list": [-1e30, 7],
        "large": str(1 << 1030),
    }
