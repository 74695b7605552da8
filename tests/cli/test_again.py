import json

import numpy as np
import pytest


@pytest.fixture
def run(here, place):
    """A finished run in which two of ten files are out of range."""
    for i in (2, 5):
        np.save(place / f"data/{i}.npy", np.full(4, 300.0, np.float32))
    assert here("scan", "data", "--schema", "plain.yaml")[0] == 1
    return place / ".datacheck/latest"


def test_a_baseline_holds_what_is_known_and_nothing_new(here, place, run):
    code, out, _ = here("baseline", run, "--reason", "the old rig")
    assert (code, "baseline.json: 1 finding of 2 samples" in out) == (0, True)
    assert json.loads((place / "baseline.json").read_text())["reason"] == "the old rig"
    assert here("scan", "data", "--schema", "plain.yaml", "--baseline", "baseline.json")[0] == 0
    assert here("rescore", run, "--baseline", "baseline.json")[0] == 0
    np.save(place / "data/7.npy", np.full(4, 300.0, np.float32))
    code, out, _ = here("scan", "data", "--schema", "plain.yaml", "--baseline", "baseline.json")
    assert (code, "7.npy" in out, "2.npy" in out) == (1, True, False)


def test_a_baseline_is_never_overwritten(here, place, run):
    (place / "known.json").write_text("mine")
    code, _, err = here("baseline", run, "--output", "known.json")
    assert (code, "exists, and is not overwritten" in err) == (2, True)
    assert (place / "known.json").read_text() == "mine"


def test_a_baseline_of_no_run_is_refused(here, place):
    code, _, err = here("baseline", "data")
    assert (code, "data: is no finished run" in err) == (2, True)
    assert not (place / "baseline.json").exists()


def test_what_is_judged_again_has_its_page(here, place, run):
    code, out, _ = here("rescore", run, "--output", "again")
    assert (code, "page      again/report.html" in out.splitlines()) == (1, True)
    assert b'"rescored":' in (place / "again/report.html").read_bytes()
    # A page is no file that datacheck has not written
    assert here("rescore", run, "--output", "again")[0] == 1


def test_the_folder_of_an_earlier_result_is_replaced_and_a_link_is_refused(here, place, run):
    assert here("rescore", run, "--output", "again")[0] == 1
    (place / "again/valid.json").unlink()
    assert here("rescore", ".datacheck", "--output", "again")[0] == 1
    assert (place / "again/valid.json").is_file()
    assert not list(place.glob(".again*"))
    code, _, err = here("rescore", run, "--output", run)
    assert (code, "latest: is a link" in err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        "report",
        "rescore --output o",
        "baseline",
        "card",
        "view 2.npy --no-open --run",
        "split --by key --train 0.8 --val 0.1 --test 0.1 --to o",
        "scan data --schema plain.yaml --reference",
    ],
)
def test_no_command_reads_a_run_behind_a_link_in_a_folder_of_runs(here, place, run, words):
    (place / "shared/.datacheck").mkdir(parents=True)
    (place / "shared/.datacheck/latest").symlink_to(run.resolve())
    (place / "data").rename(place / "told-outside")
    (place / "data").mkdir()
    np.save(place / "data/0.npy", np.zeros(4, np.float32))
    for folder in ("shared/.datacheck", "shared/.datacheck/latest"):
        code, out, err = here(*words.split(), folder)
        assert (code, out) == (2, "")
        assert "shared/.datacheck/latest: is a link, but to no run beside it" in err
    assert not [
        path for path in ("o", "baseline.json", "croissant.json") if (place / path).exists()
    ]


def test_a_folder_of_runs_that_is_a_link_is_shown_where_it_is_named_only(here, place, run):
    (place / "other").mkdir()
    (place / ".datacheck").rename(place / "other/.datacheck")
    (place / ".datacheck").symlink_to("other/.datacheck")
    code, out, err = here("view", "2.npy", "--no-open", "--out", "page.html")
    assert (code, out, ".datacheck: is a link" in err) == (3, "", True)
    assert here("view", "2.npy", "--no-open", "--out", "page.html", "--run", ".datacheck")[0] == 0
