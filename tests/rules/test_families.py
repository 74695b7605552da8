"""What single rules promise beyond their examples: where the numbers of a finding come from, and what stays silent."""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from datacheck.model.sample import Column, Origin, Piece, stack
from datacheck.model.table import Note
from datacheck.rules import similarity as contents
from datacheck.rules.families.episodes import RATIOS, motion, timing
from datacheck.rules.families.numbers import marks
from datacheck.rules.placement import READINGS, projection
from datacheck.rules.similarity import content
from datacheck.schema.model import FieldSpec
from tests.rules.harness import codes, hand, judged, measured, scan, schema_of


def pieces(*fields, splits=(), facts=()):
    splits = splits or [""] * len(fields)
    facts = facts or [{}] * len(fields)
    return [
        (split, Piece(f"s{i:03d}", one, Origin(""), "", fact))
        for i, (one, split, fact) in enumerate(zip(fields, splits, facts, strict=True))
    ]


def findings(schema, samples, notes=()):
    schema = schema_of(schema)
    return judged(schema, measured(schema, samples), list(notes)).findings


# ------------------------------------------------------------------------------------------ files


def test_unreadable_rows_go_to_the_rule_of_their_code_and_the_rest_to_dc101():
    schema = schema_of("fields: {x: {role: value, shape: [2]}}")
    samples = [
        ("", "a\0DC101 truncated"),
        ("", "b\0DC105 no such file"),
        ("", "c\0DC701 line 3: not JSON"),
        ("", "d\0DC999 something new"),
        ("", "e\0DC101 truncated"),
    ]
    found = {f.code: f for f in judged(schema, measured(schema, samples)).findings}
    assert {code: f.examples for code, f in found.items()} == {
        "DC101": ("a", "d", "e"),
        "DC105": ("b",),
        "DC701": ("c",),
    }
    assert found["DC101"].measured["reasons"] == {"truncated": 2, "something new": 1}
    assert found["DC101"].message == "3 samples cannot be read: truncated (2); something new (1)."


def test_many_different_reasons_are_told_by_what_they_begin_with():
    schema = schema_of("fields: {x: {role: value, shape: [2]}}")
    reasons = [f"not an .npy file: it starts with {i}" for i in range(5)]
    reasons += ["a: 1", "a: 1: x", "b", "c", "c", "c", "d", "e"]
    samples = [("", f"{i:02d}\0DC101 {reason}") for i, reason in enumerate(reasons)]
    (finding,) = judged(schema, measured(schema, samples)).findings
    said = "not an .npy file (5); c (3); a: 1 (2); 3 other reasons"
    assert finding.message == f"13 samples cannot be read: {said}."


def test_a_leak_names_what_both_splits_share_and_where():
    schema = """
    samples: {files: "*", group: "{seq}"}
    fields: {x: {role: value, shape: [8]}}
    splits: {key: seq, disjoint: [train, val]}
    """
    rng = np.random.default_rng(0)
    rows = [
        ("train", "ABF10", "ABF1"),
        ("val", "ABF11", "ABF1"),
        ("val", "ABF11", "ABF1"),
        ("val", "SM1", "SM1"),
    ]
    samples = [
        (
            split,
            Piece(
                f"{split}/{seq}/{i}", {"x": rng.normal(size=8)}, Origin(""), seq, {"split_key": key}
            ),
        )
        for i, (split, seq, key) in enumerate(rows)
    ]
    (finding,) = findings(schema, samples)
    assert (finding.code, finding.failed) == ("DC802", 2)
    said = "2 of its 3 samples; ABF1: val/ABF11 and train/ABF10"
    assert finding.message == f"val shares keys with train: {said}."


def test_files_that_no_list_names_are_a_warning_about_the_dataset():
    note = Note("DC105", "train/extra.pkl", "no list names this file, so it is not read")
    (finding,) = findings(
        "fields: {x: {role: value, shape: [2]}}", pieces({"x": np.ones(2)}), [note]
    )
    assert (finding.severity, finding.failed, finding.kind) == (
        "warning",
        0,
        "no list names this file",
    )
    assert (
        finding.message == "1 name (train/extra.pkl): no list names this file, so it is not read."
    )


@pytest.mark.parametrize(
    ("kind", "severity", "fix"),
    [
        ("videos", "error", "Restore the videos."),
        ("twice", "warning", "Take them off one of the lists."),
        ("gone", "warning", "Restore the files, or take out what speaks of them."),
        ("uncompared", "info", "Scan its folders one by one to have them compared."),
        ("", "warning", "Correct the list, or move what it does not name out of the folder."),
    ],
)
def test_what_a_note_about_lists_tells_is_known_by_its_kind_and_not_by_its_words(
    kind, severity, fix
):
    note = Note("DC105", "a.npy", "not there, but spoken of", about={"kind": kind} if kind else {})
    (finding,) = findings(
        "fields: {x: {role: value, shape: [2]}}", pieces({"x": np.ones(2)}), [note]
    )
    assert (finding.severity, finding.fix) == (severity, fix)


def test_a_line_that_stands_twice_is_not_called_a_file_without_a_line():
    notes = [
        Note("DC105", "b", "stands more than once in train.txt"),
        Note("DC105", "a", "stands more than once in train.txt"),
        Note("DC105", "x", "no list names this file, so it is not read"),
    ]
    found = findings("fields: {x: {role: value, shape: [2]}}", pieces({"x": np.ones(2)}), notes)
    assert [f.message for f in found] == [
        "1 name (x): no list names this file, so it is not read.",
        "2 names (a, b): stands more than once in train.txt.",
    ]


def test_a_few_numbers_that_are_zero_are_no_placeholder():
    schema = (
        "fields: {f: {role: value, shape: [3]}, t: {role: value, shape: [T, 2], optional: true}}"
    )
    rng = np.random.default_rng(0)
    samples = pieces(
        {"f": rng.normal(size=3)}, {"f": np.zeros(3)}, {"f": np.zeros(3), "t": np.zeros((3, 2))}
    )
    assert [(f.code, f.examples) for f in findings(schema, samples)] == [("DC109", ("s002",))]


def test_constant_dimensions_are_not_passed_where_no_split_is_the_training_split():
    schema = schema_of("fields: {a: {role: action, shape: [T, 2]}}")
    samples = pieces(
        *[{"a": np.c_[np.arange(9.0) + i, np.ones(9)]} for i in range(3)],
        splits=["trn", "trn", "val"],
    )
    said = next(v for v in judged(schema, measured(schema, samples)).verdicts if v.code == "DC223")
    assert (said.verdict, said.why) == (
        "skip",
        "no split is called train or training (option splits)",
    )


def test_a_placeholder_hides_all_that_follows_from_it():
    schema = """
    fields:
      xyz: {role: points, shape: [P, 3], unit: m, size: 0.5..5, centered: no}
      q: {role: quaternion, shape: [G, 4]}
      mesh: {role: points, file: x.obj}
    """
    good = {
        "xyz": np.random.default_rng(0).uniform(0, 1, (30, 3)),
        "q": np.eye(4),
        "mesh": np.eye(3),
    }
    zero = {"xyz": np.zeros((30, 3)), "q": np.zeros((5, 4)), "mesh": np.eye(3)}
    (finding,) = findings(schema, pieces(good, zero))
    assert (finding.code, finding.rows.tolist()) == ("DC109", [1])
    assert {"DC222", "DC201"} <= set(finding.hides)


@pytest.mark.parametrize("allowed", ["-1..5", "-5..-1", "..5", "0..5", "-3.."])
@pytest.mark.parametrize("what", ["size", "distance"])
def test_a_range_of_lengths_may_begin_below_zero(allowed, what):
    schema = f"fields: {{xyz: {{role: points, shape: [P, 3], unit: m, {what}: {allowed}}}}}"
    far = np.random.default_rng(0).uniform(0, 1, (30, 3)) * 1000 + 500
    found = [
        f for f in findings(schema, pieces({"xyz": far}, {"xyz": far + 1})) if f.code == "DC201"
    ]
    assert [f.rows.tolist() for f in found] == ([] if allowed == "-3.." else [[0, 1]])


# ---------------------------------------------------------------------------------------- structure


def test_another_width_is_only_told_and_another_kind_is_an_error():
    schema = "fields: {x: {role: value, shape: [T], dtype: float32}}"
    found = findings(
        schema,
        pieces({"x": np.ones(9, np.float32)}, {"x": np.linspace(0, 1, 9)}, {"x": np.arange(9)}),
    )
    assert [(f.severity, f.kind) for f in found if f.code == "DC122"] == [
        ("error", "int64"),
        ("info", "float64"),
    ]


def test_text_where_numbers_are_declared_is_named():
    (finding,) = findings(
        "fields: {x: {role: points, shape: [P, 3]}}", pieces({"x": "no numbers, but a text"})
    )
    assert (finding.code, finding.kind) == ("DC122", "kind")


def test_the_field_of_another_length_is_named_and_attributes_count():
    schema = (
        "fields: {a: {role: action, shape: [T, 2]}, b: {shape: [T]}, c: {shape: [T]}}\nattrs: "
        "{num_samples: T}"
    )
    rng = np.random.default_rng(0)

    def demo(a, b, c):
        return {"a": rng.normal(size=(a, 2)), "b": rng.normal(size=b), "c": rng.normal(size=c)}

    facts = [{"attrs/num_samples": n} for n in (9, "9", np.array(8))]  # a text is a count too
    count, finding = findings(
        schema, pieces(demo(9, 9, 9), demo(9, 8, 9), demo(9, 9, 9), facts=facts)
    )
    assert (count.code, count.rows.tolist(), count.measured) == (
        "DC111",
        [2],
        {"stated": 8, "found": 9},
    )
    assert finding.code == "DC123"
    assert finding.rows.tolist() == [1]
    assert finding.fields == ("b",)
    assert finding.message.endswith("in the first it is 8 in b and 9 elsewhere.")


@pytest.mark.parametrize("stated", [1e300, -1e300, 2**64 - 1, np.inf, "9" * 400])
def test_a_count_beyond_64_bits_is_a_wrong_count(stated):
    """It passed as if no count was stated."""
    schema = "fields: {a: {role: action, shape: [T, 2]}}\nattrs: {num_samples: T}"
    rng = np.random.default_rng(0)
    rows = [{"a": rng.normal(size=(9, 2))} for _ in range(2)]
    facts = [{"attrs/num_samples": 9}, {"attrs/num_samples": stated}]
    (found,) = findings(schema, pieces(*rows, facts=facts))
    assert (found.code, found.rows.tolist()) == ("DC111", [1])


def test_a_declared_attribute_that_is_missing_is_a_missing_field():
    (finding,) = findings("fields: {a: {shape: [T]}}\nattrs: {n: T}", pieces({"a": np.arange(9.0)}))
    assert (finding.code, finding.message) == ("DC121", "1 sample lacks attribute n.")


@pytest.mark.parametrize(("there", "foreign"), [("a", True), ("ab", True), ("abc", False)])
def test_data_without_half_of_the_promised_fields_are_said_to_be_of_another_layout(there, foreign):
    schema = "fields: {a: {shape: [T]}, b: {shape: [T]}, c: {shape: [T]}, d: {shape: [T]}}"
    samples = [dict.fromkeys(there, np.arange(9.0)) for _ in range(3)]
    (finding,) = (f for f in findings(schema, pieces(*samples)) if f.code == "DC121")
    assert ("--schema" in finding.fix) is foreign
    # Of two fields one may only have another name
    assert "at:, or declare it optional: true." in finding.fix
    assert (finding.cause is not None) is foreign
    if foreign:
        assert finding.cause.text.startswith(f"{4 - len(there)} of 4 fields are in no sample")
    whole = dict.fromkeys("abcd", np.arange(9.0))
    (finding,) = (f for f in findings(schema, pieces(*samples, whole)) if f.code == "DC121")
    assert finding.cause is None


# ------------------------------------------------------------------------------------------ numbers


def test_marks_are_counted_per_sample_and_the_most_frequent_is_named():
    rows = np.array([[-1, -1, -1], [5, 5, 5], [-1, -1, -1], [0, 0, 0], [1, 2, 3]], np.float32)
    found = marks.function(
        Column.of([rows, rows[4:]]), FieldSpec(role="position", sentinels=(5.0,))
    )
    got = {name: column.values.tolist() for name, column in found.items()}
    assert got == {
        "rows": [5, 1],
        "zeros": [1, 0],
        "declared": [1, 0],
        "alike": [2, 0],
        "alike_value": [-1, 0],
    }


@pytest.mark.parametrize(
    ("role", "value", "wanted"),
    [
        ("position", -1.0, ["DC222"]),
        ("position", -2.0, []),  # no mark that anybody uses
        ("points", -1.0, []),  # a corner of a cube
        ("action", -1.0, []),  # an action may lie in the corner of its range
        ("quaternion", 0.0, ["DC222"]),
        ("position", 0.0, []),  # an object at the origin
    ],
)
def test_a_mark_counts_only_where_it_cannot_be_data(role, value, wanted):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(40, 4 if role == "quaternion" else 3))
    broken = rows.copy()
    broken[5:15] = value
    found = findings(
        f"fields: {{x: {{role: {role}, shape: [T, K]}}}}", pieces({"x": rows}, {"x": broken})
    )
    assert [f.code for f in found if f.code == "DC222"] == wanted


def test_a_mark_of_the_whole_field_is_not_said_again_of_its_parts():
    schema = """
    fields:
      g: {role: pose, shape: [G, 7], columns: "pos:3 quat:4"}
      g.pos: {role: position}
      g.quat: {role: quaternion}
    """
    rng = np.random.default_rng(2)
    whole, part = rng.normal(size=(2, 20, 7))
    part[3:9, :3] = -1
    for pose in (whole, part):
        pose[:, 3:] /= np.linalg.norm(pose[:, 3:], axis=1)[:, None]
    whole[3:9] = -1
    found = findings(schema, pieces({"g": whole}, {"g": part}))
    assert [(f.code, f.fields, f.rows.tolist()) for f in found] == [
        ("DC222", ("g",), [0]),
        ("DC222", ("g.pos",), [1]),
    ]


def test_nan_is_said_once_of_a_field_and_not_of_its_parts():
    schema = (
        'fields: {g: {role: pose, shape: [G, 7], columns: "pos:3 quat:4"}, g.pos: {role: '
        "position, distance: 0..9}}"
    )
    grasps = np.random.default_rng(3).normal(size=(20, 7))
    grasps[4] = np.nan
    (finding,) = findings(schema, pieces({"g": grasps}))
    assert (finding.code, finding.fields) == ("DC221", ("g",))
    assert finding.message == "1 sample holds NaN or infinity (7 values); the first one in row 4."


def test_a_dimension_that_moves_in_one_sample_is_not_constant():
    a, b = np.random.default_rng(4).normal(size=(2, 9, 3))
    a[:, 1] = b[:, 1] = 0.5
    schema = "fields: {x: {role: action, shape: [T, 3]}}"
    (finding,) = findings(schema, pieces({"x": a}, {"x": b}))
    assert (finding.code, finding.measured["dimensions"]) == ("DC223", [1])
    b[0, 1] = 0.6
    assert findings(schema, pieces({"x": a}, {"x": b})) == []


# ------------------------------------------------------------------------------------------ frames


def test_positions_project_where_a_plain_camera_says():
    k = np.array([[600.0, 0, 320], [0, 600, 240], [0, 0, 1]])
    opengl = hand(np.random.default_rng(0), root=(0.0, 0.0, -0.6))[0]
    schema = schema_of(
        "fields: {j: {role: joints, intrinsics: k, image_size: [640, 480]}, k: {role: intrinsics}}"
    )
    (block,) = stack([Piece("a", {"j": opengl, "k": k}, Origin(""))])
    found = projection.function(block, schema)
    x, y, z = (opengl * [1, -1, -1]).T
    u, v = 600 * x / z + 320, 600 * y / z + 240
    inside = (z > 0) & (u >= 0) & (u < 640) & (v >= 0) & (v < 480)
    shares = dict(zip(READINGS, found["j:inside"].values[0], strict=True))
    assert shares[1, -1, -1] == inside.mean()
    assert shares[1, 1, 1] == 0


def test_intrinsics_of_another_image_are_a_warning():
    schema = """
    fields:
      j: {role: joints, shape: [21, 3], unit: m, frame: camera_opengl, centered: no, intrinsics: k,
          image_size: [640, 480]}
      k: {role: intrinsics, shape: [3, 3]}
    """
    k = np.array([[600.0, 0, 320], [0, 600, 240], [0, 0, 1]])
    frames = [hand(np.random.default_rng(n), root=(0.02 * n - 0.1, 0.0, -0.6))[0] for n in range(5)]
    assert findings(schema, pieces(*({"j": f, "k": k} for f in frames))) == []
    (finding,) = findings(schema, pieces(*({"j": f, "k": k * 3} for f in frames)))
    assert (finding.code, finding.severity, finding.kind) == ("DC306", "error", "resolution")
    assert (finding.fields, finding.cause.factor) == (("k", "j"), pytest.approx(1 / 3))
    (finding,) = findings(
        schema, pieces(*({"j": f + np.array([0.9, 0, 0]), "k": k} for f in frames))
    )
    assert (finding.code, finding.severity, finding.kind) == ("DC303", "warning", "outside")


@pytest.mark.parametrize(
    ("declared", "shift", "wanted"),
    [
        ("centroid", "centroid", []),
        ("centroid", "box", ["DC301"]),
        ("box", "box", []),
        ("no", "centroid", ["DC301"]),
        ("root", "root", []),
        ("root", "none", ["DC301"]),
        ("xy", "xy", []),
        ("xy", "none", ["DC301"]),
    ],
)
def test_the_centre_at_the_origin_is_held_against_the_declared_one(declared, shift, wanted):
    frames = []
    for n in range(4):
        j = hand(np.random.default_rng(n), root=(0.4, 0.2, -0.7))[0]
        centres = {
            "centroid": j.mean(axis=0),
            "box": (j.min(axis=0) + j.max(axis=0)) / 2,
            "root": j[0],
            "xy": j.mean(axis=0) * [1, 1, 0],
            "none": np.zeros(3),
        }
        frames.append({"j": j - centres[shift]})
    schema = f"fields: {{j: {{role: joints, shape: [21, 3], unit: m, centered: {declared!r}}}}}"
    assert [f.code for f in findings(schema, pieces(*frames))] == wanted


def test_an_undeclared_centre_is_only_told():
    frames = [{"j": hand(np.random.default_rng(n))[0]} for n in range(4)]
    frames = [{"j": f["j"] - f["j"][0]} for f in frames]
    (finding,) = findings("fields: {j: {role: joints, shape: [21, 3], unit: m}}", pieces(*frames))
    assert (finding.code, finding.severity, finding.measured["centre"]) == ("DC301", "info", "root")


# ----------------------------------------------------------------------------------------- episodes

LIBERO = {
    "spatial": (122.6, 0.486),
    "object": (147.5, 0.573),
    "goal": (121.6, 0.482),
    "libero_10": (267.7, 0.765),
}


@pytest.mark.parametrize("suite", sorted(LIBERO))
def test_stock_libero_loses_the_published_share_of_starts_and_has_no_error(suite):
    mean, share = LIBERO[suite]
    steps = np.round(np.array([mean] * 10)).astype(int)
    schema = "fields: {actions: {role: action, shape: [T, 7]}}\nwindows: {length: 64}"
    rng = np.random.default_rng(0)
    (finding,) = findings(schema, pieces(*({"actions": rng.normal(size=(t, 7))} for t in steps)))
    assert (finding.code, finding.severity, finding.kind, finding.failed) == (
        "DC501",
        "warning",
        "lost-starts",
        0,
    )
    assert finding.measured["share"] == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize(
    ("windows", "wanted"),
    [
        ("{length: 64}", ["lost-starts", "short"]),
        ("{length: 64, pad: edge}", []),
        ("{length: 64, short: pad}", ["lost-starts"]),
        ("{length: 50}", ["lost-starts"]),
        ("{length: 10}", []),
    ],
)
def test_a_short_demo_is_lost_only_where_nothing_pads_it(windows, wanted):
    rng = np.random.default_rng(0)
    samples = pieces(*({"a": rng.normal(size=(t, 7))} for t in (50, 120, 120)))
    found = findings(f"fields: {{a: {{role: action, shape: [T, 7]}}}}\nwindows: {windows}", samples)
    assert sorted(f.kind for f in found) == wanted
    assert [f.rows.tolist() for f in found if f.kind == "short"] == [[0]] * ("short" in wanted)


def test_time_is_measured_step_by_step():
    # Still once, back once, one gap of 4.5 steps
    times = np.array([0.0, 0.1, 0.2, 0.2, 0.1, 0.55, 0.65])
    found = timing.function(Column.of([times, times[:1]]), FieldSpec(role="timestamp"))
    assert found["steps"].present.tolist() == [True, False]
    assert [found[n].values[0] for n in ("steps", "back", "still")] == [6, 1, 1]
    assert found["step"].values[0] == pytest.approx(0.1)
    assert found["longer"].values[0].tolist() == [int(r < 4.5) for r in RATIOS]


def test_motion_is_that_of_the_liveliest_field():
    rng = np.random.default_rng(0)
    arm = np.cumsum(rng.uniform(0.5, 1, (41, 2)), axis=0)
    arm[10:31] = arm[10]
    still = np.zeros((41, 3))
    schema = schema_of(
        "fields: {a: {role: action, shape: [T, 2]}, q: {role: joint_angle, shape: [T, 2]}, "
        "p: {role: position, shape: [T, 3]}}"
    )
    (block,) = stack([Piece("a", {"a": arm, "q": arm, "p": still}, Origin(""))])
    found = motion.function(block, schema)
    assert (found["still"].values[0][0], found["steps"].values[0]) == (20, 40)
    assert (found["head"].values[0], found["tail"].values[0]) == (0, 0)
    assert found["reach"].values[0] == pytest.approx(np.abs(arm - arm[0]).max())


def test_max_idle_of_the_schema_decides():
    rng = np.random.default_rng(1)
    arm = np.cumsum(rng.uniform(0.5, 1, (40, 2)), axis=0)
    arm[10:22] = arm[10]
    schema = (
        "fields: {a: {role: action, shape: [T, 2]}, q: {role: joint_angle, shape: [T, "
        "2]}}\nepisode: {max_idle: 20%}"
    )
    samples = pieces({"a": rng.normal(size=(40, 2)), "q": arm})
    (finding,) = findings(schema, samples)
    assert (finding.code, finding.severity) == ("DC504", "warning")
    assert findings(schema.replace("20%", "40%"), samples) == []


# ------------------------------------------------------------------------------------------ splits

CLOUD = "fields: {xyz: {role: points, shape: [P, 3]}, label: {role: class, shape: [P]}}"


def digest(**fields):
    (block,) = stack([Piece("a", fields, Origin(""))])
    found = content.function(block, schema_of(CLOUD))["content"]
    return int(found.values[0]) if found.present[0] else None


def test_a_cloud_is_the_same_in_any_order_and_another_when_a_point_moves():
    rng = np.random.default_rng(0)
    xyz, label = rng.normal(size=(50, 3)).astype(np.float32), rng.integers(0, 4, 50)
    order = rng.permutation(50)
    assert digest(xyz=xyz, label=label) == digest(xyz=xyz[order], label=label[order])
    moved = xyz.copy()
    moved[7, 1] += 0.01
    assert digest(xyz=xyz, label=label) != digest(xyz=moved, label=label)
    swapped = xyz.copy()
    swapped[[3, 4], 0] = swapped[[4, 3], 0]  # the same numbers in other points
    assert digest(xyz=xyz, label=label) != digest(xyz=swapped, label=label)
    assert digest(xyz=xyz[:1], label=label[:1]) is None  # one point says nothing


def test_copies_across_splits_are_leaks_and_within_a_split_duplicates():
    rng = np.random.default_rng(1)
    a, b, c, d = rng.normal(size=(4, 20, 2))
    samples = pieces(
        *({"x": x} for x in (a, b, b, c, a, d, c)),
        splits=["train", "train", "train", "val", "val", "val", "val"],
    )
    schema = (
        "fields: {x: {role: value, shape: [T, 2]}}\nsplits: {key: file, disjoint: [train, val]}"
    )
    found = {f.code: (f.rows.tolist(), f.severity) for f in findings(schema, samples)}
    assert found == {"DC801": ([4], "error"), "DC803": ([2, 6], "warning")}
    (copies,) = (f for f in findings(schema, samples) if f.code == "DC803")
    assert copies.message == "2 samples repeat earlier ones, s002 that of s001."
    (single,) = (f for f in findings(schema, samples[:3]) if f.code == "DC803")
    assert single.message == "1 sample repeats an earlier one, s001."
    loud = {f.code: f.severity for f in findings(schema + "\nduplicates: {exact: error}", samples)}
    assert loud["DC803"] == "error"
    assert {f.code for f in findings(schema + "\nduplicates: {exact: 'off'}", samples)} == {"DC801"}


def test_a_split_that_is_another_one_again_is_called_so():
    rng = np.random.default_rng(2)
    arrays = rng.normal(size=(6, 20, 2))
    samples = pieces(*({"x": x} for x in [*arrays, *arrays]), splits=["train"] * 6 + ["val"] * 6)
    (finding,) = findings("fields: {x: {role: value, shape: [T, 2]}}", samples)
    assert (finding.code, finding.failed, finding.cause.text) == ("DC801", 6, "val is train again")


def test_samples_that_are_too_small_to_be_compared_are_counted_beside_the_others():
    texts = ["The same sentence on both sides.", "Another one, of train alone.", "short"]
    samples = pieces(
        *({"t": one} for one in [*texts, *texts[:1], "brief", "curt"]),
        splits=["train"] * 3 + ["val"] * 3,
    )
    (finding,) = (f for f in findings("fields: {t: {role: text}}", samples) if f.code == "DC801")
    assert (
        finding.message
        == "val shares samples with train: 1 of its 1 sample that can be compared (2 cannot)."
    )


def test_the_later_split_of_a_leak_is_named_in_the_declared_order():
    rng = np.random.default_rng(3)
    facts = [{"split_key": k} for k in ("a", "b", "a", "c", "a")]
    samples = pieces(
        *({"x": x} for x in rng.normal(size=(5, 8))),
        splits=["test", "test", "val", "val", "train"],
        facts=facts,
    )
    schema = (
        "fields: {x: {role: value, shape: [8]}}\nsplits: {key: room, disjoint: [val, train, test]}"
    )
    found = findings(schema, samples)
    by_split = {f.kind: f.rows.tolist() for f in found}
    assert {f.code for f in found} == {"DC802"}
    assert by_split == {"train": [4], "test": [0]}
    assert (
        findings(schema.replace("disjoint: [val, train, test]", "disjoint: [val]"), samples) == []
    )


def test_clean_codes_stay_silent_over_a_whole_clean_schema():
    rng = np.random.default_rng(4)
    samples = pieces(
        *({"x": rng.normal(size=(30, 3)), "label": rng.integers(0, 5, 30)} for _ in range(20))
    )
    schema = (
        "fields: {x: {role: points, shape: [P, 3]}, label: {role: class, shape: [P], classes: 5}}"
    )
    assert codes(judged(schema_of(schema), measured(schema_of(schema), samples))) == []


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_different_clouds_of_few_points_of_a_grid_have_different_digests(axis, dtype):
    grid = np.insert(
        np.stack(np.meshgrid([0, -1, 1], [0, 0.5, 2]), axis=-1).reshape(-1, 2), axis, 0, axis=1
    )
    clouds = [grid[list(rows)].astype(dtype) for rows in combinations_with_replacement(range(9), 4)]
    (block,) = stack([Piece(f"{i}", {"xyz": cloud}, Origin("")) for i, cloud in enumerate(clouds)])
    found = content.function(block, schema_of("fields: {xyz: {role: points, shape: [P, 3]}}"))[
        "content"
    ]
    assert found.present.all()
    assert len(clouds) == 495
    assert len(np.unique(found.values)) == 495


def test_a_cloud_of_many_strips_has_the_digest_of_its_points_in_any_order(monkeypatch):
    points = np.random.default_rng(5).random((5_000, 3))
    whole = contents._cloud(Column.of([points]))
    monkeypatch.setattr("datacheck.rules.point_spacing._STRIP", 7)
    np.testing.assert_array_equal(contents._cloud(Column.of([points[::-1].copy()])), whole)
    points[17, 2] += 0.01
    assert contents._cloud(Column.of([points]))[0] != whole[0]


def test_a_cloud_is_the_same_in_another_dtype_and_beside_other_clouds():
    rng = np.random.default_rng(6)
    clouds = [rng.normal(size=(n, 3)).astype(np.float32) for n in (40, 0, 5_000, 3)]
    alone = [int(contents._cloud(Column.of([c]))[0]) for c in clouds]
    assert contents._cloud(Column.of(clouds)).tolist() == alone
    assert len(set(alone)) == 4
    assert contents._cloud(Column.of([c.astype(np.float64) for c in clouds])).tolist() == alone
    whole = np.array([[0, 1, 2], [3, 4, 5]])
    dtypes = ("int16", "int64", "float16", "float32", "float64")
    same = [contents._cloud(Column.of([whole.astype(dtype)]))[0] for dtype in dtypes]
    assert len(set(same)) == 1
    minus = whole * -1.0  # holds -0
    assert contents._cloud(Column.of([minus]))[0] == contents._cloud(Column.of([minus + 0.0]))[0]


def test_clouds_far_from_the_origin_are_told_apart_where_float32_cannot():
    far = np.add(
        [[500_000, 5_400_000, 8], [500_001, 5_400_002, 9], [500_000, 5_400_003, 8]],
        [0.001, 0.01, 0],
    )
    near = np.add(far, [0.002, 0.02, 0])
    assert (far.astype(np.float32) == near.astype(np.float32)).all()
    assert contents._cloud(Column.of([far]))[0] != contents._cloud(Column.of([near]))[0]
    # As after another offset and back
    again = np.add(np.round(far[[2, 0, 1]], 3), [3e-10, -2e-9, 1e-12])
    assert contents._cloud(Column.of([again]))[0] == contents._cloud(Column.of([far]))[0]
    assert contents._cloud(Column.of([near, again]))[1] == contents._cloud(Column.of([far]))[0]
    stored = far.astype(np.float32)  # a copy of what float32 has left is the same again
    assert (
        contents._cloud(Column.of([stored]))[0]
        == contents._cloud(Column.of([stored.astype(np.float64)]))[0]
    )


def test_a_split_of_which_nothing_can_be_read_is_empty():
    text = """
    schema: {fields: {x: {role: value, shape: [8]}}, splits: {key: file, disjoint: [train, val]}}
    samples:
      - {n: 9, split: train, x: {normal: [8]}}
      - {split: val, key: v0, unreadable: "DC101 truncated"}
      - {split: val, key: v1, unreadable: "DC101 truncated"}
    """
    found, _ = scan(text)
    (mine,) = [f for f in found.findings if f.code == "DC805"]
    assert (mine.severity, mine.kind, len(mine.rows), mine.cause) == ("error", "empty:val", 2, None)
    assert mine.fix.startswith("Mend these files")
    assert mine.message == "val is empty: none of its 2 samples can be read."
    assert "DC805" not in codes(
        scan(
            text.replace(
                '{split: val, key: v1, unreadable: "DC101 truncated"}',
                "{n: 1, split: val, x: {normal: [8]}}",
            )
        )[0]
    )


def test_a_split_of_one_damaged_file_that_may_hold_many_samples_is_not_called_empty():
    text = """
    schema: {fields: {x: {role: value, shape: [8]}}, splits: {key: file, disjoint: [train, val]}}
    samples:
      - {n: 9, file: train.tar, split: train, x: {normal: [8]}}
      - {split: val, key: val.tar, unreadable: "DC101 cut short behind 23 whole records"}
    """
    (mine,) = [f for f in scan(text)[0].findings if f.code == "DC805"]
    assert (
        mine.message == "no sample of val was judged: 1 file of samples cannot be read as a whole."
    )


def test_what_one_of_few_samples_lacks_says_little_where_another_cannot_be_read():
    """Two tables beside two lists of names, and one table damaged: the other one "has no text; 2 others do"."""
    text = """
    schema: {fields: {a: {role: value, shape: [3], optional: true}, b: {role: value, shape: [2]}}}
    samples:
      - {n: 2, a: {normal: [3]}, b: {normal: [2]}}
      - {b: {normal: [2]}}
      - {key: z, unreadable: "DC101 truncated"}
    """
    found, _ = scan(text)
    assert codes(found) == ["DC101"]
    assert "DC129" in codes(scan(text.replace("n: 2", "n: 3"))[0])


@pytest.mark.parametrize(
    ("names", "wide", "told"),
    [
        (("a.csv", "b.csv"), 2, 0),
        (("a.JSON", "b.txt"), 2, 0),
        (("a.xml", "b.xml"), 2, 0),
        (("a.npy", "b.npy"), 2, 1),
        (("a.csv", "b.csv"), 3, 1),
    ],
)
def test_whole_numbers_of_a_text_are_no_other_kind_than_floats(names, wide, told):
    """Of 58 series those that count taxis have no point in any row."""
    schema = schema_of("fields: {x: {role: value, shape: [T, A]}}")
    values = [np.arange(8.0).reshape(4, 2) / 3 + i for i in range(3)] + [
        np.arange(4 * wide).reshape(4, wide)
    ]
    samples = [
        ("", Piece(f"s{i}", {"x": value}, Origin(names[i == 3]))) for i, value in enumerate(values)
    ]
    assert (
        len([f for f in judged(schema, measured(schema, samples)).findings if f.code == "DC126"])
        == told
    )


def test_a_split_with_a_damaged_file_is_not_called_small():
    text = """
    schema: {fields: {x: {role: value, shape: [8]}}, splits: {key: file, disjoint: [train, val]}}
    samples:
      - {n: 300, file: train.npz, split: train, x: {normal: [8]}}
      - {n: 1, split: val, x: {normal: [8]}}
      - {split: val, key: shard, unreadable: "DC101 truncated"}
    """
    assert "DC805" not in codes(scan(text)[0])
    whole = text.replace('key: shard, unreadable: "DC101 truncated"', "x: {normal: [8]}")
    assert "DC805" in codes(scan(whole)[0])
    # Each file is a sample: the damaged one holds no more than one
    alone = text.replace("file: train.npz, ", "")
    assert "DC805" in codes(scan(alone)[0])


@pytest.mark.parametrize(("own", "found"), [(9, False), (10, True)])
def test_a_class_counts_as_lacking_where_five_samples_should_have_it(own, found):
    text = f"""
    schema: {{fields: {{label: {{role: class, shape: [P], classes: 3}}}}, rules: {{DC803: off}}}}
    samples:
      - {{n: 20, split: train, label: {{choice: [9], among: [0]}}}}
      - {{n: 20, split: train, label: {{choice: [9], among: [2]}}}}
      - {{n: {own}, split: val, label: {{choice: [9], among: [0]}}}}
    """
    messages = [f.message for f in scan(text)[0].findings if f.code == "DC805"]
    assert bool(messages) is found
    assert not found or "val lacks class 2 of label" in messages[0]


@pytest.mark.parametrize(
    ("train", "val", "found"), [(8, 2, False), (12, 2, False), (13, 2, True), (8, 4, True)]
)
def test_a_class_that_only_chance_puts_into_one_split_is_not_lacking_in_the_other(
    train, val, found
):
    """Of 14 samples a random split takes the same two in 1 of 91 times, of 15 in 1 of 105."""
    text = f"""
    schema: {{fields: {{label: {{role: class, shape: [P], classes: 3}}}}, rules: {{DC803: off}}}}
    samples:
      - {{n: {train}, split: train, label: {{choice: [9], among: [0]}}}}
      - {{n: {val}, split: val, label: {{choice: [9], among: [2]}}}}
    """
    messages = [f.message for f in scan(text)[0].findings if f.code == "DC805"]
    assert any("train lacks class 2" in message for message in messages) is found


def test_nothing_readable_at_all_is_no_empty_split():
    found, _ = scan("""
    schema: {fields: {x: {role: value}}}
    samples: [{split: val, key: v0, unreadable: "DC101 truncated"}]
    """)
    assert "DC805" not in codes(found)


def test_of_more_splits_than_anybody_reads_the_rest_is_told_together():
    schema = schema_of({"fields": {"x": {}}})
    samples = [
        (f"s{n:03d}", Piece(f"k{n}", {"x": np.arange(40.0)}, Origin(f"{n}.npy")))
        for n in range(301)
    ]
    found = [
        one for one in judged(schema, measured(schema, samples)).findings if one.code == "DC801"
    ]
    assert [len(one.rows) for one in found] == [100] + [1] * 200
    assert found[0].message.startswith("100 more splits ")


def test_a_declared_kind_of_numbers_is_held_against_texts_also_where_no_shape_is_said():
    text = """
    schema: {{fields: {{x: {{dtype: {dtype}}}}}}}
    samples: [{{n: 3, x: {{normal: [4], dtype: float32}}}}, {{key: odd, x: {{json: {{a: 1}}}}}}]
    """
    found = [f for f in scan(text.format(dtype="float32"))[0].findings if f.code == "DC122"]
    assert [(f.severity, f.kind, f.failed) for f in found] == [("error", "kind", 1)]


def test_a_folder_that_cannot_be_listed_is_told_apart_from_files_that_cannot_be_read():
    found, _ = scan("""
    schema: {fields: {x: {}}}
    samples:
      - {key: a, x: {normal: [3]}}
      - {key: locked, unreadable: "DC101 not listed: folder cannot be read: permission denied"}
      - {key: b.npy, unreadable: "DC101 the header ends too soon"}
    """)
    file, folder = (f for f in found.findings if f.code == "DC101")
    said = (
        "1 folder cannot be listed, and may hold samples: locked: folder cannot be read: "
        "permission denied."
    )
    assert folder.message == said
    assert file.message == "1 sample cannot be read: the header ends too soon."
    assert "Write or download" not in folder.fix
