"""The page of a cache in headless Chromium: every section is drawn, nothing is logged, no request leaves."""

import json
import shlex
import shutil

import numpy as np
import pytest

from datacheck.cache.codec import Codec
from datacheck.model.sample import ArraySpec
from datacheck.report.cache_page import cache_page, cache_summary
from tests.cache.make import make_cache
from tests.report.hostile import HOSTILE, leaks
from tests.report.test_browser import browser, pytestmark, texts
from tests.report.test_caches import built, evil_cache

__all__ = ["browser", "built", "pytestmark"]
ELEMENTS = (
    "return document.querySelectorAll('script, style, img, iframe, a, form, object, link').length"
)


@pytest.fixture
def opened(browser, tmp_path):
    """Open the page of a cache; return what the browser logged, and the addresses that it asked for."""

    def open_page(folder, **options):
        file = tmp_path / "page.html"
        file.write_bytes(cache_page(cache_summary(folder, **options)))
        browser.get_log("browser"), browser.get_log("performance")
        browser.get(file.as_uri())
        browser.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
        )
        said = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
        asked = [
            m["params"]["request"]["url"]
            for m in said
            if m["method"] == "Network.requestWillBeSent"
        ]
        return browser.get_log("browser"), [
            url for url in asked if not url.startswith(("file:", "data:"))
        ]

    return open_page


@pytest.mark.parametrize(
    ("valid", "said"),
    [
        ([True], "the sample is served"),
        ([False], "the sample is not served"),
        ([True, True], "all 2 samples are served"),
        ([True, False], "1 of 2 samples is served"),
    ],
)
def test_of_one_sample_the_verdict_says_one(browser, opened, tmp_path, valid, said):
    samples = [{"x": np.float32(n)} for n, _ in enumerate(valid)]
    opened(make_cache(tmp_path, {"x": ArraySpec("float32")}, samples, valid=valid))
    assert texts(browser, "h1") == [f"Finished, no file is missing or cut short; {said}"]


def test_every_section_is_drawn_without_an_error_or_a_request(browser, opened, built):
    first, second = built
    assert opened(second.path, depth="full") == ([], [])
    assert browser.title == f"OK tiny all {second.path.name} · datacheck"
    assert texts(browser, "h1") == [
        f"Finished, every byte is as it was written; {second.valid} of {second.samples} samples "
        f"are served"
    ]
    assert texts(browser, "main h2") == [
        "Samples that are not served",
        "Fields",
        "Pictures",
        "Shards",
        "Since the last build",
        "How this was made",
    ]
    assert len(texts(browser, "#shards tbody tr")) == second.shards
    assert texts(browser, "#shards tbody .badge").count("unchanged") == second.reuse.linked
    assert "900.npz" in "".join(texts(browser, "#changes tbody"))
    browser.execute_script(
        "document.querySelectorAll('#unserved details').forEach((d) => { d.open = true; })"
    )
    asked = [
        text
        for text in texts(browser, "#unserved .foot .key")
        if text.startswith("datacheck explain")
    ]
    assert sorted(asked) == [
        f"datacheck explain {code}" for code in ("DC101", "DC201", "DC221", "DC301")
    ]
    assert opened(first.path) == ([], [])
    assert texts(browser, "main h2")[4] == "In the later build"
    assert texts(browser, "h1")[0].startswith("Finished, no file is missing or cut short; ")
    assert f"datacheck cache verify {first.path}" in texts(browser, "#verdict .key")


def test_the_page_of_a_damaged_cache_says_what_was_found_and_what_to_do(
    browser, opened, built, tmp_path
):
    folder = shutil.copytree(built[1].path, tmp_path / "it's a copy", copy_function=shutil.copyfile)
    (folder / "fields/joints/c.0.0.0").unlink()
    assert opened(folder) == ([], [])
    assert texts(browser, ".word") == ["DAMAGED"]
    assert texts(browser, "main h2") == ["What is wrong"]
    assert [cell.split(" (")[0] for cell in texts(browser, "#problems tbody tr > *")][:2] == [
        "fields/joints/c.0.0.0",
        "missing",
    ]
    assert "datacheck cache repair" in "".join(texts(browser, "#problems .card"))
    assert texts(browser, "#problems .key") == [
        shlex.join(["datacheck", "cache", "verify", str(folder)])
    ]


def test_pictures_of_samples_can_be_opened_one_after_the_other(browser, opened, tmp_path):
    specs = {"xyz": ArraySpec("float32", (3,), "P", attrs={"role": "points", "unit": "m"})}
    data = [{"xyz": np.random.default_rng(n).random((80, 3))} for n in range(9)]
    assert opened(make_cache(tmp_path, specs, data, valid=[n != 4 for n in range(9)])) == ([], [])
    assert texts(browser, "#previews h3") == ["Valid samples", "Served in the place of others"]
    captions = texts(browser, "#previews ul:first-of-type .caption")
    assert len(captions) == 6
    assert "sample/000004" not in captions
    assert (
        texts(browser, "#previews ul:last-of-type .caption")[-1]
        == texts(browser, "#unserved td .key")[0]
    )
    browser.execute_script("document.querySelector('#previews .thumb').scrollIntoView()")
    browser.execute_script("document.querySelector('#previews .thumb').click()")
    assert texts(browser, "dialog .top .key") == captions[:1]
    assert texts(browser, "dialog .said") == ["Valid samples: spread over all that are served"]
    assert texts(browser, "dialog h4") == ["xyz"]
    browser.execute_script(
        "[...document.querySelectorAll('dialog button')].find((b) => b.textContent === "
        "'Next').click()"
    )
    assert texts(browser, "dialog .top .key") == captions[1:2]


def test_many_shards_are_shown_fifty_at_a_time(browser, opened, tmp_path):
    specs = {"x": ArraySpec("float32", ())}
    folder = make_cache(
        tmp_path, specs, [{"x": np.float32(i)} for i in range(240)], k=2, codec=Codec("zstd", 3)
    )
    assert opened(folder) == ([], [])
    rows = "#shards tbody tr"
    assert len(texts(browser, rows)) == 50
    assert texts(browser, "#shards [role=status]") == ["1 to 50 of 120"]
    buttons = "document.querySelectorAll('#shards button')"
    browser.execute_script(f"{buttons}[1].click(); {buttons}[1].click()")
    assert texts(browser, "#shards [role=status]") == ["101 to 120 of 120"]
    assert texts(browser, f"{rows} th") == [str(n) for n in range(100, 120)]
    assert browser.execute_script(f"return [{buttons}[0].disabled, {buttons}[1].disabled]") == [
        False,
        True,
    ]
    assert (
        browser.execute_script("return document.querySelectorAll('#shards svg rect.fit').length")
        == 120
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_is_markup_or_acts_on_what_shows_it(browser, opened, tmp_path, name):
    opened(evil_cache(tmp_path / "plain", "x"))
    elements = browser.execute_script(ELEMENTS)
    assert opened(evil_cache(tmp_path / "evil", HOSTILE[name])) == ([], [])
    assert browser.execute_script(ELEMENTS) == elements
    assert (
        leaks("".join(texts(browser, "header, nav, main")) + browser.title, allowed="\n\t") == set()
    )
    assert len(texts(browser, "main h2")) == 5


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_is_no_wider_than_its_window(browser, opened, built, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    opened(built[1].path)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_can_be_walked_through_by_keyboard_and_by_its_landmarks(browser, opened, built):
    from selenium.webdriver.common.keys import Keys

    opened(built[1].path)
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the contents"
    for tag in ("header", "nav", "main", "footer"):
        assert len(texts(browser, tag)) == 1
    for every in (
        "[...document.querySelectorAll('section')]"
        ".every((s) => document.getElementById(s.getAttribute('aria-labelledby')))",
        "[...document.querySelectorAll('table')].every((t) => t.caption && "
        "t.querySelector('th[scope=col]'))",
        "[...document.querySelectorAll('.scroll')].every((s) => s.tabIndex === 0 && "
        "s.getAttribute('aria-label'))",
        "[...document.querySelectorAll('button')].every((e) => e.textContent.trim())",
        "[...document.querySelectorAll('svg')]"
        ".every((s) => s.getAttribute('aria-label') || s.getAttribute('aria-hidden'))",
    ):
        assert browser.execute_script(f"return {every}")


def test_when_a_cache_was_built_is_not_made_up_where_nothing_says_it(
    browser, opened, built, tmp_path
):
    folder = shutil.copytree(built[1].path, tmp_path / "copy", copy_function=shutil.copyfile)
    (folder / "build.json").unlink()
    assert opened(folder) == ([], [])
    assert "it does not say when" in texts(browser, "#verdict dd")
    assert "build.json is absent" in texts(browser, "#provenance p")[0]
