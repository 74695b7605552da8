"""Joints over the mean of fit ones in headless Chromium: where each lies, at which size, and what is said of it."""

from itertools import pairwise

import numpy as np
import orjson
import pytest

from datacheck.preview.overlays import FailingPose, overlay
from datacheck.scan.run_documents import PREVIEWS, PREVIEWS_FORMAT
from tests.preview.hands import hand, moved
from tests.report import pictured
from tests.report.conftest import finding
from tests.report.drawings import drawn_run
from tests.report.pictured import put
from tests.report.test_browser import browser, opened, pytestmark, texts

__all__ = ["browser", "pytestmark"]

HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def shown(browser, folder, *worst, fit=None, skeleton="mano21", **more):
    """Open the field of joints of a run; return its panels: label, and of every mark kind and numbers."""
    given = [
        FailingPose(key, "train", np.asarray(one, float), n, "DC201")
        for n, (key, one) in enumerate(worst)
    ]
    fit = [moved(hand(), n) for n in range(6)] if fit is None else fit
    one = {"field": "j"} | overlay(fit, given, skeleton, "m") | more
    said = {
        "format": PREVIEWS_FORMAT,
        "samples": [],
        "findings": {},
        "left_out": [],
        "overlays": [one],
    }
    (drawn_run(folder) / PREVIEWS).write_bytes(orjson.dumps(said))
    logged, asked = opened(browser, folder)
    browser.execute_script(
        "[...document.querySelectorAll('#fields tbody button.link')].find((b) => b.textContent === "
        "'j').click()"
    )
    assert (logged, browser.get_log("browser")) == ([], [])
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    panels = browser.execute_script(
        "return [...document.querySelectorAll('.panels svg[role=img]')].map((s) => ({"
        "label: s.getAttribute('aria-label'), box: s.getAttribute('viewBox').split(' "
        "').map(Number),"
        "views: [...s.querySelectorAll('g')].map((g) =>"
        "[...g.children].map((e) => [e.getAttribute('class'), ['x1', 'y1', 'x2', 'y2', 'cx', 'cy', "
        "'r'].map((n) =>"
        "e.getAttribute(n)).filter((v) => v !== null).map(Number)]))}))"
    )
    return one, panels


def marks(panel, kind, view=0):
    return np.array([numbers for name, numbers in panel["views"][view] if name == kind])


def test_the_mean_is_drawn_from_the_front_and_from_the_side_at_one_scale(browser, tmp_path):
    one, panels = shown(
        browser, tmp_path, ("a", moved(hand(), 9) * 1000), ("b", moved(hand(0.6), 8))
    )
    joints = np.array(one["joints"])
    pairs = [pair for _, chain in one["chains"] for pair in pairwise(chain)]
    for panel in panels:
        scales = []
        for view, across in ((0, 0), (1, 2)):
            drawn = marks(panel, "bone mean", view)
            ways = np.array([joints[to] - joints[at] for at, to in pairs])[:, [across, 1]] * [1, -1]
            seen = np.abs(ways) > 0.01  # of others the steps of a tenth of a pixel would be much
            scales.append((drawn[:, 2:] - drawn[:, :2])[seen] / ways[seen])
        every = np.concatenate(scales)
        assert len(every) > 40
        assert every == pytest.approx(np.median(every), rel=0.03)
        places = np.concatenate(
            [marks(panel, kind, view) for kind in ("bone mean", "bone own") for view in (0, 1)]
        )
        assert places.min() >= 0
        assert (places.reshape(-1, 2).max(axis=0) <= panel["box"][2:]).all()


def test_the_size_of_a_sample_is_told_and_it_is_drawn_over_the_mean(browser, tmp_path):
    far = np.sqrt(np.square(hand()).sum() / 21)
    _, panels = shown(
        browser,
        tmp_path,
        ("a", moved(hand(), 9) * 1000),
        ("b", moved(hand(), 9) * 0.01),
        ("c", moved(hand(), 9) * 2),
    )
    where, bones = (
        "over the mean of 6 fit samples, wrist on wrist",
        "\u00d7 as long as in fit samples",
    )
    assert [panel["label"] for panel in panels] == [
        f"a {where}: {far * 999:.3g} m off the mean (rms), as drawn 0 mm; bones 1,000 {bones}; "
        "drawn at 1/1,000 of its size",
        f"b {where}: {far * 0.99:.3g} m off the mean (rms), as drawn 0 mm; bones 0.01 {bones}; "
        "drawn at 100 times its size",
        f"c {where}: {far:.3g} m off the mean (rms); bones 2 {bones}",
    ]
    for panel in panels[:2]:
        assert marks(panel, "bone own") == pytest.approx(marks(panel, "bone mean"), abs=0.3)
    own, mean = marks(panels[2], "bone own"), marks(panels[2], "bone mean")
    assert own[0, :2] == pytest.approx(mean[0, :2], abs=0.1)  # wrist on wrist
    longer = np.linalg.norm(own[:, 2:] - own[:, :2], axis=1) / np.linalg.norm(
        mean[:, 2:] - mean[:, :2], axis=1
    )
    assert longer == pytest.approx(2, abs=0.05)
    assert texts(browser, ".overlay h4") == [
        "The worst over the mean of 6 fit samples, wrist on wrist, turned to fit"
    ]
    assert texts(browser, ".panels > li > span") == [" DC201 · train"] * 3


def test_what_mirrors_lacks_joints_or_goes_astray_is_told(browser, tmp_path):
    torn, astray = moved(hand(), 3), moved(hand(), 4)
    torn[[7, 20]] = np.nan
    astray[20] += 1e9
    _, panels = shown(
        browser,
        tmp_path,
        ("left", moved(hand(), 2) * [1, 1, -1]),
        ("torn", torn),
        ("astray", astray),
    )
    left, torn, astray = sorted(
        panels, key=lambda panel: ["left", "torn", "astray"].index(panel["label"].split()[0])
    )
    assert "mirrored fits better: 0 mm against " in left["label"]
    assert [len(marks(one, "joint own")) for one in (left, torn)] == [21, 19]
    # Two of one joint, one of a tip
    assert [len(marks(one, "bone own")) for one in (left, torn)] == [20, 17]
    assert torn["label"].endswith("2 joints not finite, not drawn")
    assert astray["label"].endswith("1 joint beyond the drawing")
    own, mean = marks(astray, "bone own"), marks(astray, "bone mean")
    assert sum(np.abs(own - mean).max(axis=1) > 1) == 1  # the others lie where they belong
    assert "mirrored" not in torn["label"]
    assert all(
        np.isfinite(numbers).all()
        for panel in panels
        for view in panel["views"]
        for _, numbers in view
    )


def test_where_no_bone_is_whole_no_length_is_told(browser, tmp_path):
    tips = np.full((21, 3), np.nan)
    tips[[0, 16, 17, 18, 19, 20]] = hand()[[0, 16, 17, 18, 19, 20]]
    _, (panel,) = shown(browser, tmp_path, ("tips", tips))
    assert panel["label"].endswith(
        "0 mm off the mean (rms); no bones to compare; 15 joints not finite, not drawn"
    )


def test_of_several_moments_it_is_said_which_one_is_drawn(browser, tmp_path):
    fit = [moved(hand(), n) for n in range(6)]
    over = overlay(
        fit, [FailingPose("a", "train", hand(), 0, "DC201", "step 1 of 3")], "mano21", "m"
    )
    _, (panel,) = shown(browser, tmp_path, worst=over["worst"])
    assert "wrist on wrist: only step 1 of 3 is drawn; 0 mm off the mean (rms)" in panel["label"]


def test_where_the_other_hand_is_among_the_fit_ones_it_is_said(browser, tmp_path):
    fit = [moved(hand() * [-1 if n == 0 else 1, 1, 1], n) for n in range(12)]
    shown(browser, tmp_path, ("a", hand()), fit=fit)
    said = "mirror images of 1 fit sample fit better, too: left and right hands may be among them"
    assert said in texts(browser, ".overlay > p:last-child")[0].split(" \u00b7 ")


def test_circles_show_the_spread_of_each_joint(browser, tmp_path):
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1, (30, 21, 3)) * np.linspace(0, 0.008, 21)[:, None]
    one, (panel,) = shown(
        browser,
        tmp_path,
        ("a", hand()),
        fit=[moved(hand() + each, n) for n, each in enumerate(noise)],
    )
    radii = marks(panel, "about")[:, 2]
    drawn = radii > 1  # the smallest stay to be seen
    assert drawn.sum() > 15
    scales = radii[drawn] / np.array(one["spread"])[drawn]
    assert scales == pytest.approx(np.median(scales), rel=0.05)


def test_without_bones_lines_lead_to_the_joints_of_the_mean(browser, tmp_path):
    robot = np.random.default_rng(1).normal(size=(6, 3))
    _, (panel,) = shown(
        browser,
        tmp_path,
        ("a", robot * 1.5),
        fit=[moved(robot, n) for n in range(5)],
        skeleton=None,
    )
    assert (
        len(marks(panel, "astray"))
        == len(marks(panel, "joint own"))
        == len(marks(panel, "joint mean"))
        == 6
    )
    assert "first joint on first joint" in panel["label"]
    assert panel["label"].endswith("distances to the root 1.5 \u00d7 as long as in fit samples")


def test_the_card_of_a_finding_leads_to_the_drawing_of_its_joints(browser, made_run):
    there = [pictured.HOSTILE]
    drawn, of_others = finding(examples=there), finding(examples=["a"], kind="of others")
    folder = put(
        made_run(findings=[drawn, of_others, finding("DC105", fields=["other"], examples=there)])
    )
    opened(browser, folder)
    assert texts(browser, ".overlay") == []
    link = "The worst of xyz over the mean of fit samples"
    assert texts(browser, "#findings article button.link.small") == [link]
    for _ in range(2):  # also where the field is open
        browser.execute_script("document.querySelector('#findings button.link.small').click()")
        assert texts(browser, ".overlay h4") == [
            browser.execute_script("return document.activeElement.textContent")
        ]


def test_words_of_the_data_are_words_and_what_is_not_drawn_says_why(browser, tmp_path):
    _, (panel,) = shown(
        browser, tmp_path, (HOSTILE, hand() * 1.2), left_out=[f"1 sample without joints: {HOSTILE}"]
    )
    spelled = HOSTILE.replace("\u202e", "\\u202e")
    assert panel["label"].startswith(spelled)
    assert texts(browser, ".panels .key") == [spelled]
    assert texts(browser, ".overlay > p:last-child")[0].endswith(
        f"1 sample without joints: {spelled}"
    )
    assert browser.execute_script("return document.querySelectorAll('#fields img').length") == 0
    shown(browser, tmp_path, why="4 fit samples to take the mean of, 5 are needed")
    assert texts(browser, ".overlay") == []
    assert (
        "No joints over the mean of fit samples: 4 fit samples to take the mean of, 5 are needed."
        in texts(browser, "#fields p")
    )
    shown(browser, tmp_path)
    assert texts(browser, ".overlay p")[0] == "No failing sample could be laid over it."
