"""Joints in the image of their camera: pixels from arithmetic, what cannot be seen is counted, nothing raises."""

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.preview.pictures import PreviewBuilder, previews
from datacheck.schema.load import parse_schema

SCHEMA = """\
datacheck: 1
name: made
samples: {files: "*.npz"}
fields:
  hand: {role: joints, shape: [J, 3], unit: m, frame: %s, intrinsics: k, image_size: [100, 80], centered: no}
  k: {role: intrinsics, shape: [3, 3], unit: px}
  k2: {role: intrinsics, shape: [3, 3], unit: px}
  photo: {role: image, shape: [H, W, 3]}
  other: {role: image, shape: [H, W, 3], intrinsics: k}
  aside: {role: image, shape: [H, W, 3], intrinsics: k2}
"""
LENS = np.array([[100.0, 0, 50], [0, 200, 40], [0, 0, 1]])  # u = 50 + 100 x/z, v = 40 + 200 y/z
OPENCV = np.array([[0.5, -0.2, 2.0], [0, 0, 1], [-0.4, 0.1, 1]])
PIXELS = [[75, 20], [50, 40], [10, 60]]


def shown(joints, lens=LENS, frame="camera_opencv", **images):
    fields = {"hand": joints, "k": lens, **images}
    made = previews(PreviewBuilder(fields, parse_schema(SCHEMA % frame)))
    return next((one for one in made if one["kind"] == "projection"), None)


@pytest.mark.parametrize(
    ("frame", "signs"), [("camera_opencv", [1, 1, 1]), ("camera_opengl", [1, -1, -1])]
)
def test_joints_lie_where_a_pinhole_camera_sees_them(frame, signs):
    made = shown(OPENCV * signs, frame=frame)
    assert (made["size"], made["pixels"], made["other"]) == ([100, 80], PIXELS, None)
    assert made["about"] == f"Projected: 3 of 3 joints within 100 x 80 pixels; by k and {frame}."


@pytest.mark.parametrize(
    "lens",
    [
        LENS,
        LENS[None].repeat(2, axis=0),
        np.eye(4) * [1, 1, 1, 0] @ np.pad(LENS, (0, 1)),
        [100.0, 200, 50, 40],
    ],
)
def test_a_camera_may_be_a_matrix_several_or_four_numbers(lens):
    assert shown(OPENCV, np.asarray(lens))["pixels"] == PIXELS


def test_of_several_moments_the_middle_one_is_projected():
    made = shown(np.stack([OPENCV * 9, OPENCV, OPENCV + 7]))
    assert made["pixels"] == PIXELS
    assert made["about"].startswith("Projected: step 1 of 3; 3 of 3 joints within ")


@pytest.mark.parametrize("moments", [2, 3, 4, 7])
@pytest.mark.parametrize("vectors", [False, True])
def test_each_moment_has_its_camera_where_there_are_as_many(moments, vectors):
    cameras = np.stack([LENS] * moments)
    # That of the middle moment is LENS
    cameras[:, 0, 2] += 10 * (np.arange(moments) - moments // 2)
    assert len({*cameras[:, 0, 2]}) == moments
    if vectors:
        cameras = cameras[:, [0, 1, 0, 1], [0, 1, 2, 2]]
    assert shown(np.stack([OPENCV] * moments), cameras)["pixels"] == PIXELS
    first = shown(np.stack([OPENCV] * (moments + 1)), cameras)["pixels"]
    assert first == [[u - 10 * (moments // 2), v] for u, v in PIXELS]


def test_the_rows_of_a_matrix_are_no_cameras_of_as_many_moments():
    for moments in (3, 4):
        lens = np.pad(LENS, (0, moments - 3))
        assert shown(np.stack([OPENCV] * moments), lens)["pixels"] == PIXELS


def test_what_is_not_in_front_of_the_camera_or_not_finite_has_no_pixel_and_is_counted():
    joints = np.array(
        [*OPENCV, [0.5, -0.2, -2.0], [np.nan, 0, 1], [3, 0, 1], [0, np.inf, 1], [0.1, 0, 0]]
    )
    made = shown(joints)
    assert made["pixels"] == [*PIXELS, None, None, [350, 40], None, None]
    assert made["other"] is None
    assert (
        "3 of 6 joints within 100 x 80 pixels; 2 not in front of the camera; 2 not finite;"
        in made["about"]
    )


def test_a_joint_far_off_is_drawn_nearer_in_the_same_direction():
    near, far, farther = shown(np.array([[3.0, -2, 1], [3, -2, 1e-6], [-4, 1e-3, 1e-300]]))[
        "pixels"
    ]
    assert near == [350, -360]
    # Of 3e8 to the right of the middle and 4e8 above it, 1e5 at most
    assert far == [75_050, -99_960]
    assert farther == [-99_950, 90]  # 4e302 to the left and 2e299 below


def test_joints_that_are_not_finite_do_not_hide_by_which_axes_the_others_are_seen():
    joints = np.concatenate([OPENCV * [1, -1, -1], np.full((4, 3), np.nan)])
    made = shown(joints)
    assert made["other"] == {
        "name": "as camera_opengl",
        "pixels": [*PIXELS, None, None, None, None],
    }
    assert (
        "0 of 3 joints within 100 x 80 pixels; 3 not in front of the camera; 4 not finite;"
        in made["about"]
    )


@pytest.mark.parametrize(
    ("signs", "name"),
    [
        ([1, -1, -1], "as camera_opengl"),
        ([-1, 1, -1], "as camera_opengl"),
        ([1, 1, -1], "as camera_opengl"),
    ],
)
def test_axes_by_which_they_would_be_seen_are_named_and_drawn_the_other_frame_first(signs, name):
    made = shown(OPENCV * signs)  # about the middle of the image any signs of x and y fit
    assert made["pixels"] == [None] * 3
    assert made["other"]["name"] == name
    assert "3 not in front of the camera" in made["about"]
    assert made["about"].endswith(f"; {name} 3 would be.")
    assert [made["other"]["pixels"][1]] == [PIXELS[1]]


def test_reversed_axes_are_named_where_no_frame_fits():
    aside = np.array([[[0.3, 0, 1]], [[0.4, 0, 1]]]).reshape(2, 3)
    lens = np.array([[100.0, 0, 5], [0, 200, 40], [0, 0, 1]])
    made = shown(aside * [-1, 1, 1], lens)
    assert made["other"] == {"name": "with x reversed", "pixels": [[35, 40], [45, 40]]}


def test_an_image_of_the_same_sides_lies_below_and_of_several_the_one_of_the_camera():
    photo, half, tall = (
        np.zeros(shape, np.uint8) for shape in ((80, 100, 3), (40, 50, 3), (100, 80, 3))
    )
    assert shown(OPENCV)["over"] == ""
    assert shown(OPENCV, photo=half)["over"] == "photo"
    assert shown(OPENCV, photo=tall)["over"] == ""
    assert shown(OPENCV, photo=photo, other=half)["over"] == "other"
    assert shown(OPENCV, photo=photo, other=tall)["over"] == "photo"
    assert shown(OPENCV, photo=photo[None])["over"] == ""
    assert [shown(OPENCV, photo=photo[:h, :w])["over"] for h, w in ((0, 0), (0, 100), (80, 0))] == [
        ""
    ] * 3


def test_joints_are_drawn_over_no_image_of_another_camera():
    photo = np.zeros((80, 100, 3), np.uint8)
    assert shown(OPENCV, aside=photo)["over"] == ""
    assert shown(OPENCV, other=photo)["over"] == "other"
    assert shown(OPENCV, aside=photo, other=photo)["over"] == "other"
    assert shown(OPENCV, aside=photo, photo=photo)["over"] == ""


def test_what_the_image_does_not_show_comes_first_and_else_behind_the_joints_in_space():
    def kinds(joints):
        made = previews(
            PreviewBuilder({"hand": joints, "k": LENS}, parse_schema(SCHEMA % "camera_opencv"))
        )
        return [one["kind"] for one in made]

    assert kinds(OPENCV) == ["skeleton", "projection", "note"]
    assert kinds(OPENCV * [1, -1, -1]) == ["projection", "skeleton", "note"]


def test_without_a_camera_a_frame_or_an_image_there_is_none():
    assert shown(OPENCV, frame="world") is None
    assert shown(OPENCV[:, :2]) is None
    made = previews(PreviewBuilder({"hand": OPENCV}, parse_schema(SCHEMA % "camera_opencv")))
    assert [one["kind"] for one in made] == ["skeleton"]
    made = previews(
        PreviewBuilder({"hand": OPENCV, "k": LENS * np.nan}, parse_schema(SCHEMA % "camera_opencv"))
    )
    assert "hand has no finite camera in k: no picture." in [one["about"] for one in made]


@pytest.mark.parametrize(
    ("lens", "why"),
    [
        ([-100.0, 200, 50, 40], "has a camera in k of focal lengths -100 and 200, not above 0"),
        ([100.0, -200, 50, 40], "has a camera in k of focal lengths 100 and -200, not above 0"),
        ([0.0, 0, 50, 40], "has a camera in k of focal lengths 0 and 0, not above 0"),
        ([np.inf, 200, 50, 40], "has no finite camera in k"),
        ([100.0, np.nan, 50, 40], "has no finite camera in k"),
    ],
)
def test_a_camera_that_is_none_draws_nothing_and_says_why(lens, why):
    made = previews(
        PreviewBuilder(
            {"hand": OPENCV, "k": np.array(lens)}, parse_schema(SCHEMA % "camera_opencv")
        )
    )
    assert [one["kind"] for one in made] == ["skeleton", "note", "note"]
    assert f"hand {why}: no picture." in [one["about"] for one in made]


NUMBERS = st.sampled_from(["f2", "f4", "f8", "i8", "u1", "?", "c16", "S3"]).flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    )
)


@given(
    joints=NUMBERS | hnp.arrays("f8", (4, 3)),
    lens=NUMBERS | hnp.arrays("f8", (3, 3)) | st.text(max_size=3),
    photo=NUMBERS | st.none() | st.lists(st.lists(st.integers(), max_size=2), max_size=2),
)
def test_whatever_is_in_the_fields_every_pixel_is_a_number_or_none(joints, lens, photo):
    made = previews(
        PreviewBuilder(
            {"hand": joints, "k": lens, "photo": photo}, parse_schema(SCHEMA % "camera_opengl")
        )
    )
    assert orjson.loads(orjson.dumps(made)) == made
    for one in made:
        places = (
            [*one["pixels"], *(one["other"] or {"pixels": []})["pixels"]]
            if one["kind"] == "projection"
            else []
        )
        assert all(place is None or np.isfinite(place).all() for place in places)
