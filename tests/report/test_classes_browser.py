"""The shares of classes in headless Chromium: a table that says in words what its colours show."""

import pytest

from datacheck.report.html import page, run_summary
from tests.report.hostile import HOSTILE, leaks
from tests.report.test_browser import browser, pytestmark, texts
from tests.report.test_classes import HEAD, POINTS, SPLITS, made

NOTHING = "\u2013"
__all__ = ["browser", "pytestmark"]


@pytest.fixture
def opened(browser, made_run):
    """Open a page with these shares of classes; return what the browser logged."""

    def open_page(shares):
        file = made_run() / "page.html"
        file.write_bytes(page(run_summary(file.parent) | {"classes": shares}))
        browser.get_log("browser")
        browser.get(file.as_uri())
        browser.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
        )
        return browser.get_log("browser")

    return open_page


def cells(browser, part, table=0):
    return browser.execute_script(
        "return [...document.querySelectorAll('#classes "
        "table')[arguments[0]].querySelectorAll(`${arguments[1]} tr`)]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))",
        table,
        part,
    )


def colours(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('#classes tbody td')]"
        ".map((cell) => getComputedStyle(cell).backgroundColor)"
    )


def test_splits_are_columns_and_what_a_split_lacks_is_said(browser, opened):
    assert (
        opened(made([("train", {0: 60, 1: 30, 2: 10}), ("val", {0: 5, 1: 5}), ("test", {})])) == []
    )
    assert texts(browser, "#places a")[1:3] == ["Splits and leaks", "Classes"]
    assert texts(browser, "#classes caption") == ["Share of the points of label by class"]
    assert cells(browser, "thead") == [["Class", "train", "val"]]
    assert cells(browser, "tbody") == [
        ["1", "30 %", "50 %"],
        ["0", "60 %", "50 %"],
        ["2", "10 %", "none"],
    ]
    assert cells(browser, "tfoot") == [["All points", "100", "10"], ["Samples with some", "1", "1"]]
    assert texts(browser, "#classes td.lacks") == ["none"]
    assert texts(browser, "#classes p.small") == [
        "Declared, and in no sample: 3.",
        "No labels: test.",
    ]
    for cell in ("th[scope=col]", "tbody th[scope=row]"):
        assert len(texts(browser, f"#classes {cell}")) == 3
    found = colours(browser)
    assert found[1] == found[3]  # both 50 %
    assert len(set(found)) == 5


def test_the_reference_is_a_column_beside_each_split(browser, opened):
    rows, then = [("train", {0: 1, 1: 3}), ("val", {0: 1})], [("train", {0: 1, 1: 1})]
    assert opened(made(rows, reference=then)) == []
    assert cells(browser, "thead") == [["Class", "train", "val"], ["now", "reference"] * 2]
    spans = (
        "return [...document.querySelectorAll('#classes th[scope=colgroup]')].map((head) => "
        "head.colSpan)"
    )
    assert browser.execute_script(spans) == [2, 2]
    assert cells(browser, "tbody") == [
        ["0", "25 %", "50 %", "100 %", NOTHING],
        ["1", "75 %", "50 %", "none", NOTHING],
    ]
    assert cells(browser, "tfoot")[0] == ["All points", "4", "2", "1", "none"]
    assert "beside the same split of the reference" in texts(browser, "#classes p.soft")[0]


def test_without_splits_there_is_one_column_and_without_classes_no_section(browser, opened):
    one = HEAD + "  label: {role: class, shape: [], classes: 4}\n"
    assert opened(made([("", {1: 1}), ("", {1: 1}), ("", {2: 1}), ("", {1: 1})], one)) == []
    assert cells(browser, "thead") == [["Class", "all samples"]]
    assert cells(browser, "tbody") == [["1", "75 %"], ["2", "25 %"]]
    assert cells(browser, "tfoot") == [["All samples", "4"]]
    assert "differ" not in texts(browser, "#classes")[0]
    opened([])
    assert texts(browser, "#classes") == []


def test_of_two_hundred_classes_the_others_are_told_in_words(browser, opened):
    schema = HEAD + "  label: {role: class, shape: [P], classes: 200}\n"
    train, val = (
        dict.fromkeys(range(200), 50),
        dict.fromkeys(range(30), 50) | dict.fromkeys(range(30, 63), 49),
    )
    rows = [("train", train), ("val", val), ("val", {0: 7})]
    assert opened(made(rows, schema, codes=["", "", "DC404"])) == []
    body = cells(browser, "tbody")
    assert (len(body), body[-1][0]) == (31, "34 others")
    notes = " ".join(texts(browser, "#classes p.small"))
    assert f"{100 * (50 / 3117 - 150 / 10_000):.3f}" == "0.104"  # of class 29, 93 or 157
    assert "34 others: shares differ by at most 0.104 percentage points." in notes
    assert "modulo 64" in notes
    assert "Left out: 1 sample that fails DC109 or DC404." in notes


def test_beside_nothing_no_difference_is_told(browser, opened):
    schema = HEAD + "  label: {role: class, shape: [P], classes: 40}\n"
    rows = [("train", {n: 1 + n for n in range(40)})]
    for reference in ([("val", {0: 9})], None):
        assert opened(made(rows, schema, reference=reference)) == []
        assert "differ by" not in " ".join(texts(browser, "#classes p.small"))
    assert opened(made(rows, schema, reference=[("train", dict.fromkeys(range(40), 1))])) == []
    notes = " ".join(texts(browser, "#classes p.small"))
    # Of classes 24 and 15
    assert f"{100 * (25 / 820 - 1 / 40):.3f}" == f"{100 * (1 / 40 - 16 / 820):.3f}" == "0.549"
    assert "The 10 others: shares differ by at most 0.549 percentage points." in notes


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_fields_and_splits_are_shown_as_they_are_or_spelled_out(browser, opened, name):
    evil = HOSTILE[name].encode("utf-8", "backslashreplace").decode()
    rows = [(evil, {0: 1}), ("val", {0: 1})]
    shares = made(rows, POINTS + SPLITS.replace("[train, val, test]", "[val, b]"), name=evil or "x")
    assert [one["field"] for one in shares] == ([] if evil.startswith(":") else [evil or "x"])
    if shares:
        shares[0]["splits"], shares[0]["without"] = [evil, "val"], [evil]
    assert opened(shares) == []
    assert [
        text for text in texts(browser, "#classes, #classes td, #classes th") if leaks(text, "\n\t")
    ] == []
    made_of = (
        "return document.querySelectorAll('#classes script, #classes img, #classes b, "
        "#classes a').length"
    )
    assert browser.execute_script(made_of) == 0


@pytest.mark.parametrize("width", [400, 1400])
def test_many_splits_make_the_page_no_wider(browser, opened, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    rows = [("s" * 300 + f"{n:02d}", {n: 5, 20: 1}) for n in range(12)]
    opened(made(rows, HEAD + "  label: {role: class, shape: [P]}\n", reference=rows))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
