"""What of previews.json comes into the page: as much as there is room for, and nothing where there is none."""

import orjson
import pytest

from datacheck.report.html import run_summary, write_page
from datacheck.scan.run_documents import PREVIEWS, PREVIEWS_FORMAT
from tests.report.conftest import finding


def previews(samples=3, size=100):
    fields = [{"field": "xyz", "kind": "note", "about": "x" * size}]
    return {
        "format": PREVIEWS_FORMAT,
        "findings": {"DC201:xyz": list(range(samples))},
        "left_out": ["2 samples not drawn"],
        "samples": [
            {"key": f"{n}.npy", "split": "", "fields": fields, "left_out": [], "why": ""}
            for n in range(samples)
        ],
    }


def test_the_pictures_of_a_run_are_in_its_page(made_run):
    folder = made_run()
    assert run_summary(folder)["previews"] is None
    (folder / PREVIEWS).write_bytes(orjson.dumps(previews()))
    found = run_summary(folder)["previews"]
    assert [sample["key"] for sample in found["samples"]] == ["0.npy", "1.npy", "2.npy"]
    assert found["findings"] == {"DC201:xyz": [0, 1, 2]}


def test_pictures_that_find_no_room_are_counted_and_the_page_stays_small(made_run):
    folder = made_run()
    (folder / PREVIEWS).write_bytes(orjson.dumps(previews(60, 100_000)))
    found = run_summary(folder)["previews"]
    assert len(found["samples"]) == 14  # of 100 kB each in 1.5 MB
    assert found["findings"] == {"DC201:xyz": list(range(14))}
    assert found["left_out"][-1] == "46 samples not drawn: the page has no more room"
    assert write_page(folder).stat().st_size < 3_000_000


@pytest.mark.parametrize("word", ["<", "x", "名"])
def test_some_pictures_find_room_beside_whatever_else_is_said(made_run, word):
    findings = [
        finding(message=word * 1000, examples=[word * 4000], fix=word * 1000, kind=str(n))
        for n in range(300)
    ]
    keys = [f"{n:06d}{word * 900}" for n in range(6000)]
    folder = made_run(
        rows=6000, failed=3000, findings=findings, unchecked=[word * 4000] * 50, keys=keys
    )
    (folder / PREVIEWS).write_bytes(orjson.dumps(previews(60, 25_000)))
    assert write_page(folder).stat().st_size < 3_000_000
    assert len(run_summary(folder)["previews"]["samples"]) >= 8


def test_overlaid_joints_come_first_and_those_without_room_are_counted(made_run):
    folder = made_run()
    overlays = [
        {"field": name, "why": name * size}
        for name, size in (("a", 100), ("b", 600_000), ("c", 100))
    ]
    (folder / PREVIEWS).write_bytes(orjson.dumps(previews(60, 25_000) | {"overlays": overlays}))
    found = run_summary(folder)["previews"]
    assert [one["field"] for one in found["overlays"]] == ["a", "c"]
    assert found["left_out"][-1] == "joints of 1 field not overlaid: the page has no more room"
    # As they were written before there were any
    (folder / PREVIEWS).write_bytes(orjson.dumps(previews()))
    assert run_summary(folder)["previews"]["overlays"] == []


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"format": "datacheck.previews/9"}'])
def test_a_file_that_is_no_previews_is_left_out(made_run, text):
    folder = made_run()
    (folder / PREVIEWS).write_bytes(text)
    assert run_summary(folder)["previews"] is None
