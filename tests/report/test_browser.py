"""The page in headless Chromium: every section is drawn, filters work, nothing is logged, no request leaves."""

import json
import shutil

import pytest

from datacheck.report.html import write_page
from tests.report.conftest import finding

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here")


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
    asked = [m["params"]["request"]["url"] for m in said if m["method"] == "Network.requestWillBeSent"]
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
        "DC801", name="split-overlap", fields=[], measured={"shared": 2, "of": 20, "split": "val"}, expected={}
    )
    logged, asked = opened(browser, made_run(findings=[finding(failed=10, of=100), leak]))
    assert logged == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert texts(browser, "main h2") == [
        "Findings", "Splits and leaks", "Fields", "Against the reference", "Samples", "What was looked at",
        "How this was made",
    ]  # fmt: skip
    assert texts(browser, "h1") == ["10 of 100 samples are not fit for training"]
    assert browser.title == "FAIL made · datacheck"
    assert len(texts(browser, "#findings article")) == 2
    assert browser.execute_script("return document.querySelectorAll('#findings svg circle.measured').length") == 1
    assert browser.execute_script("return document.querySelectorAll('#fields svg rect.fit').length") > 5


def test_filters_and_pages_of_the_sample_table_work(browser, made_run):
    opened(browser, made_run())
    rows = "#samples tbody tr"
    assert len(texts(browser, rows)) == 50
    assert all("DC201" in row for row in texts(browser, rows)[:10])
    typed(browser, "#samples input[type=search]", "a/90.npy")
    assert [row[:8] for row in texts(browser, rows)] == ["a/90.npy"]
    typed(browser, "#samples input[type=search]", "zzz")
    assert texts(browser, rows) == ["No sample in this page fits this choice."]
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
    assert [text.startswith("warningDC227") for text in texts(browser, "#findings article")] == [True]
    opened(browser, made_run(findings=findings))
    browser.execute_script("document.querySelector('button[data-kind=error]').click()")
    assert [text.startswith("errorDC201") for text in texts(browser, "#findings article")] == [True]


def test_a_field_opens_its_measures_and_the_split_can_be_chosen(browser, made_run):
    opened(browser, made_run())
    browser.execute_script("document.querySelector('#fields tbody button').click()")
    assert texts(browser, "#fields h4") == ["size (diagonal) (m)", "lowest value (m)", "length (first axis)"]
    assert texts(browser, "#fields button[aria-expanded=true]") == ["xyz"]
    count = "return document.querySelectorAll('#fields rect.fit').length"
    before = browser.execute_script(count)
    browser.execute_script(
        "const s = document.querySelector('#fields select'); s.value = 'val'; s.dispatchEvent(new Event('change'))"
    )
    assert 0 < browser.execute_script(count) <= before


def test_hostile_names_are_shown_as_they_are_and_what_hides_is_spelled_out(browser, made_run):
    name = "<img src=x onerror=alert(1)>\u202egnp"
    logged, _ = opened(browser, made_run(findings=[finding(message=name, examples=[name])]))
    assert logged == []
    assert texts(browser, "#findings .said") == ["<img src=x onerror=alert(1)>\\u202egnp"]
    assert browser.execute_script("return document.images.length") == 0


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_is_no_wider_than_its_window(browser, made_run, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    opened(browser, made_run())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
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
        "return [...document.querySelectorAll('table')].every((t) => t.caption && t.querySelector('th[scope=col]'))"
    )
    assert browser.execute_script(
        "return [...document.querySelectorAll('input, select, button')]"
        ".every((e) => e.textContent.trim() || e.labels.length)"
    )
