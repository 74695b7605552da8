"""What the page draws beyond histograms, against NumPy's own histograms and arithmetic."""

import json

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from datacheck.model.table import CHECKED, Measured, Table
from datacheck.report.html import run_summary
from datacheck.report.plots import MOST_DRAWN, plots
from datacheck.report.rendering import size_of
from datacheck.rules.skeletons import SKELETONS
from datacheck.rules.text_bytes import BITS, SCRIPTS
from datacheck.schema.load import parse_schema
from datacheck.schema.robots import load_robot
from tests.report.drawings import DRAWN_SCHEMA, drawn_run

HEAD = "datacheck: 1\nname: made\nsamples: {files: '*.npy'}\n"


def made(columns, fields, unfit=(), absent=()):
    """The drawings of a table with these columns; every one has a value in each row, but for `absent` rows."""
    rows = len(next(iter(columns.values())))
    present = np.ones(rows, bool)
    present[[*absent]] = False
    table = Table(
        keys=[f"k{n}" for n in range(rows)],
        files=[""] * rows,
        inner=[""] * rows,
        splits=[""] * rows,
        groups=[""] * rows,
        reasons=[""] * rows,
        status=np.full(rows, CHECKED, np.int8),
        nbytes=np.zeros(rows, int),
        columns={name: Measured(np.asarray(values), present) for name, values in columns.items()},
    )
    mask = np.zeros(rows, bool)
    mask[[*unfit]] = True
    return list(plots(table, parse_schema(HEAD + fields), mask))


def only(kind, *args, **more):
    (found,) = (plot for plot in made(*args, **more) if plot["kind"] == kind)
    return found


# ----------------------------------------------------------------------------------------- episodes

DRIVES = (
    "fields:\n  a: {role: action, shape: [T, 2], drives: q%s}\n  q: {role: position, shape: "
    "[T, 2]}\n"
)


def test_lags_are_the_median_and_the_quartiles_of_the_better_reading():
    peaks = np.array([0.2, 0.4, 0.6, 0.8, np.nan])
    delta = np.zeros((5, 11))
    delta[:, 7] = peaks
    plot = only(
        "lags", {":a:delta": delta, ":a:absolute": np.full((5, 11), 0.3)}, DRIVES % ", lag: 2"
    )
    low, median, high = plot["quartiles"]
    assert plot["lags"][7] == 2
    assert (low[7], median[7], high[7]) == pytest.approx((0.35, 0.5, 0.65))
    assert sum(map(abs, median)) == 0.5
    assert (plot["expected"], plot["declared"], plot["reading"], plot["other"]) == (
        [2],
        True,
        "delta",
        0.3,
    )


def test_without_a_declared_lag_none_and_one_are_expected_and_a_gripper_may_count_either_way():
    falls = {":g:delta": np.full((3, 11), -0.7)}
    plot = only(
        "lags",
        falls,
        "fields:\n  g: {role: gripper, drives: q}\n  q: {role: position, shape: [T, 1]}\n",
    )
    assert (plot["expected"], plot["declared"], plot["other"]) == ([0, 1], False, None)
    assert plot["quartiles"][1] == [0.7] * 11


# --------------------------------------------------------------------------------------- components

POINTS = "fields:\n  x: {role: %s, shape: [P, %d]%s}\n"


def test_ridges_are_the_histograms_of_numpy_and_fit_is_told_from_not_fit():
    rng = np.random.default_rng(0)
    low, high = rng.uniform(-2, -1, (300, 2)), rng.uniform(1, 2, (300, 2))
    low[:, 1] = high[:, 1] = 5
    plot = only(
        "ridges", {"x:min": low, "x:max": high}, POINTS % ("value", 2, ""), unfit=range(200, 300)
    )
    one, dead = plot["rows"]
    assert plot["several"]
    assert (one["low"], one["high"], one["outside"]) == (low[:, 0].min(), high[:, 0].max(), 0)
    assert one["edges"] == [one["low"], one["high"]]
    wanted = [values[rows, 0] for values in (low, high) for rows in (slice(200), slice(200, 300))]
    assert one["counts"] == [np.histogram(part, 40, one["edges"])[0].tolist() for part in wanted]
    assert (dead["low"], dead["high"], "counts" in dead) == (5, 5, False)


def test_where_each_sample_is_one_vector_its_values_are_drawn_once():
    values = np.random.default_rng(1).normal(size=(50, 3))
    plot = only(
        "ridges", {"x:min": values, "x:max": values.copy()}, POINTS % ("position", 3, ", unit: m")
    )
    assert (plot["several"], plot["unit"]) == (False, "m")
    assert [(row["name"], [sum(part) for part in row["counts"]]) for row in plot["rows"]] == [
        ("x", [50, 0]),
        ("y", [50, 0]),
        ("z", [50, 0]),
    ]


def test_a_far_value_squeezes_no_component_and_is_counted():
    values = np.random.default_rng(2).uniform(0, 1, (200, 2))
    values[7, 1] = 1e6
    plot = only("ridges", {"x:min": values, "x:max": values}, POINTS % ("value", 2, ""))
    near, far = plot["rows"]
    assert (near["outside"], far["outside"], far["high"]) == (0, 1, 1e6)
    assert far["edges"][1] < 3
    assert sum(far["counts"][0]) == 199


@pytest.mark.parametrize(("factors", "shared"), [((1, 2, 3), True), ((1, 2, 1000), False)])
def test_components_share_an_axis_only_where_they_are_about_as_wide(factors, shared):
    values = np.random.default_rng(3).uniform(-1, 1, (100, 3)) * factors
    plot = only("ridges", {"x:min": values, "x:max": values}, POINTS % ("value", 3, ""))
    assert plot["shared"] is shared
    assert (len({tuple(row["edges"]) for row in plot["rows"]}) == 1) is shared


def test_components_have_the_names_of_columns_and_the_declared_range():
    values = np.random.default_rng(4).uniform(-1, 1, (20, 3))
    fields = "fields:\n  a: {role: action, shape: [T, 3], columns: 'move:2 grip', range: -1..}\n"
    rows = only("ridges", {"a:min": values, "a:max": values}, fields)["rows"]
    assert [row["name"] for row in rows] == ["move 0", "move 1", "grip"]
    assert [row["band"] for row in rows] == [[-1, None]] * 3


def test_joints_are_held_against_the_limits_of_the_robot_in_the_order_that_fits():
    leap = load_robot("leap")
    order = leap.columns["along the fingers"]
    values = np.array([[leap.limits[joint][0] for joint in order]] * 4) * 180 / np.pi
    # The first order does not fit
    outside = np.concatenate([np.full((4, 8), 9), np.zeros((4, 8))], axis=1)
    columns = {"q:min": values, "q:max": values, "q:outside": outside.astype(int)}
    rows = only(
        "ridges", columns, "fields: {q: {role: joint_angle, shape: [16], unit: deg, robot: leap}}\n"
    )["rows"]
    assert [row["band"][0] for row in rows] == pytest.approx(values[0].tolist())
    assert rows[0]["band"][1] == pytest.approx(np.rad2deg(leap.limits[1][1]))


def test_a_component_without_a_finite_value_says_so_and_hides_no_other():
    values = np.random.default_rng(5).uniform(0, 1, (30, 2))
    values[:, 0] = np.nan
    values[3, 1] = np.inf
    nothing, some = only("ridges", {"x:min": values, "x:max": values}, POINTS % ("value", 2, ""))[
        "rows"
    ]
    assert (nothing["low"], nothing["high"], nothing["edges"]) == (None, None, None)
    assert sum(some["counts"][0]) == 29
    assert some["high"] == values[np.arange(30) != 3, 1].max()


# --------------------------------------------------------------------------------- where things lie


def test_every_centroid_is_in_a_cell_or_counted_beside_them():
    rng = np.random.default_rng(6)
    places = rng.normal(0.5, 0.1, (400, 3))
    places[0] = 1e5
    columns = {"x:centroid": places, "x:box": np.full(400, 0.4)}
    plot = only("centroids", columns, POINTS % ("points", 3, ", unit: m"), unfit=range(300, 400))
    assert plot["of"] == [300, 100]
    for plane in plot["planes"]:
        assert sum(sum(part[1::2]) for part in plane["counts"]) + plot["outside"] == 400
        (h, v), side = plane["axes"], (plot["high"][0] - plot["low"][0]) / plot["cells"]
        within = (np.array(plot["low"]) <= places).all(1) & (places <= plot["high"]).all(1)
        wanted = set(
            map(tuple, ((places[within] - plot["low"]) // side)[:, [h, v]].astype(int).tolist())
        )
        found = [cell for part in plane["counts"] for cell in part[::2]]
        assert {(cell % plot["cells"], cell // plot["cells"]) for cell in found} == wanted
    assert plot["outside"] >= 1
    assert plot["origin"]
    assert plot["half"] == 0.2


@pytest.mark.parametrize(("at", "origin"), [(0.0, True), (1.0, True), (500_000.0, False)])
def test_the_origin_is_in_the_picture_where_it_is_near(at, origin):
    places = np.random.default_rng(7).uniform(-1, 1, (50, 3)) + at
    plot = only("centroids", {"x:centroid": places}, POINTS % ("points", 3, ""))
    assert plot["origin"] is origin
    assert (max(plot["low"]) <= 0 <= min(plot["high"])) is origin


def test_rounding_about_the_origin_does_not_look_like_a_cloud_of_places():
    places = np.random.default_rng(8).normal(0, 1e-9, (50, 3))
    plot = only(
        "centroids", {"x:centroid": places, "x:box": np.full(50, 2.0)}, POINTS % ("points", 3, "")
    )
    assert plot["high"][0] - plot["low"][0] > 0.1
    # The four cells about the origin
    assert [len(part) for part in plot["planes"][0]["counts"]] == [8, 0]


def test_bones_are_held_against_the_table_of_the_skeleton():
    skeleton = SKELETONS["mano21"]
    pairs = np.tile(
        1000 * np.array(skeleton.table + (1.0,) * (len(skeleton.pairs) - len(skeleton.bones))),
        (5, 1),
    )
    pairs[:, 0] *= np.array([0.8, 0.9, 1.0, 1.1, 7.0])
    fields = "fields: {j: {role: joints, shape: [21, 3], unit: mm, skeleton: mano21}}\n"
    plot = only("boxes", {"j:pairs": pairs.astype(np.float32)}, fields, unfit=[4])
    one = 1000 * skeleton.table[0]
    bone = plot["rows"][0]
    assert (plot["of"], len(plot["rows"])) == ([4, 1], len(skeleton.bones))
    assert bone["p"][1:4] == pytest.approx([0.875 * one, 0.95 * one, 1.025 * one], rel=1e-4)
    assert bone["band"] == pytest.approx([one / 2.5, one * 2.5], rel=1e-4)
    assert bone["unfit"] == pytest.approx(7 * one, rel=1e-4)


# ------------------------------------------------------------------------------------------- counts

SCENES = """\
fields:
  id: {role: instance, shape: [P], min_points: 5}
  label: {role: class, shape: [P]}
loader: {clip: 100, drop_classes: [0, 1]}
"""


def test_instances_are_summed_step_by_step():
    funnel = np.array([[9, 8, 8, 5, 2], [4, 4, 4, 1, 0], [7, 7, 7, 7, 7]])
    plot = only("bars", {":funnel": funnel}, SCENES, unfit=[1])
    assert [(row["name"], row["parts"], row["said"]) for row in plot["rows"]] == [
        ("stored", [16, 4], ""),
        ("with a class", [15, 4], ""),
        ("clip 100", [15, 4], ""),
        ("drop_classes 0, 1", [12, 1], ""),
        ("min_points 5", [9, 0], "none left in 1 sample"),
    ]


def test_instances_are_summed_by_their_points_and_what_is_dropped_is_said():
    # Below 1, 2, 3, 5, 10, 20
    sizes = np.array([[0, 2, 1, 4, 0, 7, 0], [0, 0, 0, 5, 1, 0, 0], [0, 0, 0, 1, 1, 1, 0]])
    plot = only("bars", {":sizes": sizes}, SCENES, unfit=[1])
    assert plot["title"] == "Points of each instance at min_points 5"
    assert [(row["name"], row["parts"], row["said"]) for row in plot["rows"]] == [
        ("1", [2, 0], "dropped"),
        ("2", [1, 0], "dropped"),
        ("3 to 4", [5, 5], "dropped"),
        ("5 to 9", [1, 1], ""),
        ("10 to 19", [8, 0], ""),
        ("20 and more", [0, 0], ""),
    ]


@pytest.mark.parametrize(
    ("many", "said"), [(1, "of 1 sample"), (2, "of 2 samples"), (1200, "of 1,200 samples")]
)
def test_how_many_samples_were_counted_is_said_as_people_say_it(many, said):
    counts = {":sizes": np.ones((many, 7), int), ":funnel": np.ones((many, 5), int)}
    funnel, sizes = made(counts, SCENES)
    assert (
        funnel["about"]
        == f"All instances {said}; the numbers after clip and voxel are expected values."
    )
    assert (
        sizes["about"]
        == f"All instances {said} that are left at this step; the numbers after clip and voxel are expected values."
    )


@pytest.mark.parametrize(
    "sizes", [np.zeros((3, 7), int), np.ones((3, 9), int), np.ones((3, 7))[:, :0]]
)
def test_sizes_of_no_instance_or_by_another_min_points_are_not_drawn(sizes):
    assert made({":sizes": sizes}, SCENES) == []


def mixes(*scenes):
    """Return the columns of scenes of (share, class, class) of each of their worst instances."""
    purity, between = np.ones((len(scenes), 8)), np.zeros((len(scenes), 16), np.int64)
    for n, worst in enumerate(scenes):
        for place, (share, *two) in enumerate(worst):
            purity[n, place], between[n, 2 * place : 2 * place + 2] = share, two
    return {":purity": purity, ":between": between}


def test_pairs_of_classes_in_one_instance_are_counted_the_most_frequent_first():
    columns = mixes(
        [(0.5, 7, 3), (0.6, 3, 7), (0.97, 1, 2)],
        [(0.9, 3, 7), (0.94, 1, 2)],
        [(0.8, 1 << 40, -9)] * 8,
        [],
    )
    plot = only("bars", columns, SCENES, unfit=[1])
    assert plot["title"] == "Classes of instances with less than 95 % of their points in one"
    assert [(row["name"], row["parts"], row["said"]) for row in plot["rows"]] == [
        ("-9 and 1099511627776", [8, 0], "in 1 sample"),
        ("3 and 7", [2, 1], "in 2 samples"),
        ("1 and 2", [0, 1], "in 1 sample"),
    ]
    assert plot["about"].endswith("of 1 sample with 8 or more of them the 8 worst.")


def test_pairs_of_classes_are_those_that_the_rule_finds_by_its_options():
    schema = SCENES + "rules: {DC406: {warning: 0.7, error: 0.5}}\n"
    columns = mixes([(0.6, 1, 2), (0.8, 3, 4)])
    assert [row["name"] for row in only("bars", columns, schema)["rows"]] == ["1 and 2"]
    assert made(mixes([(0.7, 1, 2)]), schema) == []


def test_of_many_pairs_of_classes_the_ten_most_frequent_are_shown():
    plot = only("bars", mixes(*[[(0.5, n, 99)] * (1 + (n > 9)) for n in range(12)]), SCENES)
    assert len(plot["rows"]) == 10
    assert [row["name"] for row in plot["rows"][:2]] == ["10 and 99", "11 and 99"]
    assert "the 10 most frequent pairs of 12" in plot["about"]


def test_of_a_loader_with_other_steps_than_were_counted_nothing_is_drawn():
    assert made({":funnel": np.ones((3, 4), int)}, SCENES) == []


HANDS = (
    "fields:\n  h: {role: position, shape: [G, 3], near: v}\n  v: {role: points, shape: [P, 3]}\n"
)


def test_directions_of_hands_are_summed_over_fit_samples_and_over_the_others():
    ways = np.arange(60).reshape(3, 20)
    plot = only("approach", {":h:approach": ways}, HANDS, unfit=[1], absent=[])
    assert (plot["field"], plot["title"]) == ("h", "Which way h comes to v")
    assert plot["counts"] == [[n + n + 40 for n in range(20)], list(range(20, 40))]
    assert plot["about"].startswith("Of 3 samples")


@pytest.mark.parametrize(
    "ways", [np.zeros((3, 20), int), np.ones((3, 7), int), np.ones((3, 20)), np.ones(3, int)]
)
def test_directions_that_are_none_or_in_other_bins_are_not_drawn(ways):
    assert made({":h:approach": ways}, HANDS) == []
    assert made({":h:approach": np.ones((3, 20), int)}, HANDS.replace(", near: v", "")) == []


def test_orders_of_speakers_are_counted_the_most_frequent_first():
    said = (
        ["user assistant"] * 6 + ["assistant"] * 2 + [""] + [f"x {n}" for n in range(12)] + ["gone"]
    )
    plot = only(
        "bars",
        {"c:turns": np.array(said, object)},
        "fields: {c: {role: chat}}\n",
        unfit=[5, 6, 7, 20],
        absent=[21],
    )
    rows = [(row["name"], row["parts"]) for row in plot["rows"]]
    assert rows[:2] == [("user assistant", [5, 1]), ("assistant", [0, 2])]
    assert ("no turn", [1, 0]) in rows
    assert rows[-1] == ("5 others", [4, 1])
    assert sum(sum(parts) for _, parts in rows) == 21


def test_samples_are_counted_by_the_script_of_most_of_their_letters_and_of_any():
    latin, han, digits = (1 << list(SCRIPTS).index(stat) for stat in ("latin", "han", "digits"))
    said = [
        latin | 1 << BITS,
        latin | han | digits | 2 << BITS,
        han | 2 << BITS,
        digits,
        0,
        latin | 1 << BITS,
    ]
    text = "fields: {t: {role: text}}\n"
    plot = only("bars", {"t:scripts": np.array(said, np.int32)}, text, unfit=[1, 3], absent=[5])
    assert [(row["name"], row["parts"], row["said"]) for row in plot["rows"]] == [
        ("Latin", [1, 0], "in 2 samples at all"),
        ("Han (Chinese)", [1, 1], "in 2 samples at all"),
        ("digits", [0, 0], "in 2 samples at all"),
        ("no letter", [1, 1], ""),
    ]
    for odd in (
        np.array(["x"] * 3, object),
        np.ones((3, 2), int),
        np.full(3, -1),
        np.full(3, 99 << BITS),
    ):
        assert made({"t:scripts": odd}, text) == []


def test_equal_samples_are_counted_by_how_many_are_equal():
    content = np.array([-(2**63), 1, 1, 2, 2, 2, 3, 3, *[7] * 6, 99])
    plot = only("bars", {":content": content}, "fields: {}\n", unfit=[1, 2, 3], absent=[14])
    assert [(row["name"], row["parts"], row["said"]) for row in plot["rows"]] == [
        ("2 equal", [2, 2], "in 2 groups"),
        ("3 equal", [2, 1], "in 1 group"),
        ("5 to 8 equal", [6, 0], "in 1 group"),
    ]
    assert plot["about"] == "1 of 14 samples has no duplicate."
    assert made({":content": np.arange(9)}, "fields: {}\n") == []


# ------------------------------------------------------------------------------------------- bounds


@given(arrays(np.float64, st.tuples(st.integers(1, 12), st.just(3))), st.integers(0, 12))
def test_no_number_breaks_the_page(values, bad):
    fields = "fields: {a: {role: position, shape: [T, 3], unit: m, range: -1..1}}\n"
    columns = {"a:min": values, "a:max": values[::-1], "a:centroid": values, "a:box": values[:, 0]}
    found = made(columns, fields, unfit=range(min(bad, len(values))))
    said = orjson.dumps(found)
    assert json.loads(said) == found  # orjson writes null for what is not finite
    for plot in found:
        for low, high in [row["edges"] for row in plot.get("rows", ()) if row["edges"]]:
            assert low < high


def test_columns_of_another_form_are_left_alone():
    texts = np.array(["a", "b"], object)
    columns = {
        "x:min": texts,
        "x:max": texts,
        "x:centroid": texts,
        ":funnel": texts,
        ":content": texts,
        ":x:delta": texts,
    }
    assert made(columns, POINTS % ("points", 3, "")) == []
    many = np.ones((4, 17))
    assert (
        made(
            {"x:min": many, "x:max": many, "x:centroid": np.ones((4, 2))},
            POINTS % ("points", 3, ""),
        )
        == []
    )


def test_of_many_samples_as_many_fit_and_unfit_ones_are_drawn_and_all_are_counted():
    rows = 3 * MOST_DRAWN
    values = np.random.default_rng(9).uniform(0, 1, (rows, 2))
    values[-1] = 50
    plot = only(
        "ridges",
        {"x:min": values, "x:max": values},
        POINTS % ("value", 2, ""),
        unfit=range(rows - 100, rows),
    )
    row = plot["rows"][0]
    assert [sum(part) for part in row["counts"]] == [MOST_DRAWN, 99]
    assert (row["outside"], row["high"]) == (1, 50)
    assert size_of(plot) < 2000


def test_a_page_has_room_for_some_drawings_and_no_more(made_run):
    run = run_summary(made_run())
    assert [(plot["field"], plot["kind"]) for plot in run["plots"]] == [("xyz", "centroids")]
    assert size_of(run["plots"]) < 250_000


def test_what_is_said_of_many_samples_is_true_of_all_of_them_and_not_of_those_that_are_drawn():
    rows = 4 * MOST_DRAWN
    places = np.random.default_rng(10).normal(0, 0.1, (rows, 3))
    unfit = np.arange(rows - 10_000, rows)
    places[unfit] += 0.3
    places[:1_900] = 100
    places[1_900] = np.nan
    box = np.where(np.arange(rows) < rows - 10_000, 0.5, 5.0)
    plot = only(
        "centroids", {"x:centroid": places, "x:box": box}, POINTS % ("points", 3, ""), unfit=unfit
    )
    within = ((places >= plot["low"]) & (places <= plot["high"])).all(axis=1)
    assert (plot["of"], plot["drawn"][1]) == ([rows - 10_001, 10_000], 10_000)
    assert plot["drawn"][0] <= MOST_DRAWN
    assert plot["outside"] == np.count_nonzero(~within) - 1
    assert plot["outside"] > 1_900
    # a fit and an unfit sample count alike: drawn are five times as many unfit ones, which would
    # move it by 0.02
    assert plot["median"] == pytest.approx(np.nanmedian(places, axis=0), abs=0.003)
    assert plot["half"] == 0.25


def test_episodes_are_counted_of_the_reading_that_is_drawn():
    delta, absolute = np.full((6, 11), 0.8), np.full((6, 11), 0.1)
    delta[0], absolute[2:] = np.nan, np.nan
    plot = only("lags", {":a:delta": delta, ":a:absolute": absolute}, DRIVES % "")
    assert (plot["reading"], plot["n"]) == ("delta", 5)


def test_a_gripper_that_counts_either_way_goes_with_nothing_on_the_whole():
    # DC507 takes the size of the median, not the median of sizes
    signs = np.array([1, 1, -1, -1])[:, None]
    fields = "fields:\n  g: {role: gripper, drives: q}\n  q: {role: position, shape: [T, 1]}\n"
    assert (
        only("lags", {":g:delta": 0.7 * signs * np.ones((4, 11))}, fields)["quartiles"][1]
        == [0] * 11
    )
    some = np.array([-0.9, -0.7, -0.5, -0.3, 0.1])[:, None] * np.ones((5, 11))
    assert [one[0] for one in only("lags", {":g:delta": some}, fields)["quartiles"]] == [
        0.3,
        0.5,
        0.7,
    ]


def test_bones_are_held_against_the_factor_that_the_rules_are_given():
    skeleton = SKELETONS["mano21"]
    pairs = {"j:pairs": np.full((4, len(skeleton.pairs)), 0.03)}
    fields = (
        "fields: {j: {role: joints, shape: [21, 3], unit: m, skeleton: mano21}}\nrules: "
        "{DC601: {band: %s}}\n"
    )
    bands = {wide: only("boxes", pairs, fields % wide)["rows"][0]["band"] for wide in ("4", "0")}
    assert bands["4"] == pytest.approx([skeleton.table[0] / 4, skeleton.table[0] * 4], rel=1e-4)
    assert bands["0"] is None


@pytest.mark.parametrize("values", [[2e300, 3e300], [2e300, 1e300, 1e308], [0, *[1e-310] * 98, 1]])
def test_components_at_the_ends_of_what_numbers_can_be_are_drawn_or_said_not_to_be(values):
    column = np.array(values * 30)[:, None] * np.ones(2)
    for row in only("ridges", {"x:min": column, "x:max": column}, POINTS % ("value", 2, ""))[
        "rows"
    ]:
        assert (row["low"], row["high"]) == (min(values), max(values))
        assert row["edges"] is None or row["edges"][0] < row["edges"][1]
        if row["edges"] is not None:
            assert sum(row["counts"][0]) + row["outside"] >= len(column)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool", "float16"])
def test_the_numbers_of_a_check_of_the_users_may_be_of_any_type(dtype):
    values = np.array([[0, 1], [1, 0], [1, 1]], dtype)
    rows = only("ridges", {"x:min": values, "x:max": values}, POINTS % ("value", 2, ""))["rows"]
    assert [(row["low"], row["high"]) for row in rows] == [(0, 1)] * 2


def test_the_page_holds_no_split_against_what_is_declared_for_others(tmp_path):
    text = DRAWN_SCHEMA.replace('"*.npy"', '"{split}/*.npy"')
    per_split = text + "when:\n  split=val: {a: {unit: mm, range: -4000..4000}}\n"
    for schema, unit, band in ((text, "m", [-4, 4]), (per_split, "", None)):
        (plot,) = (
            one
            for one in run_summary(drawn_run(tmp_path, schema=schema))["plots"]
            if one["kind"] == "ridges"
        )
        assert (plot["unit"], plot["rows"][1]["band"]) == (unit, band)
