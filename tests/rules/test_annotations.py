"""What is said of instances: classes, captions, ids, boxes, masks, segments and the ground truth that encodes them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.sample import Column, Origin, Piece, stack
from datacheck.rules.families.annotations import PURITY, WORST, objects
from datacheck.rules.families.boxes import boxes
from datacheck.rules.families.instances import truth
from datacheck.rules.families.labels import segments
from datacheck.schema.model import FieldSpec
from tests.rules.harness import judged, measured, schema_of
from tests.trials.memory import scan_pieces

SCENE = """
fields:
  id: {role: instance, shape: [P], ignore: [-1]}
  label: {role: class, shape: [P], ignore: [-100]}
"""


def said(schema, *samples):
    """Return (code, kind, severity, rows) of each finding of samples given as mappings of fields."""
    schema = schema_of(schema)
    pieces = [("", Piece(f"s{i}", sample, Origin(""))) for i, sample in enumerate(samples)]
    found = judged(schema, measured(schema, pieces)).findings
    return [(f.code, f.kind, f.severity.value, f.rows.tolist()) for f in found]


def counted(schema, function, sample):
    (block,) = stack([Piece("s", sample, Origin(""))])
    return {
        stat: m.values[0].tolist()
        for stat, m in function(block, schema_of(schema)).items()
        if m.present[0]
    }


# --------------------------------------------------------------------------- classes of an instance


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        (5, []),
        (6, [("DC406", "mixed", "warning", [0])]),
        (10, [("DC406", "mixed", "warning", [0])]),
        (11, [("DC406", "impure", "error", [0])]),
    ],
)
def test_a_minority_of_five_and_of_ten_percent_are_the_two_limits(other, wanted):
    label = np.where(np.arange(100) < other, 2, 1)
    assert said(SCENE, {"id": np.zeros(100, int), "label": label}) == wanted


def test_the_cause_counts_scenes_as_the_finding_does_and_says_of_how_many_instances():
    # The first point of each has the other class
    ids, label = (np.repeat([0, 1, 2], 40), np.tile([2] * 8 + [1] * 32, 3))
    pieces = [Piece(f"s{n}", {"id": ids, "label": label}, Origin("")) for n in range(2)]
    schema = schema_of(SCENE)
    every = judged(schema, measured(schema, [("", piece) for piece in pieces])).findings
    (found,) = (one for one in every if one.code == "DC406")
    assert (found.failed, found.cause.explains, found.measured["first"]) == (2, 2, 6)
    assert found.cause.text.startswith("the first point of 6 instances has another class than most")


def test_the_cause_is_of_the_instances_that_fail_not_of_those_that_are_nearly_pure():
    """Of each scene one instance of 60 % begins with its own class, and seven of 99.9 % begin with another."""
    ids = np.repeat(np.arange(8), 1000)
    label = np.where(np.arange(8000) % 1000 == 0, 2, 1)
    label[:1000] = np.where(np.arange(1000) < 600, 1, 3)
    pieces = [Piece(f"s{n}", {"id": ids, "label": label}, Origin("")) for n in range(3)]
    schema = schema_of(SCENE)
    every = judged(schema, measured(schema, [("", piece) for piece in pieces])).findings
    (found,) = (one for one in every if one.code == "DC406")
    assert (found.failed, found.cause, found.measured["first"], found.measured["classes"]) == (
        3,
        None,
        0,
        [1, 3],
    )


def test_points_without_class_or_instance_do_not_count():
    ids = np.array([0] * 50 + [-1] * 50)
    label = np.array([1] * 30 + [-100] * 20 + [1, 2] * 25)
    assert said(SCENE, {"id": ids, "label": label}) == []


@given(
    st.lists(
        st.tuples(st.integers(-1, 4), st.sampled_from([-100, 0, 1, 2])), min_size=1, max_size=60
    ),
    st.sampled_from([np.int64, np.float32, np.float16, np.int16]),
)
def test_shares_are_those_of_a_plain_loop(rows, dtype):
    ids, label = (np.array(column, dtype) for column in zip(*rows, strict=True))
    found = counted(SCENE, objects.function, {"id": ids, "label": label})
    shares, early, two = {}, set(), {}
    for name in sorted({i for i, _ in rows} - {-1}):
        mine = [c for i, c in rows if i == name]
        known = [c for c in mine if c != -100]
        counts = {c: known.count(c) for c in sorted(set(known))}
        shares[name] = max(counts.values()) / len(known) if known else 1.0
        if shares[name] < 1:
            two[name] = sorted(counts, key=counts.get, reverse=True)[:2]
            early |= {name} if mine[0] != two[name][0] else set()
    assert found["objects"] == len(shares)
    assert found["mixed"] == [sum(s < limit for s in shares.values()) for limit in PURITY]
    assert found["first"] == [sum(shares[name] < limit for name in early) for limit in PURITY]
    worst = sorted(two, key=shares.get)
    assert found["purity"] == [*(shares[name] for name in worst), *[1.0] * (WORST - len(worst))]
    assert found["between"] == [
        *(c for name in worst for c in two[name]),
        *[0] * (2 * (WORST - len(worst))),
    ]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_labels_that_are_no_numbers_are_left_to_others(value):
    ids = np.array([0.0, 1.0, value])
    codes = {code for code, *_ in said(SCENE, {"id": ids, "label": np.ones(3)})}
    assert codes <= {"DC221", "DC403"}


def test_huge_and_sparse_ids_are_counted_too():
    found = counted(
        SCENE,
        objects.function,
        {"id": np.array([5, 1 << 40, 1 << 40, -1]), "label": np.array([1, 1, 2, 3])},
    )
    assert (found["objects"], found["purity"][0], found["worst_id"]) == (2, 0.5, 1 << 40)


# -------------------------------------------------------------------------------------- annotations

TOLD = SCENE + "  told: {role: captions, annotates: id}\nloader: {drop_classes: [9]}\n"


def test_annotation_is_compared_both_ways_and_dropped_classes_need_none():
    ids, label = np.repeat([0, 1, 2, 3], 5), np.repeat([1, 1, 9, -100], 5)
    found = counted(
        TOLD, objects.function, {"id": ids, "label": label, "told": {"1": "a", "2": "b", "8": "c"}}
    )
    assert [found[f"told:{s}"] for s in ("told", "absent", "bare", "wanted")] == [3, 1, 1, 2]


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({str(i): "x" for i in range(10)}, []),
        ({str(i): "x" for i in range(9)}, []),  # one of ten is allowed
        ({str(i): "x" for i in range(8)}, [("DC408", "bare", "warning", [0])]),
        ({str(i): "x" for i in range(11)}, [("DC408", "orphan", "warning", [0])]),
        ({}, [("DC408", "bare", "warning", [0])]),
    ],
)
def test_one_absent_id_is_too_many_and_a_tenth_may_go_without(told, wanted):
    sample = {"id": np.repeat(np.arange(10), 3), "label": np.ones(30, int), "told": told}
    assert said(TOLD, sample) == wanted


def test_ids_of_an_array_and_of_a_list_are_read_and_boxes_are_counted():
    sample = {"id": np.repeat([3, 4], 3), "label": np.ones(6, int)}
    array = SCENE + "  who: {role: id, shape: [N], annotates: id}\n"
    assert counted(array, objects.function, sample | {"who": np.array([3, 9])})["who:absent"] == 1
    many = SCENE + "  box: {role: boxes, shape: [N, 6], annotates: id}\n"
    for count, wanted in ((1, (0, 1)), (2, (0, 0)), (5, (3, 0))):
        box = np.tile([0, 0, 0, 1, 1, 1.0], (count, 1))
        found = counted(many, objects.function, sample | {"box": box})
        assert (found["box:absent"], found["box:bare"]) == wanted


GROUPS = """
fields: {s: {role: segment, shape: [P]}, g: {role: id, dtype: json, annotates: s, optional: true}}
rules: {DC412: off}
"""


def group(*segments, label="chair"):
    return {"id": 0, "objectId": 0, "segments": list(segments), "label": label}


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.uint16])
@pytest.mark.parametrize(
    ("told", "kinds"),
    [
        ([], []),
        ([group()], []),
        ([group(3, 40)], []),
        ([group(3), group(40, 7)], []),
        ([3, 7], []),
        ([group(3), group(3, label="table")], []),  # ScanNet++ has several labels of one thing
        ([group(3, 8)], [("orphan", None)]),
        ([3, 8], [("orphan", None)]),
        ([group(3, 8), group(9)], [("orphan", "other-scene")]),
        ([group(8)], [("orphan", "other-scene")]),
        ([group(3, 7), group(7, 3)], [("repeated", None)]),
        ([{"segments": 3}, {"id": 1}, "x", None, [3]], []),
        ({"1": "a thing"}, [("orphan", "other-scene")]),
    ],
)
def test_groups_name_segments_that_are_there_once(told, kinds, dtype):
    schema = schema_of(GROUPS)
    pieces = [("", Piece("s0", {"s": np.array([3, 3, 40, 7], dtype), "g": told}, Origin("")))]
    found = judged(schema, measured(schema, pieces)).findings
    assert [
        (f.kind, f.cause.kind if f.cause else None) for f in found if f.code == "DC408"
    ] == kinds
    assert {f.code for f in found} <= {"DC408"}


def test_groups_of_scenes_without_vertices_or_of_another_length_are_no_crash():
    told = [group(3)]
    assert ("DC408", "orphan", "warning", [0]) in said(
        GROUPS, {"s": np.zeros(0, np.int64), "g": told}
    )
    both = GROUPS.replace("{s:", "{x: {role: points, shape: [P, 3]}, s:")
    found = said(
        both, {"x": np.random.default_rng(0).normal(size=(9, 3)), "s": np.array([0, 1]), "g": told}
    )
    # The wrong file: what its groups name is not judged
    assert {code for code, *_ in found} == {"DC123"}


# ------------------------------------------------------------------------------------- ground truth

TRUTH = SCENE + "  gt: {role: ground_truth, shape: [P], encodes: [label, id], optional: true}\n"


def test_the_ground_truth_of_ignored_points_follows_the_same_formula():
    ids, label = np.array([-100, -1, 0, 7]), np.array([-100, 3, 3, 4])
    schema = TRUTH.replace("[-1]", "[-1, -100]")
    assert (
        said(schema, {"id": ids, "label": label, "gt": np.array([-100099, 3000, 3001, 4008])}) == []
    )


@pytest.mark.parametrize(
    ("gt", "kind"),
    [
        ([3001, 4002, 5004, 3001], "class"),
        ([3001, 4002, 3009, 3001], "instance"),
        ([3000, 4001, 3003, 3000], "offset"),
        ([4002, 3001, 3004, 3001], "order"),
        ([9001, 8017, 9004, 7009], "other"),
    ],
)
def test_how_the_ground_truth_differs_is_named(gt, kind):
    sample = {"id": np.array([0, 1, 3, 0]), "label": np.array([3, 4, 3, 3]), "gt": np.array(gt)}
    assert [f for f in said(TRUTH, sample) if f[0] == "DC411"] == [("DC411", kind, "error", [0])]


def test_an_id_of_999_does_not_fit_and_hides_what_follows():
    for top, codes in ((998, []), (999, ["DC410"])):
        ids, label = np.array([0, top]), np.array([1, 1])
        assert [
            c for c, *_ in said(TRUTH, {"id": ids, "label": label, "gt": label * 1000 + ids + 1})
        ] == codes
        assert [c for c, *_ in said(TRUTH, {"id": ids, "label": label, "gt": label})] == (
            codes or ["DC411"]
        )
        assert said(TRUTH, {"id": ids, "label": label}) == []  # nothing encodes it


def test_lengths_that_differ_and_empty_scenes_are_not_compared():
    ids, label = np.array([0, 1]), np.array([1, 1])
    assert [c for c, *_ in said(TRUTH, {"id": ids, "label": label, "gt": np.array([1001])})] == [
        "DC123"
    ]
    nothing = {"id": np.zeros(0, int), "label": np.zeros(0, int), "gt": np.zeros(0, int)}
    assert counted(TRUTH, truth.function, nothing)["gt:wrong"] == 0


# ------------------------------------------------------------------------------------------ boxes

BOXES = (
    "fields: {box: {role: boxes, shape: [N, 7], encloses: xyz}, xyz: {role: points, shape: [P, 3]}}"
)


def kinds(box, xyz=None):
    xyz = np.array([[0.0, 0, 0], [0.9, 0, 0], [5, 5, 5]]) if xyz is None else xyz
    found = counted(BOXES, boxes.function, {"box": np.array(box, float), "xyz": xyz})
    return [found[f"box:{s}"] for s in ("boxes", "zero", "flat", "nan", "empty", "first")]


def test_each_kind_of_bad_box_is_counted_once():
    sound = [0, 0, 0, 1, 1, 1, 0.3]
    assert kinds([sound]) == [1, 0, 0, 0, 0, -1]
    bad = [[0] * 7, [0, 0, 0, 1, -1, 1, 0], [0, 0, 0, 1, 1, 1, np.nan], [9, 9, 9, 1, 1, 1, 0]]
    assert kinds([sound, *bad]) == [5, 1, 1, 1, 1, 1]


def test_a_turned_box_holds_what_lies_along_its_axis():
    long = [0.3, 0.3, 0, 2, 0.2, 1, np.pi / 4]
    diagonal = np.array([[0.8, 0.8, 0.0]])
    assert kinds([long], diagonal)[4] == 0
    assert kinds([[*long[:6], -np.pi / 4]], diagonal)[4] == 0  # whichever way yaw is counted
    assert kinds([[*long[:6], 0.0]], diagonal)[4] == 1


@pytest.mark.parametrize("count", [3, 50_000])
def test_the_last_of_many_points_is_found_in_its_box(count):
    xyz = np.full((count, 3), 50.0)
    xyz[-1] = 0.2
    assert kinds([[0, 0, 0, 1, 1, 1, 0]], xyz)[4] == 0
    xyz[-1] = 0.7
    assert kinds([[0, 0, 0, 1, 1, 1, 0]], xyz)[4] == 1


def test_empty_boxes_are_a_warning_and_sizes_of_zero_an_error():
    xyz = np.array([[0.0, 0, 0], [0.9, 0, 0], [0, 0.5, 0.2]])
    sound, far = [0, 0, 0, 1, 1, 1, 0.1], [9, 9, 9, 1, 1, 1.2, 0]
    rows = [
        {"box": np.array(b, float), "xyz": xyz + i}
        for i, b in enumerate([[sound], [sound, far], [[0.0] * 7]])
    ]
    rows[0]["xyz"] = xyz
    rows[1]["xyz"] = xyz * 1.01
    assert said(BOXES, *rows) == [
        ("DC409", "zero", "error", [2]),
        ("DC409", "empty", "warning", [1]),
    ]


def test_axes_exchanged_in_boxes_without_points_are_named():
    places = np.array([[4.0, 0, 1], [8, 2, 1], [12, -3, 1], [9, 6, 1.5]])
    boxes_ = [[*place, 1, 1, 1, 0.2] for place in places]
    wrong = [[*place[[0, 2, 1]], 1, 1, 1, 0.2] for place in places]
    scenes = [
        ("", Piece(f"s{i}", {"box": np.array(b), "xyz": places + 0.01 * i}, Origin("")))
        for i, b in enumerate([boxes_] * 5 + [wrong])
    ]
    schema = schema_of(BOXES)
    (finding,) = [f for f in judged(schema, measured(schema, scenes)).findings if f.code == "DC409"]
    assert (finding.kind, finding.cause.kind, finding.cause.explains) == ("empty", "exchanged", 1)
    assert finding.cause.text.startswith("y and z of the centres exchanged")


TWO = """
fields:
  image: {role: image, shape: [H, W, 3]}
  csv: {role: boxes, shape: [N, 4], unit: px, pixels_of: image}
  xml: {role: boxes, shape: [M, 4], unit: px, pixels_of: image, box_format: xywh}
rules: {DC803: off, DC804: off, DC126: off}
"""


def two_annotations(count, change, differing):
    """Return the findings of pictures of two boxes each, some of whose XML is changed."""
    rng = np.random.default_rng(2)
    rows = []
    for i in range(count):
        low = rng.uniform(5, 20, (2, 2)).round()
        size = rng.uniform(25, 40, (2, 2)).round()
        xml = np.hstack([low, size])[::-1]  # in another order, from 0 where the other counts from 1
        xml = change(xml) if i in differing else xml
        corners = np.hstack([low, low + size]) + 1
        rows.append({"image": np.zeros((80, 90, 3), np.uint8), "csv": corners, "xml": xml})
    schema = schema_of(TWO)
    pieces = [("", Piece(f"s{i:02}", row, Origin(""))) for i, row in enumerate(rows)]
    found = judged(schema, measured(schema, pieces)).findings
    return [
        (f.cause.kind if f.cause else "", f.rows.tolist())
        for f in found
        if f.kind == "contradictory"
    ]


def test_two_annotations_of_a_picture_are_the_same_boxes_where_they_are_in_most():
    def moved(boxes):
        return boxes + np.array([4, 0, 0, 0])

    assert two_annotations(12, moved, {}) == []
    assert two_annotations(12, moved, {3, 7}) == [("", [3, 7])]
    assert two_annotations(12, lambda boxes: boxes[:1], {5}) == [("", [5])]
    assert two_annotations(12, moved, set(range(7))) == []  # such as predictions
    assert two_annotations(8, moved, {1}) == []  # seven are the same: too few


def test_pictures_without_a_box_say_nothing_about_two_annotations():
    """Faces in 8 of 40 pictures and plates in 6 others: no box of one is in the other."""
    box = np.array([[10.0, 10.0, 40.0, 40.0]])
    rows = [
        {
            "image": np.zeros((80, 90, 3), np.uint8),
            "csv": box if i < 8 else box[:0],
            "xml": box if 8 <= i < 14 else box[:0],
        }
        for i in range(40)
    ]
    schema = schema_of(TWO)
    pieces = [("", Piece(f"s{i:02}", row, Origin(""))) for i, row in enumerate(rows)]
    found = judged(schema, measured(schema, pieces)).findings
    assert [f.kind for f in found if f.kind == "contradictory"] == []


def test_width_and_height_that_were_converted_twice_are_named():
    def written_twice(boxes):  # as corners, a width is taken from x_max once more
        return np.hstack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]])

    assert two_annotations(20, written_twice, {2, 9}) == [("sides", [2, 9])]


def test_boxes_as_shares_of_their_picture_among_boxes_in_pixels_are_named():
    schema = """
fields:
  i: {role: image, shape: [H, W, 3]}
  b: {role: boxes, shape: [N, 4], unit: px, pixels_of: i}
duplicates: {exact: off}
"""
    picture = np.zeros((48, 64, 3), np.uint8)
    rows = [
        {"i": picture, "b": np.array([[3.0, 4, 30, 40], [0, 0, 1, 1]])},
        {"i": picture, "b": np.array([[0.1, 0.1, 0.6, 0.9]])},
        # A picture of 2 by 2 pixels
        {"i": np.zeros((2, 2, 3), np.uint8), "b": np.array([[0.0, 0, 1, 1]])},
    ]
    found = [f for f in said(schema, *rows) if f[0] == "DC409"]
    assert found == [("DC409", "normalised", "error", [1])]


@pytest.mark.parametrize(
    ("form", "unit", "box", "told"),
    [
        # Of a picture of 40 by 20 pixels: x 10..30, y 4..16, and the same moved 30 to the right.
        ("xyxy", "px", [10, 4, 30, 16], None),
        ("xyxy", "px", [40, 4, 60, 16], "outside"),
        ("xywh", "px", [10, 4, 20, 12], None),
        ("xywh", "px", [25, 4, 20, 12], "edge"),
        ("xywh", "px", [25, 4, 0, 12], "flat"),
        ("cxcywh", "px", [20, 10, 20, 12], None),
        ("cxcywh", "px", [50, 10, 20, 12], "outside"),
        ("cxcywh", "px", [20, 10, -20, 12], "flat"),
        ("cxcywh", "1", [0.5, 0.5, 0.5, 0.6], None),
        ("cxcywh", "1", [0.9, 0.5, 0.5, 0.6], "edge"),
        ("cxcywh", "1", [1.2, 0.5, 0.5, 0.6], "outside"),
        ("cxcywh", "1", [20, 10, 20, 12], "pixels"),
        ("cxcywh", "1", [200, 100, 20, 12], "outside"),
        ("xyxy", "1", [0.25, 0.2, 0.75, 0.8], None),
        ("xyxy", "1", [0, 0, 1.02, 1], None),  # less than a pixel
        ("xyxy", "1", [0, 0, 1.03, 1], "edge"),
    ],
)
def test_boxes_of_each_format_are_held_against_their_picture(form, unit, box, told):
    schema = f"""
fields:
  i: {{role: image, shape: [H, W, 3]}}
  b: {{role: boxes, shape: [N, 4], unit: {unit!r}, box_format: {form}, pixels_of: i}}
"""
    rng = np.random.Generator(np.random.Philox(8))
    sound = {"xyxy": [10, 4, 30, 16], "xywh": [10, 4, 20, 12], "cxcywh": [20, 10, 20, 12]}
    fraction = np.array([40, 20, 40, 20]) if unit == "1" else 1
    rows = [
        {
            "i": rng.integers(0, 255, (20, 40, 3), dtype=np.uint8),
            "b": np.array([np.array(numbers, float)]),
        }
        for numbers in (np.array(sound[form]) / fraction, box)
    ]
    found = [f[:2] + f[3:] for f in said(schema, *rows) if f[0] == "DC409"]
    assert found == ([] if told is None else [("DC409", told, [1])])


def test_one_odd_number_among_fractions_is_not_told_as_pixels():
    schema = """
fields:
  i: {role: image, shape: [H, W, 3]}
  b: {role: boxes, shape: [N, 4], unit: "1", box_format: cxcywh, pixels_of: i}
"""
    sound = [[0.5, 0.5, 0.2, 0.2], [0.3, 0.6, 0.1, 0.1]]
    rng = np.random.Generator(np.random.Philox(9))
    rows = [
        {"i": rng.integers(0, 255, (20, 40, 3), dtype=np.uint8), "b": np.array(boxes, float)}
        for boxes in (sound, [*sound, [5.0, 0.5, 0.2, 0.2]])
    ]
    assert [f[1] for f in said(schema, *rows) if f[0] == "DC409"] == ["outside"]


AREAS = """
fields:
  b: {role: boxes, shape: [N, 4], unit: px, areas: a}
  a: {shape: [N]}
duplicates: {exact: off}
"""


def with_areas(box, area):
    return {"b": np.array([box], float), "a": np.array([area], float)}


def test_boxes_whose_area_is_that_of_their_numbers_as_corners_are_named():
    # x 10..30, y 20..50: 20 by 30 pixels. Read as corners that began as x, y, width, height.
    good, corners = with_areas([10, 20, 30, 50], 600), with_areas([10, 20, 40, 70], 600)
    assert said(AREAS, *[good] * 7, corners) == [("DC414", "corners", "error", [7])]
    assert said(AREAS, *[good] * 8) == []
    assert said(AREAS, *[corners] * 8) == [("DC414", "corners", "error", list(range(8)))]
    # Of outlines, one that happens to have that area is no evidence.
    outline = with_areas([10, 20, 30, 50], 400)
    assert said(AREAS, *[outline] * 7, corners) == []
    # Too few boxes
    assert said(AREAS, *[good] * 5, corners) == []


def test_an_area_that_does_not_fit_into_its_box_is_named():
    fitting = with_areas([0, 0, 20, 30], 500)
    border = with_areas([0, 0, 20, 30], 22 * 32)
    beyond = with_areas([0, 0, 20, 30], 22 * 32 + 1)
    assert said(AREAS, fitting, border, beyond) == [("DC414", "large", "warning", [2])]


def test_areas_of_another_count_than_the_boxes_and_without_a_number_are_not_judged():
    schema = AREAS.replace("a: {shape: [N]}", "a: {shape: [M], finite: false}")
    rows = [
        {"b": np.array([[0.0, 0, 2, 2]]), "a": np.array([99.0, 99.0])},
        {"b": np.array([[0.0, 0, 2, 2], [0, 0, 1, 1]]), "a": np.array([np.nan, 0.0])},
    ]
    assert said(schema, *rows) == []


# ------------------------------------------------------------------------------- masks and segments


@pytest.mark.parametrize(
    ("share", "wanted"), [("", []), (", share: 0.2..0.6", [("DC407", "share", "warning", [2])])]
)
def test_masks_are_held_to_the_declared_share(share, wanted):
    rows = [{"m": np.arange(10) < n} for n in (2, 6, 7)]
    assert said(f"fields: {{m: {{role: mask, shape: [P]{share}}}}}", *rows) == wanted


def test_a_few_empty_masks_are_odd_but_not_where_most_are():
    schema = "fields: {m: {role: mask, shape: [P]}}\nduplicates: {exact: off}"
    some, none = {"m": np.array([1, 0, 1])}, {"m": np.zeros(3, int)}
    assert said(schema, some, some, none) == [("DC407", "empty", "warning", [2])]
    assert said(schema, some, none, none) == []
    assert said(schema, some, some, {"m": np.zeros(0, int)}) == []


@pytest.mark.parametrize(
    ("values", "dtype", "kind"),
    [
        ([0, 1, 2], np.float32, None),
        ([0, 1, -1], np.int64, None),
        ([1, 2], np.int64, "gaps"),
        ([0, 1 << 25], np.float32, "float"),
        ([0, 1 << 25], np.int64, "gaps"),
        ([0, 4096], np.float16, "float"),
    ],
)
def test_segments_are_numbered_from_zero_and_told_apart(values, dtype, kind):
    schema = "fields: {s: {role: segment, shape: [P]}}"
    found = said(schema, {"s": np.array(values, dtype)})
    assert found == ([] if kind is None else [("DC412", kind, "warning", [0])])


def test_segments_without_numbers_have_no_row():
    values = [np.array([0.0, np.nan]), np.zeros(0), np.array([-1.0]), np.array([0.0, 1.0])]
    found = segments.function(Column.of(values), FieldSpec(role="segment"))
    assert found["distinct"].present.tolist() == [False, False, False, True]


@pytest.mark.parametrize("width", [64.25, 1e300])
def test_a_size_that_a_field_states_is_told_as_it_differs(width):
    fields = {
        "i": {"role": "image", "shape": ["H", "W", 3]},
        "s": {"role": "value", "shape": [2], "pixels_of": "i"},
    }
    pieces = [
        (
            "",
            Piece(
                f"s{n}",
                {"i": np.full((48, 64, 3), n, np.uint8), "s": np.array([stated, 48.0])},
                Origin(f"{n}.npz"),
            ),
        )
        for n, stated in enumerate([64.0, width, 64.0])
    ]
    (message,) = (
        f.message
        for f in scan_pieces(schema_of({"fields": fields}), pieces).findings
        if f.code == "DC111"
    )
    assert message.endswith(f": {width:g} x 48 where the picture has 64 x 48 pixels.")
