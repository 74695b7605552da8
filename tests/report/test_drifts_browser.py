"""Drift in headless Chromium: sizes of effects against the limit, pairs of distributions, or that nothing drifted."""

import re

import numpy as np
import pytest

from datacheck.rules.comparison import DriftResult
from tests.report.conftest import finding
from tests.report.made_drift import compared_rules, one
from tests.report.test_browser import browser, opened, pytestmark, texts

__all__ = ["browser", "pytestmark"]


def attributes(browser, selector, *names):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((e) => arguments[1].map((n) => "
        "e.getAttribute(n)))",
        selector,
        names,
    )


def numbers(browser, selector, *names):
    return [[float(value) for value in row] for row in attributes(browser, selector, *names)]


def labels(browser):
    return [label for (label,) in attributes(browser, "#drift svg[role=img]", "aria-label")]


def test_effects_are_drawn_by_size_with_the_limit_and_what_chance_gives(browser, made_run):
    measures = [
        one("xyz", "box", 2.0),
        one("xyz", "max", 1.0, chance=0.4),
        one("a", "min", 0.5, drifted=False, q=0.3, chance=0.6),
        one("b", "min", 0.1, drifted=False),
        one("c", "min", 0.0, drifted=False),
    ]
    logged, asked = opened(browser, made_run(rules=compared_rules(measures)))
    assert (logged, [url for url in asked if not url.startswith(("file:", "data:"))]) == ([], [])
    assert texts(browser, "#drift .drifts p")[0] == "2 of 5 measures drifted."
    assert labels(browser)[0] == (
        "Size of effects, limit 0.2 sd: xyz size (diagonal) 2 sd, drifted (q 0.01); "
        "xyz highest value 1 sd, drifted (q 0.01); a lowest value 0.5 sd, may be chance (q 0.3, 95 "
        "% of chance: 0.6); "
        "b lowest value 0.1 sd, below the limit; "
        "c lowest value 0 sd, below the limit"
    )
    dots = numbers(browser, "#drift .effect circle", "cx", "cy")
    zero, widths = dots[-1][0], [x - dots[-1][0] for x, _ in dots]
    assert widths == pytest.approx([widths[0] * part for part in (1, 0.5, 0.25, 0.05, 0)], abs=0.01)
    assert [y for _, y in dots] == sorted(y for _, y in dots)
    ((limit,),) = numbers(browser, "#drift .bandline", "x1")
    assert limit - zero == pytest.approx(widths[0] / 10, abs=0.01)
    bands = numbers(browser, "#drift .effect rect.chance", "x", "width")  # only of what was tested
    assert [width for _, width in bands] == pytest.approx(
        [widths[0] * part for part in (0.15, 0.2, 0.3)], abs=0.01
    )
    assert {x for x, _ in bands} == {zero}


def test_what_differs_is_named_with_its_split(browser, made_run):
    found = [
        finding("DC902", split=split, fields=fields)
        for split, fields in (("train", ["xyz"]), ("val", ["xyz"]))
    ]
    opened(browser, made_run(findings=[*found, finding("DC901", fields=[])]))
    assert texts(browser, "#drift table:last-of-type tbody th")[-3:] == [
        "xyz · train",
        "xyz · val",
        "dataset",
    ]


def test_a_pair_of_distributions_is_two_step_lines_with_the_largest_difference_marked(
    browser, made_run
):
    measures = [one("xyz", "box", 2.0, split="train")]
    opened(browser, made_run(rules=compared_rules(measures)))
    assert texts(browser, "#drift .ecdf h4") == ["xyz size (diagonal) of train (m)"]
    said = (
        "2 sd apart (limit 0.2 sd, q 0.01); median 3.5 in the reference (4 samples), 6.5 m here (4 "
        "samples); "
        "largest difference 75 % at 5 m: at or below it lie 100 % in the reference, 25 % here."
    )
    assert texts(browser, "#drift .ecdf p") == [said]
    assert labels(browser)[1] == f"Cumulative distributions of xyz size (diagonal) of train: {said}"
    top, bottom = (y for (y,) in numbers(browser, "#drift .ecdf .track-line", "y1")[::-2])
    ((x1, x2, now, then),) = numbers(browser, "#drift .ecdf .ks", "x1", "x2", "y1", "y2")
    assert x1 == x2
    assert [(bottom - y) / (bottom - top) for y in (now, then)] == pytest.approx(
        [0.25, 1.0], abs=0.01
    )
    for kind, shares in (("now", [0, 0, 0.25, 0.5, 0.75, 1]), ("before", [0.25, 0.5, 1, 1, 1, 1])):
        ((path,),) = attributes(browser, f"#drift .ecdf path.step.{kind}", "d")
        heights = [(bottom - float(y)) / (bottom - top) for y in re.findall(r"V([\d.]+)", path)]
        assert heights == pytest.approx(shares, abs=0.01)
        across = [float(x) for x in re.findall(r"H([\d.]+)", path)]
        assert across == sorted(across)
        assert across[2] == pytest.approx(x1, abs=0.1)
    words = texts(browser, "#drift .ecdf svg text")
    assert [words.count(word) for word in ("this run", "reference", "KS 75 %")] == [1, 1, 1]


def test_at_most_six_pairs_are_drawn_and_further_effects_are_folded(browser, made_run):
    measures = [one(f"f{n}", "box", 1.0 + n) for n in range(30)]
    opened(browser, made_run(rules=compared_rules(measures)))
    assert texts(browser, "#drift .ecdf h4") == [
        f"f{n} size (diagonal) (m)" for n in range(29, 23, -1)
    ]
    assert texts(browser, "#drift .drifts summary") == ["10 more"]
    assert len(numbers(browser, "#drift .effect circle", "cx")) == 20
    browser.execute_script("document.querySelector('#drift .drifts details').open = true")
    browser.execute_async_script("setTimeout(arguments[0], 300)")
    assert len(numbers(browser, "#drift .effect circle", "cx")) == 30


def test_without_drift_it_says_what_was_compared(browser, made_run):
    measures = [one("xyz", "box", 0.15, drifted=False), one("xyz", "max", 0.01, drifted=False)]
    opened(browser, made_run(rules=compared_rules(measures)))
    assert "Nothing differs by more than is allowed." in texts(browser, "#drift p")
    first, about = texts(browser, "#drift .drifts p")
    assert (
        first
        == "2 measures of 1 field compared, nothing drifted: the largest effect is 0.15 sd (xyz "
        "size (diagonal))."
    )
    assert about == (
        "A measure drifts from 0.2 sd on where chance is unlikely to give as much (q at most "
        "0.05). What stays "
        "below the limit was not tested. Looked at: 4 groups here, 4 in the reference "
        "(at most 1,000 a side, and 50,000 samples)."
    )
    assert texts(browser, "#drift .ecdf") == []
    assert len(labels(browser)) == 1
    opened(
        browser,
        made_run(rules=compared_rules([one("xyz", "box", 0.4, drifted=False, q=0.2, chance=0.5)])),
    )
    assert texts(browser, "#drift .drifts p")[0].endswith(
        "0.4 sd (xyz size (diagonal)), which may be chance."
    )


def test_without_a_reference_nothing_is_drawn(browser, made_run):
    rules = compared_rules([])
    rules["DC902"] |= {"status": "not_applicable", "why": "no --reference given"}
    opened(browser, made_run(rules=rules))
    assert texts(browser, "#drift") == []
    assert "no --reference given" in browser.execute_script(
        "return document.querySelector('#rules').textContent"
    )


def test_classes_have_their_shares_side_by_side(browser, made_run):
    classes = (("0", 0.2, 0.4), ("3", 0.3, 0.1), ("1", 0.5, 0.5))
    told = DriftResult(
        "label", "classes", "", 0.2, True, (9, 8), (9, 8), 0.005, 0.04, classes=classes
    )
    opened(browser, made_run(rules=compared_rules([told], "DC903")))
    assert texts(browser, "#drift .drifts p")[0] == "1 of 1 class distribution drifted."
    assert labels(browser)[1] == (
        "label classes, from the reference to this run: class 0 40 % to 20 %, class 3 10 % to 30 "
        "%, "
        "class 1 50 % to 50 %. total variation 0.2 (limit 0.1, q 0.005); 8 samples in the "
        "reference, 9 here"
    )
    (now, then) = (
        numbers(browser, f"#drift .shares-of circle.{kind}", "cx") for kind in ("now", "before")
    )
    assert then[0][0] - now[0][0] == pytest.approx(now[1][0] - then[1][0], abs=0.01)
    assert now[2] == then[2]


ODD = {
    "far apart": ((1e153, 2e153), (-1e153, 0.0)),
    "one far value": ((*np.linspace(0, 1, 99), 1e12), tuple(np.linspace(0.5, 1.5, 100))),
    "constants": ((3.0, 3.0), (1.0, 1.0)),
    "tiny": ((5e-300, 6e-300), (1e-300, 2e-300)),
    "orders": ((0.001, 1000.0), (0.001, 0.002)),
    "one each": ((2.0,), (1.0,)),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_are_drawn_within_the_picture(browser, made_run, name):
    here, reference = ODD[name]
    measures = [one("xyz", "box", 3.0, here=here, reference=reference)]
    logged, _ = opened(browser, made_run(rules=compared_rules(measures)))
    assert logged == []
    ((width,),) = numbers(browser, "#drift .ecdf svg", "width")
    for (path,) in attributes(browser, "#drift .ecdf path.step", "d"):
        assert "NaN" not in path
        across = [float(x) for x in re.findall(r"H(-?[\d.]+)", path)]
        assert across == sorted(across)
        assert 0 <= across[0] <= across[-1] == width
    ((ks,),) = numbers(browser, "#drift .ecdf .ks", "x1")
    assert 42 <= ks <= width
    assert "Infinity" not in texts(browser, "#drift")[0]
