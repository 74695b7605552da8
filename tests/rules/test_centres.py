"""Which centre lies at the origin, what is left of a stored one, and how the camera's axes are read."""

import numpy as np
import pytest

from datacheck.model.sample import Column, Origin, Piece, stack
from datacheck.rules.placement import FRAMES, READINGS, cameras, projection
from tests.rules.harness import hand, judged, measured, schema_of


def scanned(schema, *fields):
    schema = schema_of(schema)
    samples = [("", Piece(f"s{i:03d}", one, Origin(""))) for i, one in enumerate(fields)]
    return judged(schema, measured(schema, samples))


def findings(schema, *fields):
    return scanned(schema, *fields).findings


def verdict(found, code):
    return next(v for v in found.verdicts if v.code == code)


def joints(number, root=(0.4, 0.2, -0.7)):
    return hand(np.random.default_rng(number), root=root)[0]


# ------------------------------------------------------------------------------------------ DC301

JOINTS = "fields: {j: {role: joints, shape: [21, 3], unit: m, centered: WHICH}}"


def centred(j, how):
    centre = {
        "root": j[0],
        "centroid": j.mean(axis=0),
        "box": (j.min(axis=0) + j.max(axis=0)) / 2,
        "xy": j.mean(axis=0) * [1, 1, 0],
        "z": j.mean(axis=0) * [0, 0, 1],
        "none": np.zeros(3),
    }
    return j - centre[how]


@pytest.mark.parametrize("how", ["root", "centroid", "box", "xy", "z", "none"])
def test_the_centre_at_the_origin_is_named_whichever_it_is(how):
    found = findings(
        JOINTS.replace("WHICH", "box" if how == "root" else "root"),
        *({"j": centred(joints(n), how)} for n in range(5)),
    )
    (finding,) = found
    assert (finding.code, finding.kind, finding.failed) == ("DC301", how, 5)
    assert finding.measured["at_origin"][how if how != "none" else "root"] == (
        0 if how == "none" else 5
    )


def test_the_centre_is_told_also_where_it_is_the_declared_one():
    found = scanned(
        JOINTS.replace("WHICH", "root"), *({"j": centred(joints(n), "root")} for n in range(5))
    )
    said = verdict(found, "DC301")
    assert (found.findings, said.verdict, said.why) == ([], "pass", "j centred on: root (5 of 5)")
    found = scanned(JOINTS.replace("WHICH", "no"), *({"j": joints(n)} for n in range(5)))
    assert verdict(found, "DC301").why == "j centred on: none (5 of 5)"


def test_a_flat_cloud_is_not_centred_in_z_by_anyone():
    flat = np.random.default_rng(0).uniform(1, 2, (50, 3)) * [1, 1, 0]
    found = findings("fields: {p: {role: points, shape: [P, 3], centered: centroid}}", {"p": flat})
    assert [(f.code, f.kind) for f in found if f.code == "DC301"] == [("DC301", "none")]


STORED = """
fields:
  p: {role: points, shape: [P, 3], unit: m, centered_on: c}
  c: {role: position, shape: [3], unit: m}
"""


def clouds(count, times, seed=0, offset=(0.0, 0.0, 0.0), same=False):
    """Clouds from which the stored centre was subtracted so many times."""
    rng = np.random.default_rng(seed)
    found = []
    for n in range(count):
        c = np.array([0.5, -0.8, 0.3]) if same else rng.normal(0, 0.6, 3)
        p = rng.uniform(-0.1, 0.1, (200, 3)) + np.array(offset)
        found.append({"p": p + (1 - times(n)) * c, "c": c})
    return found


@pytest.mark.parametrize("offset", [(0.0, 0.0, 0.0), (0.0, 0.0, 0.15)])
@pytest.mark.parametrize(
    ("times", "kind", "slope"), [(1, None, 0), (2, "double", -1), (0, "never", 1)]
)
def test_a_stored_centre_is_subtracted_once(times, kind, slope, offset):
    found = findings(STORED, *clouds(30, lambda n: times, offset=offset))
    assert [(f.code, f.kind, f.failed) for f in found] == ([("DC301", kind, 30)] if kind else [])
    for finding in found:
        assert finding.measured["slope"] == pytest.approx(slope, abs=0.02)
        assert finding.measured["correlation"] == pytest.approx(slope, abs=0.02)


def test_each_sample_is_told_apart_and_the_sound_ones_are_told():
    times = {3: 2, 7: 0}
    found = scanned(STORED, *clouds(30, lambda n: times.get(n, 1), seed=4))
    assert {f.kind: f.rows.tolist() for f in found.findings} == {"double": [3], "never": [7]}
    assert "28 of 30 samples hold nothing of c" in verdict(found, "DC301").why


@pytest.mark.parametrize("count", [1, 4, 30])
def test_one_centre_for_all_is_told_by_its_size(count):
    assert [
        f for f in findings(STORED, *clouds(count, lambda n: 1, same=True)) if f.code == "DC301"
    ] == []
    found = findings(STORED, *clouds(count, lambda n: 2, same=True))
    assert [(f.kind, f.failed, f.measured) for f in found if f.code == "DC301"] == [
        ("double", count, {})
    ]


def test_a_stored_centre_near_the_origin_tells_nothing():
    samples = clouds(20, lambda n: 2)
    for one in samples:
        one["p"] = one["p"] + one["c"] * 0.999
        one["c"] = one["c"] * 0.001
    assert [f for f in findings(STORED, *samples) if f.code == "DC301"] == []


# ------------------------------------------------------------------------------------------ DC302

UNSAID = "fields: {j: {role: joints, shape: [21, 3], unit: m}}"


@pytest.mark.parametrize(
    ("root", "none", "wanted"),
    [
        (0, 30, []),
        (1, 29, []),
        (2, 28, [2]),
        (28, 2, [2]),
        (2, 17, []),
        (2, 210, []),
        (3, 210, [3]),
    ],
)
def test_samples_are_centred_in_one_way(root, none, wanted):
    samples = [
        {"j": centred(joints(n), "root" if n < root else "none")} for n in range(root + none)
    ]
    found = findings(UNSAID, *samples)
    assert [f.failed for f in found if f.code == "DC302"] == wanted
    assert [f.severity for f in found if f.code == "DC302"] == ["warning"] * len(wanted)


def test_things_that_are_symmetric_about_their_origin_were_not_centred_by_anyone():
    rng = np.random.default_rng(0)
    plain = [{"j": rng.uniform(1, 2, (21, 3))} for _ in range(25)]
    half = [rng.uniform(-1, 1, (20, 3)) for _ in range(6)]
    symmetric = [{"j": np.concatenate([h, -h, np.zeros((1, 3))])} for h in half]
    schema = "fields: {j: {role: points, shape: [P, 3], unit: m}}"
    assert [f.code for f in findings(schema, *plain, *symmetric) if f.code == "DC302"] == []


def test_two_centres_are_two_ways():
    samples = [{"j": centred(joints(n), "root" if n % 2 else "centroid")} for n in range(24)]
    (finding,) = findings(UNSAID, *samples)
    assert (finding.code, finding.measured["centres"]) == (
        "DC302",
        {"none": 0, "root": 12, "centroid": 12, "box": 0},
    )


# ------------------------------------------------------------------------------------- DC303, DC606

VIEW = """
fields:
  j: {role: joints, shape: [21, 3], unit: m, frame: FRAME, intrinsics: k, image_size: [640, 480]}
  k: {role: intrinsics, shape: [3, 3]}
"""
K = np.array([[600.0, 0, 320], [0, 600, 240], [0, 0, 1]])


def aside(n):
    """A hand in the upper left corner of an OpenCV camera's image."""
    return hand(np.random.default_rng(n), root=(0.0, 0.0, 0.0))[0] - [0.3, 0.12, 0] + [0, 0, 0.8]


def test_the_readings_are_all_signs_and_the_two_conventions_first():
    assert len(set(READINGS)) == 8
    assert READINGS[:2] == tuple(FRAMES.values())


@pytest.mark.parametrize(
    ("flip", "kind"),
    [((1, -1, -1), "camera_opengl"), ((1, 1, -1), "reversed-z"), ((-1, 1, -1), "reversed-xz")],
)
def test_the_signs_that_bring_hands_into_the_image_are_named(flip, kind):
    hands = [aside(n) for n in range(6)]
    (block,) = stack([Piece(str(n), {"j": h, "k": K}, Origin("")) for n, h in enumerate(hands)])
    assert (
        projection.function(block, schema_of(VIEW.replace("FRAME", "camera_opencv")))["j:inside"]
        .values[:, 0]
        .min()
        > 0.9
    )
    (finding,) = findings(
        VIEW.replace("FRAME", "camera_opencv"), *({"j": h * flip, "k": K} for h in hands)
    )
    assert (finding.code, finding.severity) == ("DC303", "error")
    tied = any(f"diag({', '.join(map(str, flip))})" in way for way in finding.cause.alternatives)
    assert finding.kind == kind or (finding.kind == "" and tied)


def test_what_the_image_cannot_tell_is_printed_as_a_tie():
    middle = [hand(np.random.default_rng(n), root=(-0.08, 0.0, 0.8))[0] for n in range(5)]
    (finding,) = findings(
        VIEW.replace("FRAME", "camera_opencv"), *({"j": h * [1, 1, -1], "k": K} for h in middle)
    )
    assert finding.kind == ""
    assert finding.cause.alternatives == (
        "probably camera_opengl: diag(1, -1, -1)",
        "z reversed: diag(1, 1, -1)",
        "x and z reversed: diag(-1, 1, -1)",
        "x and y and z reversed: diag(-1, -1, -1)",
        "the root was subtracted twice",
        "the centroid was subtracted twice",
    )


def test_a_mirrored_axis_is_found_where_the_camera_is_off_centre():
    k = np.array([[900.0, 0, 440], [0, 900, 240], [0, 0, 1]])
    hands = [hand(np.random.default_rng(n), root=(-0.36, 0.0, 0.8))[0] for n in range(5)]
    assert (
        findings(VIEW.replace("FRAME", "camera_opencv"), *({"j": h, "k": k} for h in hands)) == []
    )
    (finding,) = findings(
        VIEW.replace("FRAME", "camera_opencv"), *({"j": h * [-1, 1, 1], "k": k} for h in hands)
    )
    assert (finding.code, finding.kind) == ("DC303", "")  # the image is symmetric in y
    assert finding.cause.alternatives == (
        "x reversed: diag(-1, 1, 1)",
        "x and y reversed: diag(-1, -1, 1)",
    )
    assert "diag(-1, 1, 1)" in finding.message


def test_a_hand_out_of_view_is_a_warning_unless_it_is_the_camera():
    hands = [aside(n) for n in range(9)]
    gone = hands[0] + [5.0, 0, 0]
    samples = [{"j": h, "k": K} for h in (*hands, gone)]
    (finding,) = findings(VIEW.replace("FRAME", "camera_opencv"), *samples)
    assert (finding.code, finding.severity, finding.rows.tolist()) == ("DC606", "warning", [9])
    found = scanned(
        VIEW.replace("FRAME", "camera_opencv"),
        *({"j": h + np.array([5.0, 0, 0]), "k": K} for h in hands),
    )
    assert [f.code for f in found.findings] == ["DC303"]
    assert verdict(found, "DC606").verdict == "skip"


@pytest.mark.parametrize(
    "value",
    [
        K,
        np.hstack([K, np.zeros((3, 1))]),
        np.diag([600.0, 600, 1, 1]) + np.eye(4, k=2) * 0,
        K[None],
        None,
    ],
)
def test_cameras_are_read_from_matrices_and_vectors(value):
    value = np.array([600.0, 600, 320, 240]) if value is None else value
    read, known = cameras(Column.of([value, value]))
    assert known.all()
    centre = [0, 0] if value.shape == (4, 4) else [320, 240]
    assert read.tolist() == [[600, 600, *centre]] * 2


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_of_vectors_one_a_row_the_first_is_read_also_where_they_have_the_shape_of_a_matrix(count):
    vectors = np.arange(1.0, 4 * count + 1).reshape(count, 4) * 100
    matrix = np.pad(K, ((0, 1), (0, 1)))
    read, known = cameras(Column.of([vectors, matrix, vectors * np.nan]))
    assert (read[:2].tolist(), known.tolist()) == (
        [[100, 200, 300, 400], [600, 600, 320, 240]],
        [True, True, False],
    )
    read, known = cameras(Column.of([vectors.astype(np.uint16)]))
    assert (read.tolist(), known.tolist()) == ([[100, 200, 300, 400]], [True])


def test_what_is_no_camera_is_known_as_none():
    for value in (
        np.zeros(3),
        np.zeros((2, 3)),
        np.zeros((0, 3, 3)),
        np.zeros((0, 4)),
        np.zeros((5, 5)),
    ):
        assert not cameras(Column.of([value]))[1].any()
