"""Pictures of arrays: what is kept of them, held against arithmetic and against Pillow."""

import base64
import contextlib
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.preview.drawings import (
    DIMENSIONS,
    MAX_POINTS,
    POINTS,
    RANGES,
    SIDE,
    Colour,
    NotDrawableError,
    cloud,
    film,
    image,
    mark_trained_ranges,
    png,
    spread_indices,
    timeline,
)
from datacheck.preview.overlays import skeleton
from datacheck.rules.skeletons import SKELETONS
from datacheck.schema.load import parse_schema

DTYPES = st.sampled_from(["f2", "f4", "f8", "i1", "i8", "u1", "u8", "?"])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=12)
    )
)


def points_of(made):
    """The drawn points, put back between the corners of the box."""
    numbers = np.frombuffer(base64.b64decode(made["xyz"]), "<u2").reshape(-1, 3)
    low, high = np.array(made["box"])
    return low + numbers / 65535 * (high - low)


# ----------------------------------------------------------------------------------------- choosing


@given(st.integers(0, 100_000), st.integers(1, 3000))
def test_thinning_takes_one_of_each_equal_part(count, most):
    places = spread_indices(count, most)
    assert len(places) == min(count, most)
    if count > most:
        edges = np.arange(most + 1) * count // most
        assert (places >= edges[:-1]).all()
        assert (places < edges[1:]).all()
    assert (places == spread_indices(count, most)).all()


def test_thinning_does_not_walk_along_the_columns_of_a_grid():
    places = spread_indices(64 * 64 * 16, 4096)  # an even step of 16 would meet 4 of the 64 columns
    assert len(np.unique(places % 64)) == 64


# ------------------------------------------------------------------------------------------- clouds


def test_a_small_cloud_comes_back_to_a_65535th_of_its_box():
    points = np.random.default_rng(0).normal(size=(500, 3)) * [1, 10, 0.1]
    for place in (0, 5e6):  # coordinates of a map lie far from the origin
        made = cloud(points + place, "m")
        assert (made["points"], made["shown"], made["unfinite"]) == (500, 500, 0)
        assert made["colour"] == {"by": "height"}
        step = (points.max(axis=0) - points.min(axis=0)) / 65535
        assert (np.abs(points_of(made) - place - points) <= step + 1e-8).all()


def test_a_large_cloud_is_thinned_and_its_box_is_that_of_all_points():
    points = np.random.default_rng(0).uniform(-1, 1, (50_000, 3)).astype(np.float32)
    points[777] = [5, 6, 7]
    made = cloud(points, "m")
    assert (made["points"], made["shown"]) == (50_000, MAX_POINTS)
    assert made["box"][1] == [5, 6, 7]
    assert "50,000 points; 2,048 drawn" in made["about"]
    assert cloud(points[:1])["about"].startswith("Point cloud: 1 point; ")


def test_points_that_are_not_finite_are_counted_and_not_drawn():
    points = np.arange(30.0).reshape(10, 3)
    points[3, 1], points[7, 0] = np.nan, np.inf
    made = cloud(points)
    assert (made["shown"], made["unfinite"]) == (8, 2)
    assert made["box"] == [[0, 1, 2], [27, 28, 29]]
    assert "2 not finite and not drawn" in made["about"]
    assert "no unit declared" in made["about"]


def test_colours_of_both_ranges_come_out_as_bytes_and_labels_as_the_commonest():
    points = np.zeros((4, 3)) + np.arange(4)[:, None]
    for values in ([[0, 0.5, 1]] * 4, [[0, 127.5, 255]] * 4):
        made = cloud(points, colour=Colour("rgb", np.array(values)))
        assert base64.b64decode(made["colour"]["rgb"]) == bytes([0, 128, 255] * 4)
    labels = np.array([7, -100, 7, 7])
    made = cloud(points, colour=Colour("semantic", labels, (-100,)))["colour"]
    assert (made["names"], made["counts"]) == (["7", "-100 (ignored)"], [3, 1])
    assert base64.b64decode(made["label"]) == bytes([0, 1, 0, 0])
    near = cloud(points, colour=Colour("instance", np.array([1000003, 1000004, 1000004, 0])))[
        "colour"
    ]
    assert near["names"] == ["1000004", "0", "1000003"]
    for values, names in (
        ([True] * 3 + [False], ["1", "0"]),
        ([1e6 + 3, 0.5, 0.5, 0.5], ["0.5", "1000003"]),
    ):
        assert cloud(points, colour=Colour("mask", np.array(values)))["colour"]["names"] == names
    many = cloud(
        np.random.default_rng(0).normal(size=(100, 3)),
        colour=Colour("instance", np.arange(100) // 2),
    )
    assert many["colour"]["names"][-1] == "39 others"
    assert (len(many["colour"]["names"]), sum(many["colour"]["counts"])) == (12, 100)


def test_labels_that_are_no_class_come_first_however_rare_they_are():
    points, labels = np.random.default_rng(0).normal(size=(200, 3)), np.repeat(np.arange(20), 10)
    labels[:2] = 150
    known = Colour("semantic", labels, (19,), declared=lambda values: values < 19)
    made = cloud(points, colour=known)["colour"]
    assert (made["names"][0], made["counts"][0]) == ("150 (no class)", 2)
    assert not any("no class" in name for name in made["names"][1:])
    assert (len(made["names"]), made["names"][-1]) == (12, "10 others")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.zeros((0, 3)), "has no point"),
        (np.full((5, 3), np.nan), "5 points, none of them finite"),
        (np.zeros((3, 5)), r"shape \[3, 5\]"),
        (np.zeros(3), r"shape \[3\]"),
        ("text", "holds str"),
        (np.array([["a", "b", "c"]]), "no plain numbers"),
        (np.zeros((2, 3), complex), "no plain numbers"),
    ],
)
def test_what_is_no_cloud_says_why(value, why):
    with pytest.raises(NotDrawableError, match=why):
        cloud(value)


# ---------------------------------------------------------------------------------------- skeletons


def hand(name):
    """Joints whose bones have the lengths of the named order, each finger on a line of its own."""
    order = SKELETONS[name]
    joints = np.zeros((21, 3))
    for number, (finger, chain) in enumerate(order.chains.items()):
        way = np.array([np.cos(number / 3), np.sin(number / 3), 0])
        for place, length in zip(chain[1:], np.cumsum(order.lengths[finger]), strict=True):
            joints[place] = way * length
    return joints


@pytest.mark.parametrize("name", sorted(SKELETONS))
def test_the_order_of_21_joints_is_told_by_the_shortest_bones_and_said_to_be_guessed(name):
    made = skeleton(hand(name), None, "m")
    assert (made["skeleton"], made["guessed"]) == (name, True)
    assert "the schema names no skeleton" in made["about"]
    told = skeleton(hand(name), "mano21", "m")
    assert (told["skeleton"], told["guessed"]) == ("mano21", False)
    assert told["chains"] == [
        [finger, list(chain)] for finger, chain in SKELETONS["mano21"].chains.items()
    ]


def test_joints_without_known_bones_and_single_joints_are_points():
    assert skeleton(np.zeros((5, 3)))["chains"] == []
    assert skeleton(np.zeros(3), "mano21")["joints"] == [[0, 0, 0]]
    assert skeleton(np.ones((4, 2)), unit="px")["joints"] == [[1, 1, 0]] * 4
    film_ = np.arange(5 * 21 * 3.0).reshape(5, 21, 3)
    assert skeleton(film_)["joints"][0] == [126, 127, 128]
    assert "step 2 of 5" in skeleton(film_)["about"]


def test_joints_far_from_the_origin_keep_their_distances():
    joints = hand("mano21") + np.array([5e5, 5e6, 0])
    made = skeleton(joints, "mano21", "m")
    assert np.abs(np.array(made["joints"]) - joints).max() <= 1e-4 * np.ptp(joints, axis=0).max()
    assert made["box"] == [joints.min(axis=0).tolist(), joints.max(axis=0).tolist()]


def test_a_joint_that_is_not_finite_is_left_out():
    joints = hand("mano21")
    joints[4] = np.nan
    made = skeleton(joints, "mano21")
    assert (made["joints"][4], made["unfinite"]) == (None, 1)
    with pytest.raises(NotDrawableError, match="none of them finite"):
        skeleton(np.full((21, 3), np.inf), "mano21")


# ----------------------------------------------------------------------------------------- pictures


def pixels_of(url):
    pillow = pytest.importorskip("PIL.Image")
    return np.asarray(pillow.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_of_ours_is_read_by_pillow(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    pillow = pytest.importorskip("PIL.Image")
    found = np.asarray(pillow.open(io.BytesIO(png(pixels))))
    assert (found.reshape(pixels.shape) == pixels).all()


def test_a_small_image_is_kept_and_a_large_one_is_made_of_means():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    assert (pixels_of(image(pixels)["url"]) == pixels).all()
    assert (pixels_of(image(pixels, flip=True)["url"]) == pixels[::-1]).all()
    for height, width in ((320, 240), (240, 320), (400, 100), (161, 2), (20_000, 10)):
        made = image(np.zeros((height, width), np.uint8))
        most = max(height, width)
        shape = tuple(max(1, round(size * SIDE / most)) for size in (width, height))
        assert (made["width"], made["height"]) == shape == pixels_of(made["url"]).shape[1::-1]
    blocks = np.kron(np.arange(160 * 80).reshape(80, 160) % 7 * 30, np.ones((4, 4))).astype(
        np.uint8
    )
    made = image(blocks)
    assert (made["width"], made["height"]) == (160, 80)
    found = pixels_of(made["url"])
    assert np.abs(found.astype(int) - blocks[::4, ::4]).max() <= (
        40 if "jpeg" in made["url"] else 0
    )


def test_depth_is_drawn_from_its_lowest_to_its_highest_value_and_says_so():
    depth = np.array([[0.5, 2.5], [1.5, np.nan]])
    made = image(depth)
    assert pixels_of(made["url"]).tolist() == [[0, 255], [128, 0]]
    assert "black is 0.5, white 2.5" in made["about"]
    assert "25.00% of the values not finite" in made["about"]


def test_a_film_is_six_frames_from_the_first_to_the_last():
    frames = (
        np.zeros((101, 8, 8, 3), np.uint8) + np.arange(101, dtype=np.uint8)[:, None, None, None]
    )
    made = film(frames, fps=20)
    assert [frame["at"] for frame in made["frames"]] == [0, 20, 40, 60, 80, 100]
    assert [int(pixels_of(frame["url"])[0, 0, 0]) for frame in made["frames"]] == [
        0,
        20,
        40,
        60,
        80,
        100,
    ]
    assert "6 of 101 frames; 5.05 s" in made["about"]
    assert len(film(frames[:2])["frames"]) == 2


# ---------------------------------------------------------------------------------------- timelines


@given(hnp.arrays("f8", st.integers(1, 3000), elements=st.floats(-1e6, 1e6)))
def test_a_thinned_dimension_keeps_its_lowest_and_highest_value(values):
    (dim,) = timeline(values)["dims"]
    assert len(dim["at"]) <= POINTS
    assert dim["at"] == sorted(set(dim["at"]))
    # Five digits of what the line is drawn over
    near = 1e-4 * (np.ptp(values) or np.abs(values).max())
    assert np.abs([dim["low"] - values.min(), dim["high"] - values.max()]).max() <= near
    assert {dim["low"], dim["high"]} <= set(dim["values"])
    assert np.abs(np.array(dim["values"]) - values[dim["at"]]).max() <= near


def test_a_dimension_far_from_zero_keeps_its_shape():
    times = 1.7e9 + np.arange(100) / 20  # seconds since 1970
    (dim,) = timeline(times)["dims"]
    assert np.abs(np.array(dim["values"]) - times).max() <= 1e-3
    assert dim["high"] - dim["low"] == pytest.approx(4.95, abs=1e-3)


def test_a_timeline_counts_what_is_not_finite_and_what_it_leaves_out():
    values = np.zeros((1000, 40))
    values[100:200, 0] = np.nan
    made = timeline(values, ["x"], "m", 20)
    assert (len(made["dims"]), made["all_dims"]) == (DIMENSIONS, 40)
    assert made["dims"][0]["unfinite"] == 100
    assert None in made["dims"][0]["values"]
    assert [dim["name"] for dim in made["dims"][:3]] == ["x", "1", "2"]
    assert "100 values not finite" in made["about"]


# --------------------------------------------------------------------------------------- any values


def ranged(kept, *steps):
    drawn = [
        {"field": f"f{n}", **timeline(np.arange(float(count)))} for n, count in enumerate(steps)
    ]
    fields = "".join(f"  f{n}: {{shape: [T]}}\n" for n in range(len(steps)))
    mark_trained_ranges(
        drawn,
        kept,
        parse_schema(f"datacheck: 1\nname: x\nsamples: {{files: '*.npz'}}\nfields:\n{fields}"),
    )
    return drawn


@given(
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)).map(list), max_size=9),
    st.integers(1, 12),
)
def test_ranges_are_those_of_the_steps_that_are_drawn(kept, steps):
    (one,) = ranged(kept, steps)
    trained = {step for first, stop in kept for step in range(first, stop) if step < steps}
    assert {step for first, stop in one["ranges"] for step in range(first, stop)} == trained
    edges = [edge for pair in one["ranges"] for edge in pair]
    assert edges == sorted(set(edges)), "no range is empty, and none meets the next"


def test_a_sample_of_very_many_ranges_is_drawn_without():
    """They would stand in each of its timelines: of 1 MB of valid.json and 400 series a page of 240 MB."""
    kept = [[2 * n, 2 * n + 1] for n in range(RANGES + 1)]
    short, long = ranged(kept, 2 * RANGES, 2 * RANGES + 1)
    assert short["ranges"] == kept[:-1]
    assert "ranges" not in long
    assert long["about"].endswith("not shaded: valid.json has 1,001 ranges.")
    (one,) = ranged([[0, 1]] * 100_000, 6)
    assert one["ranges"] == [[0, 1]]


@pytest.mark.parametrize("draw", [cloud, skeleton, image, film, timeline])
@given(value=ARRAYS)
def test_any_array_is_drawn_or_says_why_not(draw, value):
    with np.errstate(all="ignore"), contextlib.suppress(NotDrawableError):
        made = draw(value)
        assert json.loads(json.dumps(made, allow_nan=False)) == made
        assert made["about"].endswith(".")
        assert max(made.get("width", 0), made.get("height", 0)) <= SIDE
