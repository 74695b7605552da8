"""A range of a histogram chosen in headless Chromium, and the line of Python for it run on the run's own rows."""

import subprocess
import sys

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from datacheck.report.html import MOST_ROWS
from tests.report.brushed import EVIL, brushed_run, planted
from tests.report.hostile import leaks
from tests.report.test_browser import browser, opened, pytestmark, texts, typed

__all__ = ["browser", "pytestmark"]
ROWS = 400
CHIP = "#samples .chosen"
SPELLED = EVIL.replace("\u202e", "\\u202e")


@pytest.fixture
def page(browser, tmp_path):
    """The page of the planted run with all of its fields opened."""
    folder = brushed_run(tmp_path / "run 'x'=1")
    browser.set_window_size(1200, 900)  # so wide that there is room beside a chart to drag to
    assert shown(browser, folder) == []
    yield folder
    assert browser.get_log("browser") == []


def shown(browser, folder):
    logged, _ = opened(browser, folder)
    browser.execute_script(
        "document.querySelectorAll('#fields th button.link').forEach((button) => button.click())"
    )
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    return logged


def histogram(browser, name):
    """The chart of a field's measure, in the middle of the window, and its sliders."""
    found = "[...document.querySelectorAll('.brush')].filter((b) => b.checkVisibility() && "
    (stage,) = browser.execute_script(
        f"return {found} b.querySelector('input').ariaLabel === arguments[0])", f"{name}: from"
    )
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", stage)
    return stage.find_element(By.CSS_SELECTOR, ".chart"), stage.find_elements(By.TAG_NAME, "input")


def drag(browser, chart, start, stop):
    """Drag from one share of what is drawn to another."""
    width = chart.size["width"] - 4
    at = [round((share - 0.5) * width) for share in (start, stop)]
    actions = ActionChains(browser).move_to_element_with_offset(chart, at[0], -30).click_and_hold()
    actions.move_to_element_with_offset(chart, at[1], -10).release().perform()


def python(browser, folder):
    """What the line of the chip prints where it is typed."""
    line = browser.find_element(By.CSS_SELECTOR, f"{CHIP} button.key").text
    assert leaks(line, allowed="") == set()
    printed = subprocess.run(
        [sys.executable, "-c", line], cwd=folder, capture_output=True, check=True, timeout=800
    )
    return int(printed.stdout)


def keys_shown(browser):
    return {text.removesuffix("copied") for text in texts(browser, "#samples tbody th button")}


def named(rows):
    return {f"{n}.npy" for n in np.flatnonzero(rows)}


def test_a_range_dragged_over_shows_the_samples_in_it(browser, page):
    size, known = planted(ROWS)["x:box"]
    with np.errstate(invalid="ignore"):
        inside = known & (size >= 5 / 48 - 1e-9) & (size < 8 / 48 - 1e-9)
    chart, _ = histogram(browser, "x: size (diagonal)")
    drag(browser, chart, 7.5 / 48, 5.5 / 48)  # from right to left
    assert keys_shown(browser) == named(inside)
    many = np.count_nonzero(inside)
    assert texts(browser, CHIP)[0].startswith(
        f"x · 0.104 ≤ size (diagonal) < 0.167: {many} samples."
    )
    assert texts(browser, "#samples [role=status]") == [f"1 to {many} of {many} samples"]
    assert python(browser, page) == many
    # The last bin holds its upper edge, and neither infinity nor NaN
    drag(browser, chart, 47.5 / 48, 1.5)
    last = known & ((size == 1) | (size == 47 / 48))
    assert keys_shown(browser) == named(last)
    assert "0.979 ≤ size (diagonal) ≤ 1:" in texts(browser, CHIP)[0]
    assert python(browser, page) == np.count_nonzero(last)


def test_a_range_goes_with_search_and_filters_and_is_cleared(browser, page):
    size, known = planted(ROWS)["x:box"]
    chart, _ = histogram(browser, "x: size (diagonal)")
    drag(browser, chart, 0.5 / 48, 23.5 / 48)
    inside = known & (size < 0.5 - 1e-9) & np.isfinite(size)
    typed(browser, "#samples input[type=search]", "1.npy")
    ones = np.arange(ROWS) % 10 == 1
    assert keys_shown(browser) == named(inside & ones)
    assert f"{np.count_nonzero(inside)} samples." in texts(browser, CHIP)[0]  # of the range alone
    browser.execute_script(
        "const s = document.querySelectorAll('#samples select')[1]; s.value = 'not fit';"
        "s.dispatchEvent(new Event('change'))"
    )
    assert keys_shown(browser) == named(inside & ones & (np.arange(ROWS) >= ROWS - 10))
    browser.find_element(By.CSS_SELECTOR, f"{CHIP} .top button").click()
    assert texts(browser, CHIP) == texts(browser, ".brush .shade") == []
    assert keys_shown(browser) == {"391.npy"}
    assert browser.switch_to.active_element.get_attribute("type") == "search"


def test_a_range_is_set_moved_and_cleared_with_the_keys(browser, page):
    count, known = planted(ROWS)[f"{EVIL}:tokens"]  # 3 to 8, a bin for each
    _, (first, last) = histogram(browser, f"{SPELLED}: tokens")

    def chosen(low, high):
        assert known[(count >= low) & (count <= high)].any()
        many = np.count_nonzero(known & (count >= low) & (count <= high))
        assert f"{low} ≤ tokens ≤ {high}: {many} samples." in texts(browser, CHIP)[0] or low == high
        assert texts(browser, "#samples [role=status]")[0].endswith(f" of {many} samples")
        told = browser.execute_script("return document.getElementById('told').textContent")
        assert told.endswith(f"{many} samples")
        assert python(browser, page) == many
        return [one.get_attribute("aria-valuetext") for one in (first, last)]

    first.send_keys(Keys.ARROW_RIGHT)
    assert chosen(4, 8) == ["4", "8"]
    last.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert chosen(4, 6) == ["4", "6"]
    last.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT)
    assert chosen(5, 7) == ["5", "7"]
    # Stops at the end
    first.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert chosen(6, 8) == ["6", "8"]
    first.send_keys(Keys.HOME)
    assert chosen(3, 8) == ["3", "8"]
    first.send_keys(Keys.END)  # no further than the other end
    assert chosen(8, 8) == ["8", "8"]
    assert "tokens = 8:" in texts(browser, CHIP)[0]
    first.send_keys(Keys.ESCAPE)
    assert texts(browser, CHIP) == []
    assert texts(browser, "#samples [role=status]") == [f"1 to 50 of {ROWS} samples"]
    assert browser.switch_to.active_element == first
    assert first.accessible_name.endswith(": tokens: from")
    assert first.aria_role == "slider"


def test_large_whole_numbers_are_told_apart(browser, tmp_path):
    sizes = 12_345_678 + np.arange(60) % 6
    folder = brushed_run(tmp_path, 60, {"x:bytes": (sizes, np.ones(60, bool))})
    assert shown(browser, folder) == []
    _, (first, last) = histogram(browser, "x: bytes")
    first.send_keys(Keys.ARROW_RIGHT)
    assert "12,345,679 ≤ bytes ≤ 12,345,683 B: 50 samples." in texts(browser, CHIP)[0]
    assert first.get_attribute("aria-valuetext") == "12,345,679 B"
    last.send_keys(Keys.HOME)
    assert "bytes = 12,345,679 B: 10 samples." in texts(browser, CHIP)[0]
    assert python(browser, folder) == 10


def test_of_one_split_only_its_samples_are_chosen_and_one_range_takes_the_place_of_another(
    browser, page
):
    values, known = planted(ROWS)[f"{EVIL}:box"]
    chart, _ = histogram(browser, f"{SPELLED}: tokens")
    drag(browser, chart, 0.05, 0.05)  # a click is a bin
    assert "tokens = 3:" in texts(browser, CHIP)[0]
    browser.execute_script(
        "const s = document.querySelector('#fields select'); s.value = 'val'; s.dispatchEvent(new "
        "Event('change'))"
    )
    assert "tokens = 3:" in texts(browser, CHIP)[0]  # still of all splits
    chart, (first, last) = histogram(browser, f"{SPELLED}: size (diagonal)")
    drag(browser, chart, 0.26, 0.6)
    bins = [int(one.get_attribute("value")) for one in (first, last)]
    low, high = (
        np.linspace(*np.quantile(values[known], [0, 1]).astype(np.float64), 49)[n] for n in bins
    )
    inside = known & (values >= low) & (values < high) & (np.arange(ROWS) % 2 == 1)
    assert bins == [12, 29]  # 0.26 and 0.6 of 48
    assert keys_shown(browser) <= named(inside)
    assert texts(browser, "#samples [role=status]")[0].endswith(
        f" of {np.count_nonzero(inside)} samples"
    )
    said = texts(browser, CHIP)[0]
    assert said.startswith(f"{SPELLED} · split val · ")
    assert f": {np.count_nonzero(inside)} samples." in said
    assert python(browser, page) == np.count_nonzero(inside)


def test_what_lies_beside_the_bins_can_be_chosen_too(browser, page):
    chart, _ = histogram(browser, "x: 99th percentile of |x|")
    buttons = chart.find_elements(By.XPATH, "../..//p[contains(@class, 'beside')]/button")
    assert [one.text for one in buttons] == [
        "1 left of it",
        "2 right of it",
        "2 with NaN or infinity",
    ]
    for button, rows in zip(
        buttons, ({"2.npy"}, {"0.npy", "1.npy"}, {"3.npy", "4.npy"}), strict=True
    ):
        button.click()  # of the sixth row nothing is known
        assert keys_shown(browser) == rows
        assert python(browser, page) == len(rows)
        assert texts(browser, ".brush .shade") == []
    buttons[0].send_keys(Keys.ESCAPE)
    assert texts(browser, CHIP) == []


def test_the_samples_of_a_finding_are_shown_without_the_range(browser, made_run):
    shown(browser, made_run())
    chart, _ = histogram(browser, "xyz: size (diagonal)")
    drag(browser, chart, 0.01, 0.02)
    assert len(texts(browser, CHIP)) == 1
    browser.execute_script("document.querySelector('#findings button.link').click()")
    assert texts(browser, CHIP) == []
    assert len(texts(browser, "#samples tbody tr")) == 10


def test_of_more_samples_than_the_page_has_rows_both_numbers_are_said(browser, tmp_path):
    rows = MOST_ROWS + 1000
    counts = np.arange(rows) % 4
    folder = brushed_run(tmp_path, rows, {"x:tokens": (counts, np.ones(rows, bool))})
    assert shown(browser, folder) == []
    _, (first, _) = histogram(browser, "x: tokens")
    first.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    held = int(
        texts(browser, "#samples [role=status]")[0].split(" of ")[1].split()[0].replace(",", "")
    )
    assert 2400 < held < 2600
    said = (
        f"2 ≤ tokens ≤ 3: 3,000 samples of the run, {held:,} of them among the 5,000 rows of "
        f"this page."
    )
    assert said in texts(browser, CHIP)[0]
    assert python(browser, folder) == 3000


def test_a_histogram_of_which_the_page_has_no_rows_says_so_and_has_the_line_of_python(
    browser, tmp_path
):
    whole, numbers = np.ones(MOST_ROWS, bool), np.random.default_rng(0).uniform(0, 1, MOST_ROWS)
    folder = brushed_run(
        tmp_path, MOST_ROWS, {f"f{n:02}:box": (numbers + n, whole) for n in range(60)}
    )
    assert shown(browser, folder) == []
    chart, _ = histogram(browser, "f59: size (diagonal)")
    drag(browser, chart, 0.01, 0.49)
    edges = np.linspace(numbers.min() + 59, numbers.max() + 59, 49)
    many = np.count_nonzero(numbers + 59 < edges[24])
    assert (
        f": {many:,} samples of the run. Which of them are in this page it does not hold"
        in texts(browser, CHIP)[0]
    )
    assert texts(browser, "#samples [role=status]") == ["1 to 50 of 5,000 samples"]
    assert python(browser, folder) == many
