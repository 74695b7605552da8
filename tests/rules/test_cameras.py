"""Cameras, poses, up and image rows: both sides of the limits, causes, what is not judged."""

import tracemalloc

import numpy as np
import pytest

from datacheck.model.sample import Column, Origin, Piece, stack
from datacheck.model.table import Measured, Table
from datacheck.rules.base import RuleContext
from datacheck.rules.families.cameras import posed
from datacheck.rules.families.images import bands, channels, picture_size, picture_sizes
from datacheck.rules.families.rotations import flatness
from datacheck.rules.placement import READINGS, projection
from datacheck.schema.load import parse_schema
from datacheck.schema.model import FieldSpec
from datacheck.sources.facts import Facts, SampleLocation
from tests.rules.harness import hand, picture, room, schema_of, standing, view
from tests.trials.memory import scan_pieces


def scanned(schema, *fields, groups=(), facts=()):
    groups, facts = groups or [""] * len(fields), facts or [{}] * len(fields)
    samples = [
        ("", Piece(f"s{i:03d}", one, Origin(""), group, known))
        for i, (one, group, known) in enumerate(zip(fields, groups, facts, strict=True))
    ]
    return scan_pieces(schema_of(schema), samples)


def findings(schema, *fields, **more):
    return scanned(schema, *fields, **more).findings


# ------------------------------------------------------------------------------------------ DC306

LENS = "fields: {k: {role: intrinsics, shape: [3, 3], unit: px, image_size: [640, 480]}}"


def lens(fx=600.0, cx=320.0, cy=240.0, fy=None):
    return np.array([[fx, 0, cx], [0, fy or fx, cy], [0, 0, 1]])


@pytest.mark.parametrize(
    ("k", "kind"),
    [
        (lens(cx=320 + 127), None),
        (lens(cx=320 + 129), "camera"),
        (lens(cy=240 - 97), "camera"),
        (lens(fx=186), None),  # 2 atan(320 / 186) = 119.7 degrees
        (lens(fx=184), "camera"),
        (lens(fx=1810), None),  # 20.05 degrees
        (lens(fx=1820), "camera"),
        (lens(300, 160, 120), "resolution"),
        (lens(0.9, 0.5, 0.5), "normalised"),
        (lens(1.0, 0.5, 0.5), "normalised"),
        (lens(fy=-600.0), "mirrored"),
        (lens(-600.0), "mirrored"),
        (lens(0.0, fy=600.0), "camera"),
        # No normalised camera: it has no focal length
        (np.array([[0, 0.1, 0], [0, 0, 0], [0, 0, 1]]), "camera"),
    ],
)
def test_a_camera_belongs_to_its_image(k, kind):
    found = findings(LENS, {"k": k})
    assert [(f.code, f.kind) for f in found] == ([("DC306", kind)] if kind else [])


def test_what_is_wrong_with_a_focal_length_is_measured_and_its_cause_told():
    (mirrored,) = findings(LENS, {"k": lens(-600.0, fy=600.0)})
    assert mirrored.measured == {"fx": -600, "fy": 600, "cx": 320, "cy": 240}
    assert mirrored.cause.text == "a negative focal length reverses an axis"
    assert "56.1 degrees of view" in mirrored.message  # 2 atan(320 / 600)
    assert "focal lengths positive" in mirrored.fix
    (normalised,) = findings(LENS, {"k": lens(1.0, 0.5, 0.5)})
    assert (normalised.measured["fx"], normalised.expected) == (1, {"image_size": [640, 480]})
    assert normalised.cause.text == "in units of the image: multiply the rows by 640 and 480"
    assert [
        f.code for f in findings(f"{LENS}\nrules: {{DC306: {{wide: 360}}}}", {"k": lens(-600.0)})
    ] == ["DC306"]


def test_what_a_camera_of_nan_cannot_project_is_not_judged():
    hands = LENS.replace(
        "fields: {",
        "fields: {j: {role: joints, shape: [21, 3], unit: m, frame: camera_opengl, "
        "intrinsics: k, image_size: [640, 480]}, ",
    )
    joints = hand(np.random.default_rng(0), 12)
    samples = [{"j": one, "k": lens()} for one in joints]
    assert findings(hands, *samples) == []
    for broken in (1, len(samples)):
        blind = [{"j": s["j"], "k": s["k"] * np.nan} for s in samples[:broken]] + samples[broken:]
        assert [f.code for f in findings(hands, *blind)] == ["DC221"]


MOVING = """
fields:
  j: {role: %s, shape: %s, unit: m, frame: camera_opencv, intrinsics: k, image_size: [640, 480]}
  k: {role: intrinsics, shape: %s, unit: px}
"""


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize(("role", "shape"), [("joints", "[T, 2, 3]"), ("position", "[T, 3]")])
def test_each_moment_is_projected_by_its_own_camera(role, shape, stacked):
    # At depth 1 and x = 0.9 the pixel is fx 0.9 + 320: 590 by the camera of 300, outside by that of
    # 600.
    schema = schema_of(MOVING % (role, shape, "[T, 3, 3]" if stacked else "[T, 4]"))
    focal = np.array([600.0, 300, 300, 600, 300])
    k = (
        np.stack([lens(f) for f in focal])
        if stacked
        else np.stack([[f, f, 320, 240] for f in focal])
    )
    place = np.tile([0.9, 0.0, 1.0], (5, 1))
    still = np.tile([0.1, 0.0, 1.0], (3, 1))
    pairs = [(place, k), (still, k[:3]), (place, k[:1]), (still, k[:3] * np.nan)]
    if role == "joints":
        pairs = [(np.stack([at, at], axis=1), camera) for at, camera in pairs]
    fields = [{"j": at, "k": camera} for at, camera in pairs]
    (block,) = stack([Piece(str(i), one, Origin("")) for i, one in enumerate(fields)])
    inside = projection.function(block, schema)["j:inside"]
    # A single camera is for all
    assert inside.values[:, READINGS.index((1, 1, 1))][:3] == pytest.approx([3 / 5, 1, 0])
    assert inside.present.tolist() == [True, True, True, False]


def test_a_portrait_camera_is_named_and_a_halved_one_with_its_factor():
    wide = LENS.replace("[640, 480]", "[1920, 1080]")
    assert [f.kind for f in findings(wide, {"k": lens(1400.0, 540.0, 960.0)})] == ["swapped"]
    (finding,) = findings(LENS, {"k": lens(300, 160, 120)})
    assert finding.cause.factor == pytest.approx(2)
    assert "x2" in finding.cause.text


def test_a_camera_without_an_image_size_is_not_judged():
    verdict = next(
        v
        for v in scanned(LENS.replace(", image_size: [640, 480]", ""), {"k": lens()}).verdicts
        if v.code == "DC306"
    )
    assert verdict.verdict == "skip"


# ------------------------------------------------------------------------------------- DC307, DC310

VIEWS = """
samples: {files: "*", group: "{scene}"}
fields:
  p: {role: points, shape: [P, 3], unit: m, frame: FRAME, extrinsics: t}
  t: {role: transform, shape: [4, 4], unit: m}
"""


def views(count, inverted=False, world=False, aside=None):
    found = []
    for n in range(count):
        p, pose = view(n, 900, aside=0.25 if n == aside else 0.0), view(n, 900, pose=True)
        if world:
            p = p @ pose[:3, :3].T + pose[:3, 3]
        found.append({"p": p, "t": np.linalg.inv(pose) if inverted else pose})
    return found


@pytest.mark.parametrize("world", [False, True])
@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("count", [3, 6])
def test_extrinsics_lead_from_the_camera_to_the_world(count, inverted, world):
    schema = VIEWS.replace("FRAME", "world" if world else "camera_opencv")
    found = findings(schema, *views(count, inverted, world), groups=["a"] * count)
    wanted = [("DC307", "inverse", count)] if inverted and count > 3 else []
    assert [(f.code, f.kind, f.failed) for f in found if f.code == "DC307"] == wanted
    assert [f.code for f in found if f.code == "DC310"] == []  # never as two views that do not fit


def test_a_moved_view_fits_none_of_its_neighbours():
    found = findings(VIEWS.replace("FRAME", "camera_opencv"), *views(6, aside=2), groups=["a"] * 6)
    assert [(f.code, f.rows.tolist()) for f in found] == [("DC310", [2])]
    assert found[0].measured["pairs"] == 2


def test_views_of_different_scenes_are_not_compared():
    samples = views(6, aside=2)
    assert findings(VIEWS.replace("FRAME", "camera_opencv"), *samples, groups=list("abcdef")) == []


def test_a_view_without_points_or_far_from_the_other_is_not_compared():
    samples = views(5)
    samples[1]["p"] = samples[1]["p"][:0]
    samples[3]["p"] = samples[3]["p"] + [0, 0, 40.0]
    codes = {
        f.code
        for f in findings(VIEWS.replace("FRAME", "camera_opencv"), *samples, groups=["a"] * 5)
    }
    assert "DC310" not in codes


# ------------------------------------------------------------------------------------------ DC313

THING = """
fields:
  p: {role: points, shape: [P, 3], unit: m, centered: box, posed_by: o, rests: -0.005..0.05}
  o: {role: pose, shape: [7], columns: "pos:3 quat:4"}
"""


@pytest.mark.parametrize(
    ("above", "wanted"),
    [(0.0, []), (0.049, []), (0.051, ["floats"]), (-0.004, []), (-0.006, ["sinks"])],
)
def test_a_thing_rests_on_the_floor(above, wanted):
    cube = (
        np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * 0.1 / np.sqrt(3)
    )
    found = findings(THING, {"p": cube, "o": standing(np.random.default_rng(0), 0.2, above)})
    assert [f.kind for f in found if f.code == "DC313"] == wanted


def test_points_are_scaled_and_turned_before_they_are_lifted():
    """A rod along x, ten times enlarged, turned about y so that it stands."""
    schema = THING.replace("unit: m, centered: box", "scale: 0.1").replace(
        "rests:", "up: UP, rests:"
    )
    rod = np.array([[0.0, 0, 0], [3.0, 0, 0]])
    half = np.pi / 4
    pose = np.array([0, 0, 0.5, np.cos(half), 0, -np.sin(half), 0])  # x becomes z
    (block,) = stack([Piece("a", {"p": rod, "o": pose}, Origin(""))])
    assert posed.function(block, schema_of(schema.replace("UP", "z")))[
        "p:lowest"
    ].values == pytest.approx([0.5])
    assert posed.function(block, schema_of(schema.replace("UP", "-z")))[
        "p:lowest"
    ].values == pytest.approx([-0.8])
    assert posed.function(block, schema_of(schema.replace("UP", "x")))[
        "p:lowest"
    ].values == pytest.approx([0.0])


# ------------------------------------------------------------------------------------------ DC308

UP = "fields: {p: {role: points, shape: [P, 3], unit: m, up: AXIS}}"


@pytest.mark.parametrize(("axis", "wanted"), [("z", []), ("-z", []), ("y", ["z"]), ("x", ["z"])])
def test_rooms_are_flattest_from_floor_to_ceiling(axis, wanted):
    rooms = [{"p": room(np.random.default_rng(n), 500)} for n in range(6)]
    found = findings(UP.replace("AXIS", axis), *rooms)
    assert [(f.code, f.severity, f.kind) for f in found] == [
        ("DC308", "info", kind) for kind in wanted
    ]


def test_what_is_as_high_as_wide_is_not_judged():
    cubes = [{"p": np.random.default_rng(n).uniform(1, 2, (500, 3))} for n in range(6)]
    assert findings(UP.replace("AXIS", "y"), *cubes) == []


def test_flatness_of_planes_points_and_nothing():
    plane = np.random.default_rng(0).uniform(0, 1, (9000, 3)) * [1, 0, 1] + [0, 5, 0]
    found = flatness.function(
        Column.of([plane, plane[:1], plane[:0], np.full((9, 3), np.nan)]),
        FieldSpec(role="points", up="z"),
    )
    assert found["flatness"].present.tolist() == [True, False, False, False]
    assert np.abs(found["flat_axis"].values[0]).tolist() == pytest.approx([0, 1, 0])
    assert found["flatness"].values[0] > 1000


# ------------------------------------------------------------------------------------- DC309, DC314

IMAGE = "fields: {i: {role: image, shape: [H, W, 3], dtype: uint8, origin: bottom_left}}"


@pytest.mark.parametrize(
    ("said", "wanted"), [("opengl", 0), ("OpenCV ", 1), ("something else", 0), (None, 0)]
)
def test_what_the_file_says_of_its_images_is_held_against_the_schema(said, wanted):
    facts = [{} if said is None else {"image_convention": said}] * 3
    images = [{"i": picture(np.random.default_rng(n), 40)} for n in range(3)]
    found = findings(IMAGE, *images, facts=facts)
    assert [(f.code, f.failed) for f in found] == [("DC309", 3)] * wanted


def test_of_a_long_name_of_how_images_lie_a_beginning_is_kept():
    about = SampleLocation("a", "a.hdf5", "", {}, 0)
    schema = parse_schema("datacheck: 1\nname: t\nsamples: {files: '*.hdf5'}\n" + IMAGE)
    found = Facts(schema, []).of(about, {}, {"macros_image_convention": "q" * 100_000})
    assert len(found["image_convention"]) < 5_000


def test_bands_are_means_of_rows_of_some_frames():
    film = np.zeros((20, 64, 5, 3), np.uint8)
    film[:, 32:] = 200
    still = np.arange(64, dtype=np.uint8)[:, None, None] * np.ones((1, 4, 3), np.uint8)
    (found,) = [bands.function(Column.of([film, film[:0]]), FieldSpec(role="image"))["bands"]]
    assert (found.present.tolist(), found.values[0].tolist()) == (
        [True, False],
        [0.0] * 16 + [200.0] * 16,
    )
    found = bands.function(Column.of([still, still[:20]]), FieldSpec(role="image"))["bands"]
    assert (found.present.tolist(), found.values[0][:3].tolist()) == (
        [True, False],
        [0.5, 2.5, 4.5],
    )


def test_a_grey_film_has_rows_of_pictures_and_no_rows_of_time():
    pictures = np.random.default_rng(0).uniform(0, 255, (40, 32, 5))
    film = bands.function(Column.of([pictures]), FieldSpec(role="image", shape=("T", 32, 5)))[
        "bands"
    ]
    np.testing.assert_allclose(film.values[0], pictures[::5].mean(axis=(0, 2)))
    image = bands.function(Column.of([pictures]), FieldSpec(role="image", shape=("H", "W", 5)))[
        "bands"
    ]
    edges = np.linspace(0, 40, 33).astype(int)
    wanted = [part.mean() for part in np.split(pictures, edges[1:-1])]
    np.testing.assert_allclose(image.values[0], wanted)


def test_groups_that_look_the_same_upside_down_and_small_ones_are_not_judged():
    schema = IMAGE.replace(", origin: bottom_left", "")
    plain = [{"i": picture(np.random.default_rng(n), 40, turned=n == 2)} for n in range(4)]
    assert findings(schema, *plain) == []
    mirrored = [{"i": np.concatenate([one["i"], one["i"][::-1]])} for one in plain * 2]
    for n, one in enumerate(mirrored):
        one["i"] = one["i"] + np.uint8(n)
    assert [f.code for f in findings(schema, *mirrored) if f.code == "DC314"] == []


# ------------------------------------------------------------------------------------------ DC315

PHOTO = IMAGE.replace(", origin: bottom_left", "")
BOXED = PHOTO.rstrip("}") + "}, b: {shape: [4], optional: true}}"


def of_sizes(*sizes, folders=(), beside=PHOTO):
    """Return the findings of DC315 about pictures of these (height, width)."""
    rng = np.random.default_rng(5)
    pieces = [
        Piece(
            f"s{i:03d}",
            {"i": rng.integers(0, 256, (*size, 3)).astype(np.uint8)},
            Origin(f"{folders[i] if folders else 'a'}/{i}.png"),
            "",
            {},
        )
        for i, size in enumerate(sizes)
    ]
    found = scan_pieces(schema_of(beside), [("", piece) for piece in pieces]).findings
    return [f for f in found if f.code == "DC315"]


@pytest.mark.parametrize(
    ("size", "severity", "cause"),
    [
        ((32, 24), "warning", "probably turned by 90 degrees"),
        ((12, 16), "warning", "probably scaled by 0.5"),
        ((6, 8), "warning", "probably scaled by 0.25"),
        ((72, 96), "warning", "probably scaled by 3"),
        ((24, 31), "info", None),
        ((18, 24), "info", None),  # 0.75 of it: nobody knows why
    ],
)
def test_pictures_of_another_size_than_nearly_all_are_named(size, severity, cause):
    (found,) = of_sizes(*[(24, 32)] * 19, size, size, beside=BOXED)
    assert (found.severity, found.rows.tolist()) == (severity, [19, 20])
    assert (found.cause.text if found.cause else None) == cause
    assert f"{size[1]} x {size[0]} beside 32 x 24 (2)" in found.message


def test_of_pictures_alone_those_taken_upright_are_information():
    """Photographs of cats and dogs by a telephone: nothing else is in their pixels."""
    sizes = [*[(24, 32)] * 19, (32, 24)]
    (found,) = of_sizes(*sizes)
    assert (found.severity, found.rows.tolist()) == ("info", [19])
    (found,) = of_sizes(*[(24, 32)] * 19, (12, 16))
    assert found.severity == "warning"


def test_half_of_an_odd_number_is_rounded_either_way():
    (found,) = of_sizes(*[(47, 33)] * 38, (23, 16), (24, 17), (24, 16))
    assert (found.cause.text, found.rows.tolist()) == ("probably scaled by 0.5", [38, 39, 40])


@pytest.mark.parametrize(
    "sizes",
    [
        [(24, 32)] * 18 + [(32, 24)],  # too few
        [(24, 32)] * 18 + [(32, 24)] * 3,  # too many: photographs taken upright
        [(24, 32)] * 60
        + [(32, 24)]
        + [(24, 30 - i) for i in range(5)],  # photographs of many sizes
        [(24, 32)] * 14 + [(20, 30)] * 6 + [(22, 31)],  # two usual sizes: a third one says nothing
    ],
)
def test_pictures_of_many_sizes_are_not_judged(sizes):
    assert of_sizes(*sizes) == []


def test_of_two_usual_sizes_both_are_compared():
    (found,) = of_sizes(*[(24, 32)] * 14, *[(20, 30)] * 6, (10, 15))
    assert (found.cause.text, found.rows.tolist()) == ("probably scaled by 0.5", [20])


def test_folders_are_judged_each_by_itself_and_small_ones_only_with_those_named_alike():
    thumbnails = [(24, 32)] * 40 + [(12, 16)] * 3
    assert of_sizes(*thumbnails, folders=["full"] * 40 + ["small"] * 3) == []
    (found,) = of_sizes(*thumbnails, folders=[f"episode_{i}/top" for i in range(43)])
    assert found.rows.tolist() == [40, 41, 42]


def test_a_size_for_each_of_many_folders_takes_little_memory():
    """Of 1,500 folders of twenty pictures each has a size of its own, and one picture of half of it."""
    size, count = np.repeat(2 * np.arange(10, 1510), 20), 30_000
    sizes = np.stack([size, 2 * size], axis=1)
    sizes[::20] //= 2
    keys = [f"{i // 20:05d}/{i % 20:02d}.png" for i in range(count)]
    columns = {":i:size": Measured(sizes, np.ones(count, bool))}
    table = Table(
        keys,
        keys,
        [""] * count,
        [""] * count,
        [""] * count,
        np.zeros(count, np.int8),
        [""] * count,
        np.zeros(count, np.int64),
        columns,
    )
    schema = schema_of(PHOTO)
    case = RuleContext(schema, "", FieldSpec(), picture_size.defaults)
    rows = table.rows(np.arange(count))
    tracemalloc.start()
    (found,) = picture_size.judge(rows, case)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.flatnonzero(found.mask).tolist() == list(range(0, count, 20))
    assert most < 25e6


def test_channels_may_come_first_and_a_film_has_the_size_of_its_pictures():
    shapes = {
        (5, 7): (5, 7),
        (3, 5, 7): (5, 7),
        (5, 7, 4): (5, 7),
        (9, 5, 7, 3): (5, 7),
        (9, 3, 5, 7): (5, 7),
    }
    schema = schema_of("fields: {i: {role: image}}")
    for shape, size in shapes.items():
        (block,) = stack([Piece("a", {"i": np.zeros(shape, np.uint8)}, Origin("a"), "", {})], "")
        assert picture_sizes.function(block, schema)["i:size"].tolist() == [list(size)]


# ------------------------------------------------------------------------------------------ DC317


def coloured(number, colour, noise=8.0, shape=(20, 30)):
    image = np.array(colour) + np.random.default_rng(number).normal(0, noise, (*shape, 3))
    return np.clip(image, 0, 255).astype(np.uint8)


def exchanged(*colours, noise=8.0):
    found = findings(
        PHOTO, *({"i": coloured(n, colour, noise)} for n, colour in enumerate(colours))
    )
    return [(f.cause.kind, f.rows.tolist()) for f in found if f.code == "DC317"]


WARM, COLD = (150, 120, 90), (90, 120, 150)


def test_images_with_red_and_blue_exchanged_are_named():
    assert exchanged(*[WARM] * 18, COLD, COLD) == [("exchanged", [18, 19])]
    assert exchanged(*[WARM] * 16, *[COLD] * 4) == [("exchanged", [16, 17, 18, 19])]


@pytest.mark.parametrize(
    "colours",
    [
        [WARM] * 17 + [COLD] * 2,  # few images
        [WARM] * 16 + [COLD] * 5,  # too many to say which are right
        [WARM] * 19 + [(90, 110, 150)],  # the second channel differs, too
        [WARM] * 19 + [(90, 120, 140)],  # another colour
        [(122, 120, 119)] * 19 + [(119, 120, 122)],  # a grey scene
        [WARM] * 18 + [(200, 100, 20), COLD],  # scenes differ
    ],
)
def test_images_whose_colours_say_nothing(colours):
    assert exchanged(*colours) == []


def test_the_usual_colours_are_those_of_the_same_group():
    pieces = [
        ("", Piece(f"s{n:03d}", {"i": coloured(n, colour)}, Origin("f"), group, {}))
        for n, (group, colour) in enumerate(
            [("a", WARM)] * 19 + [("a", COLD)] + [("b", (10, 200, 10))] * 30
        )
    ]
    (found,) = [f for f in scan_pieces(schema_of(PHOTO), pieces).findings if f.code == "DC317"]
    assert found.rows.tolist() == [19]
    assert found.expected["means"] == pytest.approx(WARM, abs=2)


def test_photographs_of_many_scenes_have_colours_of_their_own():
    rng = np.random.default_rng(0)
    scenes = [rng.uniform(20, 230, 3) for _ in range(40)]
    assert exchanged(*scenes, *(scene[::-1] for scene in scenes[:4])) == []


def test_channels_are_means_over_frames_and_pixels():
    film = (
        np.arange(16, dtype=np.uint8)[:, None, None, None]
        + np.array([0, 50, 100], np.uint8)
        + np.zeros((16, 4, 5, 3), np.uint8)
    )
    found = channels.function(Column.of([film, film[:0]]), FieldSpec(role="image"))["channels"]
    assert found.present.tolist() == [True, False]
    assert found.values[0].tolist() == [7, 57, 107]  # of frames 0, 2, ... 14
    assert channels.function(Column.of([film[0, :, :, :1]]), FieldSpec(role="image")) == {}
    assert channels.function(Column.of([film[0] / 255]), FieldSpec(role="image")) == {}


# ------------------------------------------------------------------------------------------ DC318

POSES = "fields: {t: {role: transform, shape: [4, 4]}}"
OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])  # y up, and along -z


def odd_poses(poses):
    return [
        (f.cause.kind, f.rows.tolist())
        for f in findings(POSES, *({"t": pose} for pose in poses))
        if f.code == "DC318"
    ]


@pytest.mark.parametrize("all_axes", [np.eye(4), OPENGL])
@pytest.mark.parametrize("count", [2, 5])
def test_few_cameras_in_other_axes_or_inverted_are_named(count, all_axes):
    poses = [view(i, 1, pose=True) @ all_axes for i in range(30)]
    odd = range(4, 4 + count)
    turned = [pose @ OPENGL if i in odd else pose for i, pose in enumerate(poses)]
    assert odd_poses(turned) == [("opposite", list(odd))]
    inverted = [np.linalg.inv(pose) if i in odd else pose for i, pose in enumerate(poses)]
    assert odd_poses(inverted) == ([("inverse", list(odd))] if count >= 5 else [])


def test_cameras_that_all_look_at_one_place_are_fine():
    poses = [view(i, 1, pose=True) for i in range(30)]
    assert odd_poses(poses) == []
    assert odd_poses([pose @ OPENGL for pose in poses]) == []
    assert odd_poses([np.linalg.inv(pose) for pose in poses]) == []


def test_cameras_that_were_turned_round_are_not_in_other_axes():
    """They look outward, and are not upside down."""
    turn = np.diag([-1.0, 1.0, -1.0, 1.0])
    poses = [view(i, 1, pose=True) for i in range(30)]
    assert odd_poses([pose @ turn if i < 4 else pose for i, pose in enumerate(poses)]) == []


def test_cameras_without_a_common_place_are_not_judged():
    """A walk through rooms, a row of cameras in one direction, and as many in each convention."""
    rng = np.random.default_rng(0)
    walk = [np.eye(4) for _ in range(30)]
    for i, pose in enumerate(walk):
        pose[:3, :3] = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        pose[:3, :3] *= np.sign(np.linalg.det(pose[:3, :3]))
        pose[:3, 3] = [i, 0, 0]
    assert odd_poses(walk) == []
    row = [np.eye(4) for _ in range(30)]
    for i, pose in enumerate(row):
        pose[0, 3] = i
    assert odd_poses([pose @ OPENGL if i < 3 else pose for i, pose in enumerate(row)]) == []
    poses = [view(i, 1, pose=True) for i in range(30)]
    assert odd_poses([pose @ OPENGL if i % 2 else pose for i, pose in enumerate(poses)]) == []


def test_few_cameras_of_a_scene_are_not_judged():
    poses = [view(i, 1, pose=True) for i in range(19)]
    assert odd_poses([pose @ OPENGL if i < 3 else pose for i, pose in enumerate(poses)]) == []
