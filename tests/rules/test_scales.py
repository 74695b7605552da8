"""Scales, colours, grippers, layout and statistics: both sides of each threshold, and what must stay silent."""

import numpy as np
import pytest
from PIL import Image

from datacheck.formats.base import open_container
from datacheck.model.sample import Origin, Piece
from datacheck.scan import scan
from datacheck.schema.load import parse_schema
from datacheck.testing import synth
from tests.rules.harness import codes, judged, measured, schema_of


def found(schema, arrays, field="x"):
    """The findings about samples of one field (or of mappings of fields), as (code, severity, kind, rows)."""
    values = [a if isinstance(a, dict) else {field: a} for a in arrays]
    pieces = [
        ("", Piece(f"s{i:03d}", v, Origin(""), "", {"id": f"s{i:03d}"}))
        for i, v in enumerate(values)
    ]
    schema = schema_of(schema)
    return judged(schema, measured(schema, pieces)).findings


def said(schema, arrays, field="x"):
    return [
        (f.code, f.severity.value, f.kind, f.rows.tolist()) for f in found(schema, arrays, field)
    ]


# ------------------------------------------------------------------------------------------ depth

DEPTH = "fields: {x: {role: depth, shape: [H, W], unit: m, scale: 0.001, ignore: [0, 65535]}}"


def maps(*depths, dtype=np.float32):
    rng = np.random.default_rng(0)
    return [(d * rng.uniform(0.99, 1.01, (8, 9))).astype(dtype) for d in depths]


@pytest.mark.parametrize(("depth", "bad"), [(102, 0), (97, 1), (19_500, 0), (20_500, 1)])
def test_depth_lies_between_a_tenth_of_a_metre_and_twenty(depth, bad):
    assert len(found(DEPTH, maps(1500, 1600, depth))) == bad


def test_depth_marks_and_empty_maps_say_nothing():
    marked = maps(1500)[0]
    marked[:, :8] = 65535
    assert said(DEPTH, [marked, np.full((8, 9), 65535, np.float32)]) == []
    # Nothing is promised
    assert codes_of("fields: {x: {role: depth, shape: [H, W]}}", maps(1e6, 2e6)) == []


def codes_of(schema, arrays):
    return sorted({f.code for f in found(schema, arrays)})


def test_the_scale_is_named_and_those_that_fit_too():
    (finding,) = found(DEPTH, maps(1.5, 1.4, 1.6))
    assert (finding.code, finding.cause.kind, finding.cause.factor) == ("DC204", "", None)
    assert finding.cause.alternatives == ("x1000 (1/1)",)  # x100 gives 15 cm: in range, and no room
    # BOP's depth_scale of 0.1, upside down
    (finding,) = found(DEPTH, [*maps(*[1500] * 9), *maps(150_000)])
    assert finding.cause.factor == pytest.approx(0.01, rel=0.01)
    assert finding.rows.tolist() == [9]


HAND = """
fields:
  root: {role: %s, unit: m}
  x: {role: depth, shape: [8, 9, 3], unit: m, channels: [1, 256], scale: 0.001, near: root, distance: ..0.25,
      share: 0.1..0.9}
"""


def coded(*steps, seen=72 // 2):
    """Depth maps whose first `seen` pixels are so many steps deep, as low byte, high byte and a byte of nothing."""
    made = [np.where(np.arange(72) < seen, step, 0).reshape(8, 9) for step in steps]
    return [
        np.stack([m % 256, m // 256, np.full_like(m, 77)], axis=-1).astype(np.uint8) for m in made
    ]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize(
    ("step", "bad"), [(640, 0), (840, 0), (860, 1), (360, 0), (340, 1), (255, 1), (256, 1)]
)
def test_depth_is_put_together_of_its_channels_and_held_against_the_hand(step, bad, dtype):
    for z in (-0.6, 0.6):  # a hand in front of an OpenGL camera, or of an OpenCV one
        samples = [
            {"root": np.array([3.0, 4.0, z]), "x": image.astype(dtype)}
            for image in coded(600, 610, step)
        ]
        findings = said(HAND % "position", samples)
        assert findings == [("DC204", "warning", "apart", [2])] * bad


def test_depth_is_compared_with_the_root_of_joints_the_middle_of_points_and_in_their_unit():
    rows = np.array([[0, 0, 600.0], [0, 0, 1600.0], [0, 0, 2000.0]])
    for role, steps in (("joints, shape: [J, 3]", 600), ("points, shape: [P, 3]", 1400)):
        schema = (HAND % role).replace("3], unit: m}", "3], unit: mm}", 1)
        assert said(schema, [{"root": rows, "x": coded(steps)[0]}]) == []
        assert said(schema, [{"root": rows, "x": coded(steps + 300)[0]}]) == [
            ("DC204", "warning", "apart", [0])
        ]


@pytest.mark.parametrize(("seen", "bad"), [(7, 1), (8, 0), (64, 0), (65, 1), (0, 1), (72, 1)])
def test_the_share_of_pixels_with_a_depth_has_two_ends(seen, bad):
    samples = [
        {"root": np.array([0, 0, -0.6]), "x": image}
        for image in [*coded(600), *coded(601, seen=seen)]
    ]
    assert said(HAND % "position", samples) == [("DC204", "warning", "share", [1])] * bad


def test_depth_without_a_hand_or_with_a_root_at_the_origin_is_not_compared():
    image = coded(600)[0]
    schema = (HAND % "position").replace("unit: m}", "unit: m, optional: true}", 1)
    no_number = np.array([0, 0, np.nan])
    found = said(
        schema, [{"x": image}, {"root": np.zeros(3), "x": image}, {"root": no_number, "x": image}]
    )
    assert not [f for f in found if f[0] == "DC204"]
    # No channels: another kind of file
    gray = {"root": np.array([0, 0, -0.6]), "x": np.full((8, 9), 600)}
    assert {code for code, *_ in said(schema, [gray])} == {"DC122"}


HO3D_DEPTH = """
datacheck: 1
name: ho3d_depth
extends: ho3d
fields:
  depth: {role: depth, shape: [480, 640, 3], file: "{split}/{seq}/depth/{frame}.png", optional: true, unit: m,
          channels: [1, 256], scale: 0.00012498664727900177, near: handJoints3D, distance: 0..0.3, share: 0.1..}
"""


def test_depth_files_of_ho3d_are_read_deep_only(tmp_path):
    synth.write("ho3d", tmp_path / "d", train=2, evaluation=1, frames=(12, 14), vertices=False)
    schema = parse_schema(HO3D_DEPTH)
    folders = sorted((tmp_path / "d").glob("*/*/meta"))
    rng = np.random.default_rng(0)
    for place in folders:
        (place.parent / "depth").mkdir()
        for frame in sorted(place.glob("*.pkl"))[:3]:
            with open_container(frame) as record:
                z = abs(record.read("handJoints3D").reshape(-1, 3)[0, 2])
            steps = np.round(
                (z + rng.uniform(-0.1, 0.15, (480, 640))) / 0.00012498664727900177
            ).astype(np.int64)
            image = np.stack([steps % 256, steps // 256, 0 * steps], axis=-1).astype(np.uint8)
            Image.fromarray(image).save(place.parent / "depth" / f"{frame.stem}.png")
    run = scan(tmp_path / "d", schema, output=tmp_path / "clean", level="deep")
    assert run.report.findings == []
    swapped = folders[0].parent / "depth/0001.png"
    # High byte first
    Image.fromarray(np.asarray(Image.open(swapped))[..., [1, 0, 2]].copy()).save(swapped)
    run = scan(tmp_path / "d", schema, output=tmp_path / "deep", level="deep")
    found = [(f.code, [run.table.keys[i] for i in f.rows]) for f in run.report.findings]
    assert [(code, keys) for code, keys in found if code == "DC204"] == [
        ("DC204", [folders[0].relative_to(tmp_path / "d").as_posix() + "/0001.pkl"])
    ]
    run = scan(tmp_path / "d", schema, output=tmp_path / "numeric", level="numeric")
    assert run.report.findings == []


# ------------------------------------------------------------------------------------------ time

CLOCK = "episode: {fps: 30}\nfields: {x: {role: timestamp, shape: [T], unit: %s}}"


@pytest.mark.parametrize(
    ("unit", "step", "kind"),
    [
        ("s", 1 / 30, None),
        ("s", 1000 / 30, "ms"),
        ("ms", 1 / 30, "s"),
        ("ns", 1e9 / 30, None),
        ("ns", 1e3 / 30, "ms"),
        ("s", 1.0, "index"),
        ("s", 1000 / 30 * 1.04, "ms"),
        ("s", 1000 / 30 * 1.07, None),
    ],
)
def test_a_clock_in_another_unit_is_named(unit, step, kind):
    told = [f for f in said(CLOCK % unit, [5 + step * np.arange(20.0)]) if f[0] == "DC206"]
    assert told == ([("DC206", "error", kind, [0])] if kind else [])


def test_two_stamps_are_no_clock():
    assert "DC206" not in codes_of(
        CLOCK % "s", [np.array([0.0, 1000.0]), np.zeros(0), np.array([3.0])]
    )


# ------------------------------------------------------------------------------------------ colours

COLOR = "fields: {x: {role: color, shape: [P, 3]%s}}"


def colors(count=3, scale=1.0, mean=110, std=60, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [
        (np.clip(rng.normal(mean, std, (300, 3)), 1, 255) * scale).astype(dtype)
        for _ in range(count)
    ]


def test_colours_of_another_scale_are_named():
    declared = COLOR % ", range: 0..255"
    assert said(declared, colors()) == []
    assert said(declared, [*colors(), *colors(1, 1 / 255, seed=1)]) == [
        ("DC205", "error", "unit", [3])
    ]
    assert said(COLOR % ", range: 0..1", [*colors(scale=1 / 255), *colors(1, seed=1)]) == [
        ("DC205", "error", "byte", [3])
    ]
    assert said(COLOR % "", [*colors(), *colors(1, 1 / 255, seed=1)]) == [
        ("DC205", "error", "unit", [3])
    ]
    assert said(COLOR % "", colors(scale=1 / 255)) == []
    assert said(declared, colors(dtype=np.uint8)) == []


def test_real_scenes_are_dark_and_bright_and_raise_nothing():
    declared = COLOR % ", range: 0..255"
    scenes = [
        colors(1, mean=0.055 * 255, std=20, seed=1)[0],
        colors(1, mean=0.914 * 255, std=40, seed=2)[0],
    ]
    assert [f for f in said(declared, scenes) if f[1] == "error"] == []
    flat = np.full((50, 3), 90, np.float32) + np.linspace(0, 4, 50)[:, None].astype(np.float32)
    assert said(declared, [*colors(), flat]) == [("DC205", "warning", "flat", [3])]


def test_a_dataset_that_was_divided_twice_is_told_as_a_whole():
    assert ("DC205", "warning", "dataset", []) in said(
        COLOR % ", range: 0..255", colors(9, mean=40, std=25)
    )


# ----------------------------------------------------------------------------------------- grippers

GRIP = "fields: {x: {role: gripper, shape: [T]%s}}"


def commands(low, high, count=1, steps=20):
    return [
        np.where((np.arange(steps) + 3 * i) % 10 < 5, low, high).astype(np.float32)
        for i in range(count)
    ]


def test_a_mixture_of_conventions_is_told_without_values():
    assert said(GRIP % "", [*commands(-1, 1, 4), *commands(0, 1)]) == [
        ("DC207", "warning", "mixed", [4])
    ]
    assert said(GRIP % "", commands(-1, 1, 4)) == []
    assert (
        said(GRIP % "", [*commands(0, 1, 4), np.ones(15, np.float32), np.linspace(0, 1, 30)]) == []
    )


def test_float32_noise_is_no_other_value_and_an_empty_episode_has_none():
    told = [
        commands(-1, 1)[0] * np.float32(1 - 1e-6),
        np.zeros(0, np.float32),
        *commands(-1, 1, 3)[1:],
    ]
    assert said(GRIP % ", values: [-1, 1]", told) == []


# ------------------------------------------------------------------------------------------ ids

ID = "fields: {x: {role: id, shape: [P]%s}}"


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (np.arange(256, dtype=np.uint8), "full"),
        (np.arange(255, dtype=np.uint8), None),
        (np.array([0, 1, 255], np.uint8), None),
        (np.arange(-32768, 32768, dtype=np.int16), "full"),
        (np.r_[np.arange(32700), -5].astype(np.int16), "wrapped"),
        (np.r_[np.arange(300), -1].astype(np.int16), None),
        (np.array([2.0**24], np.float32), None),
        (np.array([2.0**24 + 2], np.float32), "float"),
        (np.array([2.0**24 + 2]), None),
        (np.array([4096], np.float16), "float"),
        (np.zeros(0, np.uint8), None),
    ],
)
def test_ids_that_do_not_fit_their_dtype(ids, kind):
    assert said(ID % "", [ids]) == ([("DC127", "error", kind, [0])] if kind else [])


def test_a_declared_mark_may_sit_at_the_end_of_its_dtype():
    assert said(ID % ", ignore: [255]", [np.arange(256, dtype=np.uint8)]) == []


# --------------------------------------------------------------------------------------- statistics

STATS = "fields: {x: {role: action, shape: [T, 2], stats: {mean: [%s, 0], std: [%s, 1]}}}"


@pytest.mark.parametrize(
    ("mean", "std", "stale"),
    [(0.09, 1.0, 0), (0.11, 1.0, 1), (0, 0.81, 0), (0, 0.79, 1), (0, 1.24, 0), (0, 1.26, 1)],
)
def test_the_edges_of_stale_statistics(mean, std, stale):
    half = np.tile([[-1.0, -1.0], [1.0, 1.0]], (30, 1))  # mean 0, standard deviation 1, exactly
    told = [f for f in said(STATS % (mean, std), [half, half + 0.0]) if f[0] == "DC228"]
    assert len(told) == stale


def test_squares_in_place_of_spreads_and_a_wrong_width_are_named():
    rng = np.random.default_rng(0)
    colors = [np.clip(rng.normal(180, 30, (900, 3)), 0, 255).astype(np.float32) for _ in range(3)]
    every = np.concatenate(colors).astype(np.float64) / 255
    squares = (every**2).mean(axis=0).tolist()
    schema = {
        "fields": {
            "x": {
                "role": "color",
                "shape": ["P", 3],
                "stats": {"mean": every.mean(axis=0).tolist()},
            }
        }
    }
    assert said(schema, colors) == []  # statistics of 0..1 for colours of 0..255
    schema["fields"]["x"]["stats"]["std"] = squares
    assert said(schema, colors) == [("DC228", "error", "squares", [])]
    schema["fields"]["x"]["stats"] = {"std": [1.0, 2.0]}
    assert said(schema, colors) == [("DC228", "error", "width", [])]


def test_statistics_of_colours_may_weigh_scenes_alike_and_are_told_in_their_own_unit():
    """A dark scene of 100 points and a bright one of 900: mean 0.46 over points, 0.3 where both count alike."""
    half = np.tile([[-25.5], [25.5]], (50, 3))
    scenes = [(25.5 + half).astype(np.float32), (127.5 + np.tile(half, (9, 1))).astype(np.float32)]
    spread = [(0.01 + 0.04) ** 0.5] * 3  # of 0.1 and 0.5, each with 0.1 around it
    schema = {"fields": {"x": {"role": "color", "shape": ["P", 3]}}}
    schema["fields"]["x"]["stats"] = {"mean": [0.3] * 3, "std": spread}
    assert said(schema, scenes) == []
    schema["fields"]["x"]["stats"] = {
        "mean": [0.3 / 255] * 3,
        "std": [value / 255 for value in spread],
    }
    (finding,) = [f for f in found(schema, scenes) if f.code == "DC228"]
    assert (finding.cause.kind, round(finding.cause.factor)) == ("scaled", 255)
    assert finding.message.startswith("of 2 samples: mean 0.00118 stored, 0.46 found")


def test_what_is_too_little_to_judge_raises_nothing():
    for arrays in ([np.zeros((0, 2))], [np.zeros((1, 2))], [np.full((5, 2), np.nan)]):
        kinds = {c for c, *_ in said("fields: {x: {role: action, shape: [T, 2]}}", arrays)}
        assert not kinds & {"DC225", "DC226", "DC228"}


@pytest.mark.parametrize(
    ("role", "count", "factor", "verdict"),
    [
        ("action", 15, 100, "fail"),
        ("action", 15, 15, "pass"),  # less than 20 times the median
        ("action", 7, 100, "skip"),
        ("position", 15, 100, "skip"),
        ("position", 29, 1, "skip"),
        ("position", 30, 1, "pass"),
    ],
)
def test_few_samples_are_compared_with_a_far_limit_or_skipped(role, count, factor, verdict):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(20, 3)).astype(np.float32) for _ in range(count)]
    arrays[3] *= factor
    found = judged_of(f"fields: {{x: {{role: {role}, shape: [T, 3]}}}}", [{"x": a} for a in arrays])
    told = next(v for v in found.verdicts if v.code == "DC226")
    assert str(told.verdict) == verdict
    assert ("fewer than" in "; ".join([told.why, *told.unseen])) is (verdict == "skip")


def _recordings(quiet, spans=(2000, 20000), rows=400, count=40, dtype=np.int16):
    """Sounds between these peaks; the first ones with these peaks instead."""
    rng = np.random.default_rng(0)
    peaks = [*quiet, *rng.uniform(*spans, count - len(quiet))]
    return [np.linspace(-peak, peak, rows).astype(dtype) for peak in peaks]


@pytest.mark.parametrize(
    ("sounds", "named"),
    [
        (_recordings([2, 1]), [0, 1]),
        (_recordings([2]), [0]),
        (_recordings([0.0001], spans=(0.1, 1), dtype=np.float32), [0]),
        (_recordings([2, 3, 4]), []),  # more than 5 %
        (_recordings([2], count=29), []),  # too few to compare with
        (_recordings([2], rows=255), []),
        (_recordings([40]), []),  # quiet, but no noise floor
        (_recordings([2, 15, 100, 700]), []),  # others are about as quiet
        (_recordings([]), []),
    ],
)
def test_recordings_that_hardly_vary_are_named(sounds, named):
    told = said("fields: {x: {shape: [P]}}", sounds)
    assert told == ([("DC226", "warning", "nearly constant", named)] if named else [])
    assert said("fields: {velocity: {shape: [P]}}", sounds, "velocity") == []


def test_codes_of_a_clean_mesh_of_quads_and_of_another_count():
    box = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], np.float32) + 3
    faces = np.array([[0, 1, 3], [0, 3, 2], [4, 5, 7], [4, 7, 6]])
    schema = (
        "fields: {v: {role: points, shape: [V, 3], min_points: 1}, f: {role: faces, shape: "
        "[F, 3], indexes: v}}"
    )
    whole = {"v": box, "f": faces}
    assert "DC128" not in codes(judged_of(schema, [whole]))
    for broken, kind in (
        (faces[:3], "few"),
        (faces + 1, "one-based"),
        (faces - 1, "outside"),
        (faces[:, [0, 0, 1]], "flat"),
    ):
        (finding,) = [
            f for f in judged_of(schema, [{"v": box, "f": broken}]).findings if f.code == "DC128"
        ]
        assert finding.kind == kind or (kind == "one-based" and finding.kind == "outside")


def judged_of(schema, values):
    pieces = [
        ("", Piece(f"s{i}", v, Origin(""), "", {"id": f"s{i}"})) for i, v in enumerate(values)
    ]
    schema = schema_of(schema)
    return judged(schema, measured(schema, pieces))
