"""Pictures of samples in headless Chromium: every widget is drawn, keys work, nothing is logged, nothing is markup."""

import numpy as np
import orjson
import pytest

from datacheck.preview.drawings import timeline
from datacheck.scan.run_documents import PREVIEWS
from tests.report.conftest import finding
from tests.report.pictured import HOSTILE, pictures, put
from tests.report.test_browser import browser, opened, pytestmark, texts

__all__ = ["browser", "pytestmark"]
SPELLED = HOSTILE.replace("\u202e", "\\u202e")
WITH_WEBGL = (  # software WebGL is refused by the page and good enough for a test
    "const own = HTMLCanvasElement.prototype.getContext; HTMLCanvasElement.prototype.getContext = "
    "function (kind, "
    "how) { return own.call(this, kind, kind === 'webgl' ? {...how, failIfMajorPerformanceCaveat: "
    "false} : how); };"
)
WITHOUT_WEBGL = WITH_WEBGL.replace(
    "own.call(this, kind,", "kind === 'webgl' ? null : own.call(this, kind,"
)


@pytest.fixture
def page(browser, made_run):
    """Open a page with pictures; returns (browser, what was logged)."""
    return browser, opened(browser, put(made_run()))


def settle(browser):
    browser.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => "
        "setTimeout(done, 50)))"
    )


def show(browser, name):
    """Open the dialog of a sample by its key."""
    browser.execute_script(
        "[...document.querySelectorAll('.thumb')].find((b) => b.title === arguments[0]).click()",
        name.replace("\u202e", "\\u202e"),
    )
    settle(browser)


def press(browser, *keys):
    browser.switch_to.active_element.send_keys(*keys)
    settle(browser)


PAINTED = """
const [selector, done] = arguments, canvas = document.querySelector(selector), stage = canvas.closest('.stage');
if (stage) stage.drawn();
requestAnimationFrame(() => {  // in the frame in which it was drawn: WebGL keeps nothing after that
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const pen = copy.getContext('2d');
  pen.drawImage(canvas, 0, 0);
  done(new Set(new Uint32Array(pen.getImageData(0, 0, copy.width, copy.height).data.buffer)).size);
});
"""


def painted(browser, selector):
    """How many different colours a canvas has."""
    return browser.execute_async_script(PAINTED, selector)


def logged_by_us(browser):
    """What was logged, but for what Chromium says of its own software WebGL."""
    return [line for line in browser.get_log("browser") if line["source"] != "rendering"]


def test_a_finding_has_a_row_of_pictures_without_an_error_or_a_request(page):
    browser, (logged, asked) = page
    assert logged == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len(texts(browser, "#findings .thumb")) == len(pictures()) + 1
    assert texts(browser, "#findings .undrawn .shot") == [f"Not drawn: {SPELLED}"]
    assert texts(browser, "#findings > .small") == ["Pictures: 2 samples not drawn: no time."]
    browser.execute_script("document.querySelector('.thumbs').scrollIntoView()")
    settle(browser)
    assert painted(browser, ".thumb canvas") > 10
    labels = browser.execute_script(
        "return [...document.querySelectorAll('.thumb')].map((b) => b.ariaLabel)"
    )
    assert any(label.startswith("cloud, cloud. Point cloud: 500 points") for label in labels)


def test_a_finding_about_a_part_shows_the_dimensions_of_that_part(browser, made_run):
    said = finding(fields=["timeline.grip"], id="DC201:xyz")
    opened(browser, put(made_run(findings=[said])))
    browser.execute_script("document.querySelector('.thumbs').scrollIntoView()")
    settle(browser)
    lines = "return document.querySelectorAll('.thumb[title=timeline] path.series').length"
    assert browser.execute_script(lines) == 1


def test_nothing_of_the_users_is_markup_and_no_image_is_anything_but_data(page):
    browser, _ = page
    show(browser, HOSTILE)
    assert browser.execute_script(
        "return [...document.images].every((i) => i.src.startsWith('data:image/'))"
    )
    assert (
        browser.execute_script(
            "return document.querySelectorAll('img[onerror], dialog script').length"
        )
        == 0
    )
    said = (
        "return [...document.querySelectorAll('*')].flatMap((e) => [e.title, e.ariaLabel, "
        "e.alt]).join('')"
    )
    assert "\u202e" not in browser.execute_script(said)
    assert SPELLED in texts(browser, "dialog h2")[0]
    assert f"Not drawn, for want of room: {SPELLED}" in texts(browser, "dialog .inside > .small")[0]


@pytest.mark.parametrize("name", list(pictures()))
def test_every_widget_is_drawn_and_has_words(page, name):
    browser, _ = page
    show(browser, name)
    wanted = {
        "cloud": ".stage canvas",
        "rgb": ".stage canvas",
        "one place": ".stage canvas",
        "skeleton": ".stage canvas",
        "projection": "svg.projection[role=img] .other .joint",
        "image": "img.picture",
        "film": ".strip img",
        "timeline": "svg path.series",
        "text": ".segment.supervised",
        "tokens": ".segment.padding",
        "note": ".notes dd",
    }[name]
    if name != "note":
        assert texts(browser, "dialog .shown h4") == [name]
        about = pictures()[name]["about"].replace(HOSTILE, SPELLED)
        assert texts(browser, "dialog .shown > .small")[0] == about
    assert (
        browser.execute_script(
            "return document.querySelectorAll('dialog ' + arguments[0]).length", wanted
        )
        > 0
    )
    if wanted == ".stage canvas":
        assert painted(browser, "dialog .stage canvas:last-child") > 5
    if wanted.endswith(("img", "img.picture")):
        assert browser.execute_script(
            "return [...document.querySelectorAll('dialog img')].every((i) => i.complete && "
            "i.naturalWidth && i.alt)"
        )
    assert logged_by_us(browser) == []


def test_projected_joints_lie_on_their_image_and_have_a_small_form_without_it(page):
    browser, _ = page
    show(browser, "projection")
    found = (
        "return [...document.querySelectorAll('dialog ' + arguments[0])].map((e) => "
        "e.getAttribute(arguments[1]))"
    )
    assert browser.execute_script(found, "svg.projection image", "href") == []
    assert len(browser.execute_script(found, ".projection .other .bone", "stroke")) == 20
    # All of them are behind the camera
    assert browser.execute_script(found, ".projection .own .bone", "stroke") == []
    first = pictures()["projection"]["other"]["pixels"][0]
    assert browser.execute_script(found, ".projection .joint", "cx")[0] == f"{first[0]:g}"
    assert texts(browser, "dialog .projection p, dialog section.projection p")[0] == (
        "Dashed: where they would be as camera_opencv."
    )
    browser.execute_script("document.querySelector('.thumbs').scrollIntoView()")
    settle(browser)
    thumb = (
        "return document.querySelectorAll('.thumb[title=projection] .projection.small "
        ".bone').length"
    )
    assert browser.execute_script(thumb) == 20
    browser.execute_script("document.querySelector('dialog').close()")
    show(browser, HOSTILE)
    (url,) = browser.execute_script(found, "svg.projection image", "href")
    assert url == pictures()["image"]["url"]


@pytest.mark.parametrize(("script", "drawn"), [(WITH_WEBGL, "webgl"), (WITHOUT_WEBGL, "canvas")])
def test_a_cloud_is_turned_by_keys_whether_there_is_webgl_or_not(page, script, drawn):
    from selenium.webdriver.common.keys import Keys

    browser, _ = page
    browser.execute_script(script)
    show(browser, "cloud")
    state = (
        "return [document.querySelector('.stage').dataset.drawn, "
        "document.querySelector('.stage').dataset.view]"
    )
    how, first = browser.execute_script(state)
    if how != drawn:
        pytest.skip("this Chromium has no WebGL at all")
    browser.execute_script("document.querySelector('.stage').focus()")
    seen = {first}
    for key in (Keys.ARROW_LEFT, Keys.ARROW_UP, "+", Keys.ARROW_RIGHT, "-"):
        press(browser, key)
        seen.add(browser.execute_script(state)[1])
    assert len(seen) == 6
    press(browser, Keys.HOME)
    assert browser.execute_script(state)[1] == first
    if drawn == "webgl":
        assert painted(browser, ".stage canvas:first-child") > 5
    elif drawn == "canvas":
        assert (
            browser.execute_script("return document.querySelectorAll('.stage canvas').length") == 1
        )


def test_a_cloud_is_turned_by_pointer_and_wheel(page):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    browser, _ = page
    show(browser, "skeleton")
    stage = browser.find_element("css selector", ".stage")
    first = stage.get_attribute("data-view")

    def wheel():
        ActionChains(browser).scroll_from_origin(
            ScrollOrigin.from_element(stage), 0, -200
        ).perform()

    wheel()
    settle(browser)
    assert stage.get_attribute("data-view") == first  # who has not clicked into it scrolls past it
    ActionChains(browser).click_and_hold(stage).move_by_offset(40, 10).release().perform()
    settle(browser)
    turned = stage.get_attribute("data-view")
    assert browser.switch_to.active_element == stage
    wheel()
    settle(browser)
    assert first.split()[2] == turned.split()[2] == "1.000"
    assert first.split()[:2] != turned.split()[:2]
    assert float(stage.get_attribute("data-view").split()[2]) > 1


def test_enter_opens_the_dialog_escape_closes_it_and_the_focus_comes_back(page):
    from selenium.webdriver.common.keys import Keys

    browser, _ = page
    browser.execute_script("document.querySelectorAll('.thumb')[1].focus()")
    press(browser, Keys.ENTER)
    assert browser.switch_to.active_element.text == "Close"
    assert texts(browser, "dialog h2")[0] == "rgb"
    browser.execute_script(
        "[...document.querySelectorAll('dialog button')].find((b) => b.textContent === "
        "'Next').click()"
    )
    assert texts(browser, "dialog h2")[0] == "one place"
    assert texts(browser, "dialog [role=status]") == ["3 of 12"]
    press(browser, Keys.ESCAPE)
    assert texts(browser, "dialog") == []
    assert browser.switch_to.active_element.get_attribute("title") == "rgb"


def test_what_is_trained_on_is_marked_by_more_than_colour_and_has_a_legend(page):
    browser, _ = page
    show(browser, "tokens")
    style = (
        "return getComputedStyle(document.querySelector('.segments .segment.' + "
        "arguments[0]))[arguments[1]]"
    )
    assert browser.execute_script(style, "supervised", "textDecorationLine") == "underline"
    assert browser.execute_script(style, "masked", "textDecorationLine") == "none"
    assert "gradient" in browser.execute_script(style, "padding", "backgroundImage")
    assert [text.split(" ")[0] for text in texts(browser, "dialog .marks li")] == [
        "masked",
        "supervised",
        "padding",
    ]
    assert texts(browser, ".segments .hidden") == ["masked: ", "supervised: ", "padding: "]


@pytest.mark.parametrize("width", [400, 1400])
def test_the_dialog_is_no_wider_than_its_window(page, width):
    browser, _ = page
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    show(browser, HOSTILE)
    inner = (
        "return ['dialog', 'dialog .inside', '.strip', 'html'].map((s) => "
        "document.querySelector(s)).every("
    )
    assert browser.execute_script(inner + "(e) => e.scrollWidth <= e.clientWidth + 1)")
    high = "const e = document.querySelector('dialog'); return e.scrollHeight <= e.clientHeight + 1"
    assert browser.execute_script(high)  # what is inside scrolls, not the dialog with its title
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_page_without_pictures_has_no_trace_of_them(browser, made_run):
    opened(browser, made_run())
    assert browser.execute_script("return typeof twgl") == "undefined"
    assert texts(browser, ".thumbs") == []


def test_the_page_of_one_sample_has_the_same_widgets(browser, tmp_path):
    from datacheck.report.sample_page import write_view

    fields = [{"field": name, **one} for name, one in pictures().items()]
    found = {
        "rule": "DC201",
        "name": HOSTILE,
        "severity": "error",
        "fields": ["film"],
        "message": HOSTILE,
        "fix": "x",
    }
    sample = {"key": HOSTILE, "split": "", "fields": fields, "left_out": [], "why": ""}
    said = {
        "key": HOSTILE,
        "split": "",
        "file": "f",
        "root": "r",
        "schema": "s",
        "run": "R",
        "codes": ["DC201"],
    }
    write_view(tmp_path / "view.html", said | {"findings": [found], "sample": sample})
    browser.get_log("browser")
    browser.get((tmp_path / "view.html").as_uri())
    settle(browser)
    assert logged_by_us(browser) == []
    assert texts(browser, "h1") == [SPELLED]
    assert texts(browser, "h4")[0] == "film"
    assert len(texts(browser, "section.shown")) == len(fields)
    assert browser.execute_script(
        "return [...document.images].every((i) => i.src.startsWith('data:image/'))"
    )
    assert painted(browser, ".stage canvas:last-child") > 5


def test_a_step_between_gaps_is_a_dot_and_so_is_an_episode_of_one_step(browser, made_run):
    folder = put(made_run())
    made = orjson.loads((folder / PREVIEWS).read_bytes())
    lone = [timeline(np.array(values)) for values in ([5.0], [np.nan, 1.0, np.nan])]
    fields = [{"field": str(n), **one} for n, one in enumerate(lone)]
    made["samples"] = [{"key": "lone", "split": "", "fields": fields, "left_out": [], "why": ""}]
    (folder / PREVIEWS).write_bytes(orjson.dumps(made | {"findings": {"DC201:xyz": [0]}}))
    opened(browser, folder)
    show(browser, "lone")
    assert len(texts(browser, "dialog svg")) == len(texts(browser, "dialog svg circle.lone")) == 2


@pytest.mark.parametrize(
    ("ranges", "steps", "shaded"),
    [([[60, 101], [180, 271]], "168", 3), ([[0, 300]], "0", 0), ([], "300", 1)],
)
def test_steps_outside_of_the_ranges_are_shaded(browser, made_run, ranges, steps, shaded):
    folder = put(made_run())
    made = orjson.loads((folder / PREVIEWS).read_bytes())
    drawn = {"field": "q", **timeline(np.arange(300.0)), "ranges": ranges}
    made["samples"] = [{"key": "idle", "split": "", "fields": [drawn], "left_out": [], "why": ""}]
    (folder / PREVIEWS).write_bytes(orjson.dumps(made | {"findings": {"DC201:xyz": [0]}}))
    opened(browser, folder)
    show(browser, "idle")
    assert f"Shaded: {steps} steps of 300 not to be trained on (ranges in valid.json)." in texts(
        browser, "dialog p"
    )
    spans = browser.execute_script(
        "const lane = document.querySelector('dialog .lane').getBoundingClientRect(); "
        "return [...document.querySelectorAll('dialog rect.out')].map((one) => "
        "one.getBoundingClientRect())"
        ".map((one) => [one.left, one.right].map((x) => (x - lane.left) / lane.width * 299))"
    )
    wanted = [[0, 59], [101, 179], [271, 299]] if shaded == 3 else [[0, 299]] * shaded
    assert spans == [pytest.approx(one, abs=1) for one in wanted]


def test_the_lengths_of_a_scene_lie_within_a_narrow_window(browser, made_run):
    metrics = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    opened(browser, put(made_run()))
    browser.execute_script(
        "window.drawn = []; const own = CanvasRenderingContext2D.prototype.fillText; "
        "CanvasRenderingContext2D.prototype.fillText = function (text, x, y) { "
        "drawn.push([text, this.textAlign === 'center' ? Math.abs(x) + "
        "this.measureText(text).width / 2 : 0, "
        "this.canvas.clientWidth / 2]); return own.call(this, text, x, y); }"
    )
    show(browser, "skeleton")
    found = browser.execute_script("return drawn")
    assert {text[0] for text, _, _ in found} >= {"x", "y", "z"}
    assert all(reach <= half for _, reach, half in found)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
