"""The page in headless Chromium: every section is drawn, filters work, nothing is logged, no request leaves."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from datacheck.report.html import write_page
from datacheck.scan.run_documents import RESULT
from datacheck.schema.load import parse_schema
from tests.report.conftest import SCHEMA_TEXT, finding, table
from tests.report.drawings import DRAWN_SCHEMA, drawn_run
from tests.report.hostile import HOSTILE, evil_run, leaks

CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here"
)


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def opened(browser, folder):
    """Open a run's page; return what the browser logged, and the addresses that it asked for."""
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(write_page(folder).as_uri())
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    said = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    asked = [
        m["params"]["request"]["url"] for m in said if m["method"] == "Network.requestWillBeSent"
    ]
    return browser.get_log("browser"), asked


def texts(browser, selector):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility())"
        ".map((e) => e.textContent)",
        selector,
    )


def typed(browser, selector, text):
    from selenium.webdriver.common.by import By

    field = browser.find_element(By.CSS_SELECTOR, selector)
    field.clear()
    field.send_keys(text)


def test_every_section_is_drawn_without_an_error_or_a_request(browser, made_run):
    leak = finding(
        "DC801",
        name="split-overlap",
        fields=[],
        measured={"shared": 2, "of": 20, "split": "val"},
        expected={},
    )
    logged, asked = opened(browser, made_run(findings=[finding(failed=10, of=100), leak]))
    assert logged == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert texts(browser, "main h2") == [
        "Findings",
        "Splits and leaks",
        "Fields",
        "Against the reference",
        "Samples",
        "What was looked at",
        "How this was made",
    ]
    assert texts(browser, "h1") == ["10 of 100 samples are not fit for training"]
    assert texts(browser, "#verdict .legend li") == ["90 fit (90 %)", "10 not fit (10 %)"]
    assert "[object" not in texts(browser, "body")[0]
    assert browser.title == "FAIL made · datacheck"
    assert len(texts(browser, "#findings article")) == 2
    assert (
        browser.execute_script(
            "return document.querySelectorAll('#findings svg circle.measured').length"
        )
        == 1
    )
    assert (
        browser.execute_script("return document.querySelectorAll('#fields svg rect.fit').length")
        > 5
    )


@pytest.mark.parametrize(("failed", "said"), [(0, "fit for training"), (1, "not fit for training")])
def test_of_one_sample_the_verdict_says_one(browser, made_run, failed, said):
    findings = [finding(failed=1, of=1)][:failed]
    opened(browser, made_run(rows=1, failed=failed, findings=findings, splits=("train",)))
    assert texts(browser, "h1") == [f"The sample is {said}"]


def test_filters_and_pages_of_the_sample_table_work(browser, made_run):
    opened(browser, made_run())
    rows = "#samples tbody tr"
    assert len(texts(browser, rows)) == 50
    assert all("DC201" in row for row in texts(browser, rows)[:10])
    # Of which not all are fit
    assert texts(browser, "#samples [role=status]") == ["1 to 50 of 100 samples"]
    typed(browser, "#samples input[type=search]", "a/90.npy")
    assert [row[:8] for row in texts(browser, rows)] == ["a/90.npy"]
    typed(browser, "#samples input[type=search]", "zzz")
    assert texts(browser, rows) == ["This choice has no sample in this page."]
    opened(browser, made_run())
    browser.execute_script("document.querySelector('#findings button.link').click()")
    assert len(texts(browser, rows)) == 10
    opened(browser, made_run())
    browser.execute_script("document.querySelectorAll('#samples thead button')[0].click()")
    assert texts(browser, rows)[0].startswith("a/0.npy")
    assert texts(browser, "#samples th[aria-sort=ascending]") == ["Sample"]


def test_findings_can_be_searched_and_chosen_by_severity(browser, made_run):
    findings = [finding(), finding("DC227", severity="warning", message="Points repeat.")]
    opened(browser, made_run(findings=findings))
    typed(browser, "#findings input[type=search]", "repeat")
    assert [text.startswith("warningDC227") for text in texts(browser, "#findings article")] == [
        True
    ]
    opened(browser, made_run(findings=findings))
    browser.execute_script("document.querySelector('button[data-kind=error]').click()")
    assert [text.startswith("errorDC201") for text in texts(browser, "#findings article")] == [True]


def test_what_a_baseline_knows_is_told_apart_with_its_reason(browser, made_run):
    known = [
        finding(failed=10, of=100, suppressed="the old rig <b>", message="<i>ten</i>"),
        finding(
            "DC801",
            name="split-overlap",
            fields=[],
            measured={"shared": 2, "of": 20},
            suppressed="on purpose",
        ),
    ]
    logged, _ = opened(browser, made_run(findings=[], suppressed=known, left_out={"suppressed": 3}))
    assert logged == []
    assert texts(browser, "#findings > p.card") == ["Nothing new was found."]
    assert texts(browser, "#verdict dd")[2] == "0 errors, 0 warnings; 5 known to the baseline"
    assert texts(browser, "#known summary") == ["Known to the baseline, not counted above (5)"]
    assert texts(browser, "#splits tbody th")[2] == "errorknownDC801 split-overlap"
    browser.execute_script("document.getElementById('known').open = true")
    assert [
        texts(browser, f"#known tbody tr:first-child > :nth-child({n})")[0] for n in range(1, 6)
    ] == ["errorDC201 length-unit", "xyz", "<i>ten</i>", "10", "the old rig <b>"]
    browser.execute_script("document.querySelector('#known button').click()")
    assert len(texts(browser, "#samples tbody tr")) == 10
    opened(browser, made_run())
    assert texts(browser, "#known") == []
    assert "new since" not in texts(browser, "#findings article")[0]


def test_a_field_opens_its_measures_and_the_split_can_be_chosen(browser, made_run):
    opened(browser, made_run())
    browser.execute_script("document.querySelector('#fields tbody button').click()")
    assert texts(browser, "#fields h4") == [
        "size (diagonal) (m)",
        "lowest value (m)",
        "points",
        "Where the centroids lie (m)",
    ]
    assert texts(browser, "#fields button[aria-expanded=true]") == ["xyz"]
    assert texts(browser, "#fields .meant text") == ["if mm"]  # a thousand times too large
    assert "10 samples would be allowed in mm" in texts(browser, "#fields .plots p")[0]
    count = "return document.querySelectorAll('#fields rect.fit').length"
    before = browser.execute_script(count)
    browser.execute_script(
        "const s = document.querySelector('#fields select'); s.value = 'val'; s.dispatchEvent(new "
        "Event('change'))"
    )
    assert 0 < browser.execute_script(count) <= before


@pytest.mark.parametrize(
    ("measured", "expected", "cause", "label"),
    [
        ({"fps": 10.0}, {"fps": 20.0}, None, "fps: 10; allowed: 20"),
        (
            {"step": 50.0},
            {"step": 0.05, "unit": "s"},
            0.001,
            "step: 50 s; allowed: 0.05 s; times 0.001: 0.05 s",
        ),
        ({"outside": 1.0}, {"outside": 0.5}, None, "outside: 1; allowed: at most 0.5"),
        ({"absent": 3}, {"absent": 0}, None, "absent: 3; allowed: at most 0"),
    ],
)
def test_what_has_to_be_met_is_no_limit(browser, made_run, measured, expected, cause, label):
    said = {"text": "c", "kind": "", "factor": cause, "explains": None, "alternatives": []}
    opened(browser, made_run(findings=[finding(measured=measured, expected=expected, cause=said)]))
    drawn = "return document.querySelector('#findings .chart svg').getAttribute('aria-label')"
    assert browser.execute_script(drawn) == label


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("copies of one joint", "Cause: copies of one joint (explains 2 of 3)"),
        ("x0.001 brings 2 of 3 into range", "Cause: x0.001 brings 2 of 3 into range"),
    ],
)
def test_how_many_a_cause_explains_is_said_once(browser, made_run, text, said):
    cause = {"text": text, "kind": "", "factor": None, "explains": 2, "alternatives": []}
    opened(browser, made_run(findings=[finding(cause=cause)]))
    assert texts(browser, "#findings .cause") == [said]


def test_what_a_card_offers_to_write_into_the_schema_is_one_and_has_an_effect(browser, made_run):
    whole = finding(failed=0, of=100, examples=[])
    opened(browser, folder := made_run(findings=[finding(), whole, finding(severity="info")]))
    browser.execute_script(
        "document.querySelectorAll('#findings details').forEach((d) => { d.open = true; })"
    )
    # None for information
    few, all_of_it = [t for t in texts(browser, "#findings pre") if t.startswith("rules:")]
    assert parse_schema(SCHEMA_TEXT + few).rules["DC201"].allow == 0.3
    # No share of the samples fails
    assert parse_schema(SCHEMA_TEXT + all_of_it).rules["DC201"].severity == "info"
    commands = [
        text for text in texts(browser, "#findings .key") if text.startswith("datacheck baseline")
    ]
    assert shlex.split(commands[0])[2] == str(folder)


def test_a_baseline_is_not_offered_of_a_loader_which_cannot_have_one(browser, runs):
    opened(browser, Path(runs["loader"].report.folder))
    browser.execute_script(
        "document.querySelectorAll('#findings details').forEach((d) => { d.open = true; })"
    )
    assert any(text.startswith("rules:") for text in texts(browser, "#findings pre"))
    assert not any(
        text.startswith("datacheck baseline") for text in texts(browser, "#findings .key")
    )


def test_what_two_splits_share_is_a_table_with_the_samples_beside_it(browser, made_run):
    logged, _ = opened(browser, made_run(shared="<b>g</b>"))
    assert logged == []
    assert texts(browser, "#splits h3") == [
        "Samples in two splits by content",
        "Groups in two splits by splits: {key: ...}",
    ]
    samples, where, groups, first = (
        f"#splits div.scroll:nth-of-type({n}) tbody tr" for n in range(2, 6)
    )
    assert texts(browser, samples) == ["train80\u20132 (2.5 %)", "val202 (10 %)\u2013"]
    assert texts(browser, where) == ["traina/0.npyvala/4.npy", "traina/1.npyvala/9.npy"]
    assert texts(browser, groups) == ["train80\u20131 (1.3 %)", "val201 (5 %)\u2013"]
    assert texts(browser, first) == ["<b>g</b>traina/0.npyvala/4.npy"]
    opened(browser, made_run())
    assert texts(browser, "#splits h3") == []


def test_the_reference_is_drawn_behind_the_run(browser, runs, monkeypatch):
    folder = Path(runs["reference"].report.folder)
    monkeypatch.chdir(folder.parent)
    logged, asked = opened(browser, folder)
    assert (logged, [url for url in asked if not url.startswith(("file:", "data:"))]) == ([], [])
    assert texts(browser, "#fields .legend li.of-then") == [
        "the reference, as if it had as many samples"
    ]
    assert texts(browser, "#drift > p")[0].endswith("in clean.")
    plots = "return document.querySelectorAll(arguments[0]).length"
    assert browser.execute_script(plots, "#fields tbody svg path.then") > 0
    drawn = browser.execute_script(
        "return document.querySelector('#drift .plots svg[role=img]')?.getAttribute('aria-label')"
    )
    found = [finding for finding in runs["reference"].report.findings if finding.code == "DC902"]
    assert (drawn is not None) == bool(found)
    opened(browser, Path(runs["broken"].report.folder))
    assert browser.execute_script(plots, "path.then") == 0


def test_where_splits_overlap_is_seen_without_scrolling(browser, made_run):
    keys = [f"train/bottle_{n:036}.npy" for n in range(100)]
    browser.set_window_size(1200, 900)
    opened(browser, made_run(keys=keys, shared=f"bottle_{'0123456789' * 4}"))
    hidden = (
        "return [...document.querySelectorAll('#splits .scroll')].map((e) => e.scrollWidth - "
        "e.clientWidth)"
    )
    # Splits, then of samples and groups how many and where
    assert browser.execute_script(hidden) == [0, 0, 0, 0, 0]


def test_a_measure_that_differs_is_drawn_below_what_is_said_of_it(browser, made_run):
    differs = finding(
        "DC902",
        name="distribution-drift",
        severity="warning",
        failed=0,
        measured={"measure": "box"},
    )
    then = np.median(table(100, 60)[0].columns["xyz:box"].values)
    place = made_run(failed=60)
    place = place.rename(place.with_name("then"))
    folder = made_run(findings=[differs])
    said = json.loads((folder / "result.json").read_text())
    said["run"]["reference"] = {"run": "R", "folder": str(place)}
    (folder / "result.json").write_text(json.dumps(said))
    assert opened(browser, folder)[0] == []
    assert texts(browser, "#drift h4") == ["xyz: size (diagonal) (m)"]
    assert f"median of the reference: {then:.3g} " in texts(browser, "#drift .plots p")[0]
    of_one = differs | {"split": "train"}  # whose medians are not those of all
    (folder / "result.json").write_text(json.dumps(said | {"findings": [of_one]}))
    opened(browser, folder)
    assert texts(browser, "#drift h4") == ["xyz of train: size (diagonal) (m)"]
    assert texts(browser, "#drift .plots p") == [
        "allowed: 0.02 to 0.4 m · log axis · 8 samples would be allowed in mm"
    ]
    shutil.rmtree(place)
    opened(browser, folder)
    assert (
        texts(browser, "#drift p")[1]
        == "That run is gone or cannot be read, so its histograms are not drawn."
    )
    assert texts(browser, "#drift h4") == []


def test_only_rules_that_ran_have_found_no_leak_and_no_drift(browser, made_run):
    opened(browser, made_run())
    assert texts(browser, "#splits p") == ["Nothing is known of leaks.", "DC804 some: skip"]
    rules = {
        code: {
            "name": "some",
            "status": status,
            "level": "pair",
            "severity": "error",
            "why": why,
            "options": {},
        }
        for code, status, why in [
            ("DC801", "pass", ""),
            ("DC802", "not_applicable", "no field tells a group"),
            ("DC804", "crash", "no"),
            ("DC902", "crash", "ZeroDivisionError"),
        ]
    }
    opened(browser, made_run(rules=rules))
    assert texts(browser, "#splits p") == [
        "No leak was found by DC801 some.",
        "DC802 some: no field tells a group · DC804 some: no",
    ]
    assert "Nothing differs" not in texts(browser, "#drift")[0]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_is_markup_or_acts_on_what_shows_it(browser, made_run, name):
    opened(browser, evil_run(made_run, "x"))
    count = (
        "return document.querySelectorAll('script, style, img, iframe, a, form, object, "
        "link').length"
    )
    elements = browser.execute_script(count)
    logged, asked = opened(browser, evil_run(made_run, HOSTILE[name]))
    assert logged == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert browser.execute_script(count) == elements
    shown = "".join(texts(browser, "header, nav, main")) + browser.title
    assert leaks(shown, allowed="\n\t") == set()
    assert len(texts(browser, "main h2")) == 7


def test_what_nobody_sees_is_spelled_out_and_an_emoji_of_several_is_not(browser, made_run):
    emoji = "\U0001f469\u200d\U0001f467 \U0001f9d1\U0001f3fd\u200d\u2695\ufe0f"
    name = f"<b>\u202egnp\u061c \ufffe\U000e0041 {emoji} a\u200db\u200d"
    opened(browser, made_run(findings=[finding(message=name, examples=[name])]))
    said = f"<b>\\u202egnp\\u061c \\ufffe\\U000e0041 {emoji} a\\u200db\\u200d"
    assert texts(browser, "#findings .said") == [said]


def test_what_a_card_unfolds_stays_in_the_card(browser, made_run):
    keys = [f"{split}/{'a' * 60}/{i}" for i, split in enumerate(("train", "val", "test"))]
    opened(browser, made_run(findings=[finding(failed=10, of=100, examples=keys)]))
    over = browser.execute_script(
        "const card = document.querySelector('.finding');"
        "card.querySelectorAll('details').forEach((part) => { part.open = true; });"
        "return [...card.querySelectorAll('pre')].map((e) => e.getBoundingClientRect().right"
        " - card.getBoundingClientRect().right);"
    )
    assert len(over) == 2
    assert max(over) < 0


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_is_no_wider_than_its_window(browser, made_run, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    opened(browser, made_run())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_script(
        "document.querySelectorAll('#fields tbody button.link').forEach((b) => b.click())"
    )
    sides = "const {left, right} = e.getBoundingClientRect(); return [left, right];"
    inside = browser.execute_script(
        "return [...document.querySelectorAll('#fields .inside h4, #fields .inside svg')].map((e) "
        "=> {" + sides + "})"
    )
    assert len(inside) > 1
    # Though the table is wider than a phone
    assert all(0 < left < right < width for left, right in inside)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_can_be_walked_through_by_keyboard_and_by_its_landmarks(browser, made_run):
    from selenium.webdriver.common.keys import Keys

    opened(browser, made_run())
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the findings"
    for tag in ("header", "nav", "main", "footer"):
        assert len(texts(browser, tag)) == 1
    assert browser.execute_script(
        "return [...document.querySelectorAll('section')]"
        ".every((s) => document.getElementById(s.getAttribute('aria-labelledby')))"
    )
    assert browser.execute_script(
        "return [...document.querySelectorAll('table')].every((t) => t.caption && "
        "t.querySelector('th[scope=col]'))"
    )
    assert browser.execute_script(
        "return [...document.querySelectorAll('input, select, button')]"
        ".every((e) => e.textContent.trim() || e.labels.length)"
    )


def test_each_kind_of_drawing_is_drawn_and_says_in_words_what_it_shows(browser, tmp_path):
    folder = drawn_run(tmp_path)
    logged, _ = opened(browser, folder)
    browser.execute_script(
        "document.querySelectorAll('#fields th button.link').forEach((button) => button.click())"
    )
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    found = browser.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('#fields .plot')].map((plot) => "
        "[plot.dataset.kind, [plot.querySelector('svg').getAttribute('aria-label'), "
        "plot.textContent,"
        " plot.querySelectorAll('path, rect, circle').length]]))"
    )
    assert set(found) == {"lags", "ridges", "centroids", "bars", "boxes"}
    assert all(marks >= 3 for _, _, marks in found.values())
    assert not [
        said
        for said, text, _ in found.values()
        if "NaN" in said + text or "undefined" in said + text
    ]
    assert "best after 2 steps, correlation 0.7; 1 is declared" in found["lags"][0]
    assert "move 0 always 3 m" in found["ridges"][0]
    assert "1 component never changes" in found["ridges"][1]
    assert "the origin is within the drawing" in found["centroids"][0]
    assert "2 equal: 2 samples, 1 not fit, in 1 group" in found["bars"][0]
    assert "index 1 0.1 m" in found["boxes"][0]
    assert browser.get_log("browser") == logged == []


def test_lengths_of_episodes_show_the_window_as_a_line_with_its_name(browser, tmp_path):
    more = "windows: {length: 64}\nepisode: {length: 10..}\n"
    lengths = np.stack([np.arange(40) + 50, np.full(40, 3)], axis=1)
    logged, _ = opened(
        browser, drawn_run(tmp_path, schema=DRAWN_SCHEMA + more, **{"a:dims": lengths})
    )
    browser.execute_script("document.querySelector('#fields th button.link').click()")
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert texts(browser, "#fields .inside svg text.name") == ["window 64"]
    assert (
        "window 64: 14 of 40 samples shorter, without a window"
        in texts(browser, "#fields .inside .plots p")[0]
    )
    label = "return document.querySelector('#fields .inside svg').getAttribute('aria-label')"
    assert browser.execute_script(label).endswith(
        "window 64: 14 of 40 samples shorter, without a window"
    )
    # 63.5 between 49.5 and 89.5
    place = browser.execute_script(
        "const svg = document.querySelector('#fields .inside svg');"
        "return (svg.querySelector('line.named').x1.baseVal.value - 2) / (svg.width.baseVal.value "
        "- 4)"
    )
    assert place == pytest.approx(14 / 40, abs=1e-3)
    assert logged == []


def test_spacings_of_clouds_show_the_voxel_as_a_line_on_a_log_axis(browser, tmp_path):
    more = (
        "  x: {role: points, shape: [P, 3], unit: m}\n  i: {role: instance, shape: "
        "[P]}\nloader: {voxel: 0.02}\n"
    )
    # 26 of them below 0.02: 0.001 * 100 ** (25 / 39) is 0.0191
    apart = np.geomspace(0.001, 0.1, 40)
    logged, _ = opened(
        browser, drawn_run(tmp_path, schema=DRAWN_SCHEMA + more, **{"x:spacing": apart})
    )
    browser.execute_script(
        "[...document.querySelectorAll('#fields th button.link')].find((one) => one.textContent "
        "=== 'x').click()"
    )
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert texts(browser, "#fields .inside h4") == ["distance to the nearest point (median) (m)"]
    assert texts(browser, "#fields .inside svg text.name") == ["voxel 0.02"]
    assert (
        "voxel 0.02: 26 of 40 samples denser, thinned · log axis"
        in texts(browser, "#fields .inside .plots p")[0]
    )
    place = browser.execute_script(
        "const svg = document.querySelector('#fields .inside svg');"
        "return (svg.querySelector('line.named').x1.baseVal.value - 2) / (svg.width.baseVal.value "
        "- 4)"
    )
    assert place == pytest.approx(np.log10(20) / 2, abs=1e-3)
    assert logged == []


def test_the_ways_of_hands_are_a_histogram_with_words_at_its_ends(browser, tmp_path):
    more = (
        "  h: {role: position, shape: [G, 3], near: x}\n  x: {role: points, shape: [P, 3], up: z}\n"
    )
    ways = np.zeros((40, 20), np.int64)
    ways[:, [0, 4, 5, 10, 14, 15, 19]] = [6, 1, 1, 1, 0, 0, 1]  # of 30 fit samples and 10 others
    logged, _ = opened(
        browser, drawn_run(tmp_path, schema=DRAWN_SCHEMA + more, **{":h:approach": ways})
    )
    browser.execute_script(
        "[...document.querySelectorAll('#fields th button.link')].find((one) => one.textContent "
        "=== 'h').click()"
    )
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    label, words, titles = browser.execute_script(
        "const plot = document.querySelector('#fields .plot[data-kind=approach]'), all = (of) =>"
        " [...plot.querySelectorAll(of)].map((one) => one.textContent);"
        "return [plot.querySelector('svg').getAttribute('aria-label'), all('text.strong'), "
        "all('title')]"
    )
    assert label == (
        "Which way h comes to x: 400 poses, 100 of samples not fit; "
        "from above 70 %, from the side 20 %, from below 10 %"
    )
    assert words == ["from above", "from the side", "from below"]
    assert titles[0] == "-1 to -0.9: 240 poses, 60 of samples not fit"
    assert [title.split(":")[0] for title in titles[1:]] == [
        "-0.6 to -0.5",
        "-0.5 to -0.4",
        "0 to 0.1",
        "0.9 to 1",
    ]
    assert logged == []


def test_findings_that_the_scan_before_had_not_are_marked_and_what_is_gone_is_named(
    browser, made_run
):
    folder = made_run(findings=[finding(), finding("DC227", severity="warning", name="<i>x")])
    said = json.loads((folder / RESULT).read_bytes())
    gone = [f"DC221:<b>{n}" for n in range(5)]
    since = {
        "run": "R0",
        "started": "2026-11-19T10:00:00Z",
        "new": {"count": 1, "ids": ["DC227:xyz"]},
        "gone": {"count": 5, "ids": gone},
        "other": ["schema", "depth"],
    }

    def told(since):
        (folder / RESULT).write_text(json.dumps(said | {"run": said["run"] | since}))
        assert opened(browser, folder)[0] == []
        return [text for text in texts(browser, "#verdict .facts div") if text.startswith("Since")]

    assert told({"since": since}) == [
        "Since the scan before1 new finding; 5 no longer found: DC221:<b>0, DC221:<b>1, "
        "DC221:<b>2, \u2026 "
        "(2026-11-19 10:00:00 UTC, with another schema and another depth)"
    ]
    assert [
        "new since the scan before" in text for text in texts(browser, "#findings article")
    ] == [False, True]
    none = {"count": 0, "ids": []}
    assert told({"since": since | {"new": none, "gone": none, "other": []}}) == [
        "Since the scan beforenothing new (2026-11-19 10:00:00 UTC)"
    ]
    assert told({}) == []


def test_a_measure_without_a_histogram_says_why_and_of_whom_it_has_no_number(browser, tmp_path):
    peak = np.full(40, 5.0)
    peak[[3, 4, 5]] = np.nan
    more = {"p:peak": peak, "p:leap": np.linspace(2e300, 3e300, 40)}
    logged, _ = opened(browser, drawn_run(tmp_path, **more))
    browser.execute_script(
        "document.querySelectorAll('#fields th button.link').forEach((button) => button.click())"
    )
    said = texts(browser, "#fields .inside p.small")
    assert (
        "The same in all samples: size (diagonal) 0.1 m · largest |x| 5 m (3 samples with NaN or "
        "infinity instead)" in said
    )
    assert "Too large or too close together to be drawn: largest step 2e300 to 3e300 m" in said
    assert logged == []


def test_of_many_samples_the_places_say_how_many_are_drawn(browser, tmp_path):
    opened(browser, drawn_run(tmp_path, rows=60_000))
    browser.execute_script(
        "document.querySelectorAll('#fields th button.link').forEach((button) => button.click())"
    )
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    (said,) = texts(browser, "#fields .plot[data-kind=centroids] p")
    assert "drawn: 50,000 of the fit samples, 10 of those not fit" in said
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#fields [data-kind=centroids] g')]"
        ".map((plane) => [...plane.querySelectorAll('title')].map((e) => e.textContent))"
    )
    fit = [int(one.split()[1].replace(",", "")) for one in cells[0] if "not fit" not in one]
    assert all(one.startswith("about ") for one in cells[0] if "not fit" not in one)
    beyond = int(re.search(r"([\d,]+) samples beyond", said)[1].replace(",", ""))
    assert sum(fit) + beyond == pytest.approx(59_990, rel=0.02)
