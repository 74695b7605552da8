"""Planted faults are found, whatever part of the samples has them, with the right factor; clean data are left alone."""

import numpy as np
import pytest

from datacheck.model.sample import Origin, Piece
from datacheck.rules.skeletons import SKELETONS
from tests.rules.harness import codes, hand, judged, measured, schema_of

GRASPED = "fields: {xyz: {role: points, shape: [P, 3], unit: m, size: 0.02..0.6}}"
ROOMS = "fields: {xyz: {role: points, shape: [P, 3], unit: m, size: 0.5..80}}"
HANDS = """
samples: {files: "*", group: "{seq}"}
fields:
  j: {role: joints, shape: [21, 3], unit: m, skeleton: mano21_ho3d, frame: camera_opengl, centered: no,
      distance: 0.2..1.5}
"""


def clouds(count, low, high, seed=0):
    """Clouds whose diagonals are log-uniform within the range."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(np.log(low), np.log(high), count))
    return [rng.uniform(-0.5, 0.5, (60, 3)) * s / np.sqrt(3) + [1.0, 0.3, 0.2] for s in sizes]


def pieces(arrays, field="xyz", groups=None):
    groups = groups or [""] * len(arrays)
    return [
        ("", Piece(f"s{i:05d}", {field: array}, Origin(""), group))
        for i, (array, group) in enumerate(zip(arrays, groups, strict=True))
    ]


def only(found, code):
    """The one finding, which must have this code, and the keys that it names."""
    assert codes(found) == [code]
    (finding,) = found.findings
    return finding


def victims(count, share):
    """Which samples are broken: `share` of them, at least 3, spread over all."""
    chosen = np.zeros(count, bool)
    chosen[np.unique(np.linspace(0, count - 1, max(3, round(share * count))).astype(int))] = True
    return chosen


@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
@pytest.mark.parametrize(("factor", "kind"), [(1000, "mm"), (100, "cm"), (1 / 0.0254, "in")])
@pytest.mark.parametrize(("schema", "low", "high"), [(GRASPED, 0.06, 0.3), (ROOMS, 3, 20)])
def test_a_wrong_unit_is_found_in_every_sample_that_has_it(schema, low, high, factor, kind, share):
    bad = victims(300, share)
    arrays = [c * (factor if b else 1) for c, b in zip(clouds(300, low, high), bad, strict=True)]
    schema = schema_of(schema)
    finding = only(judged(schema, measured(schema, pieces(arrays))), "DC201")
    # a room of 3 m in inches is still a room of 118 "m" and so out of range; grasps in inches and
    # cm may swap names
    assert finding.rows.tolist() == np.flatnonzero(bad).tolist()
    named = {finding.kind, *(text.split("(")[1].rstrip(")") for text in finding.cause.alternatives)}
    assert kind in named
    assert finding.cause.factor is None or finding.cause.factor == pytest.approx(1 / factor)
    assert finding.cause.explains is None or finding.cause.explains >= 0.9 * bad.sum()


def test_factors_that_fit_equally_well_are_all_named():
    schema = schema_of(GRASPED.replace("0.02..0.6", "0.02..2.0"))
    found = judged(schema, measured(schema, pieces([c * 100 for c in clouds(20, 0.1, 0.3)])))
    finding = only(found, "DC201")
    assert (finding.kind, finding.cause.factor) == ("", None)
    assert finding.cause.alternatives == ("x0.01 (cm)", "x0.0254 (in)")  # x0.3048: 3 to 9 m
    assert finding.cause.text.startswith(
        "not clear: x0.01 (cm) and x0.0254 (in) bring 20 of 20 into range"
    )


def test_no_cause_is_named_where_no_factor_helps():
    schema = schema_of(GRASPED)
    arrays = clouds(20, 0.1, 0.3)
    arrays[3] = arrays[3] * 7.3e6
    finding = only(judged(schema, measured(schema, pieces(arrays))), "DC201")
    assert (finding.cause, finding.kind) == (None, "")


@pytest.mark.parametrize("seed", range(10))
def test_clean_sizes_raise_nothing_with_or_without_a_range(seed):
    rng = np.random.default_rng(seed)
    arrays = [
        c * s
        for c, s in zip(
            clouds(200, 1, 1.0001, seed), rng.lognormal(np.log(0.15), 0.4, 200), strict=True
        )
    ]
    for text in (
        "fields: {xyz: {role: points, shape: [P, 3], unit: m, size: 0.01..2}}",
        "fields: {xyz: {role: points, shape: [P, 3], unit: m}}",
    ):
        schema = schema_of(text)
        assert codes(judged(schema, measured(schema, pieces(arrays)))) == []


@pytest.mark.parametrize("factor", [1000, 100])
@pytest.mark.parametrize("share", [0.01, 0.3])
def test_two_units_are_found_without_a_range(factor, share):
    bad = victims(300, share)
    rng = np.random.default_rng(3)
    sizes = rng.lognormal(np.log(0.15), 0.25, 300) * np.where(bad, factor, 1)
    arrays = [c * s for c, s in zip(clouds(300, 1, 1.0001), sizes, strict=True)]
    schema = schema_of("fields: {xyz: {role: points, shape: [P, 3], unit: m}}")
    finding = only(judged(schema, measured(schema, pieces(arrays))), "DC203")
    assert finding.rows.tolist() == np.flatnonzero(bad).tolist()
    assert finding.cause.factor == factor


@pytest.mark.parametrize(
    ("sizes", "apart", "found"),
    [
        # twenty percent either way, whatever the numbers
        ([1.0] * 40, 1190, True),
        ([1.0] * 40, 1250, False),
        # sizes of 0.25 to 4 have a spread of 0.8 (log): the median of four is uncertain by more
        # than that
        (np.geomspace(0.25, 4, 40), 1480, True),
        (np.geomspace(0.25, 4, 40), 1520, False),
    ],
)
def test_few_samples_of_various_sizes_leave_room_for_the_factor(sizes, apart, found):
    cube = np.array(np.meshgrid([0, 1], [0, 1], [0, 1])).reshape(3, -1).T / np.sqrt(3)
    sizes = [*sizes, *[apart * float(np.median(sizes))] * 4]
    schema = schema_of("fields: {xyz: {role: points, shape: [P, 3], unit: m}}")
    answer = judged(schema, measured(schema, pieces([cube * size for size in sizes])))
    assert [f.rows.tolist() for f in answer.findings if f.code == "DC203"] == [
        [40, 41, 42, 43]
    ] * found


@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_degrees_among_radians_are_found(share):
    rng = np.random.default_rng(4)
    bad = victims(100, share)
    arrays = [rng.uniform(-2.5, 2.5, (50, 7)) * (57.29578 if b else 1) for b in bad]
    schema = schema_of("fields: {q: {role: joint_angle, shape: [T, 7], unit: rad}}")
    finding = only(judged(schema, measured(schema, pieces(arrays, "q"))), "DC202")
    assert finding.rows.tolist() == np.flatnonzero(bad).tolist()
    assert (finding.kind, finding.cause.explains) == ("deg", bad.sum())


def sequence(seed, frames=60, **options):
    """Frames of one sequence as G's hand moves, in view of an OpenGL camera."""
    rng = np.random.default_rng(seed)
    return list(
        hand(rng, frames, root=(*rng.uniform(-0.15, 0.05, 2), -rng.uniform(0.45, 0.7)), **options)
    )


def hands(sequences):
    frames = [frame for s in sequences for frame in s]
    groups = [f"g{i}" for i, s in enumerate(sequences) for _ in s]
    schema = schema_of(HANDS)
    return judged(schema, measured(schema, pieces(frames, "j", groups)))


def films(sequences):
    """Each sequence as one sample [T, 21, 3], as it is cut for models that see several steps."""
    schema = schema_of(HANDS.replace("[21, 3]", "[T, 21, 3]"))
    arrays = [np.stack(one) for one in sequences]
    return judged(
        schema, measured(schema, pieces(arrays, "j", [f"g{i}" for i in range(len(arrays))]))
    )


@pytest.mark.parametrize("seed", range(30))
def test_hands_that_move_raise_nothing(seed):
    scales = np.random.default_rng(seed).uniform(0.85, 1.15, 2)
    sequences = [sequence(100 * seed + i, scale=float(s)) for i, s in enumerate(scales)]
    for found in (hands(sequences), films(sequences)):
        assert codes(found) == []
        assert {v.code for v in found.verdicts if v.verdict == "pass"} >= {
            "DC201",
            "DC301",
            "DC303",
            "DC601",
            "DC602",
            "DC605",
        }


FAULTS = {
    "millimetres": (lambda s: [f * 1000 for f in s], "DC201", "mm"),
    "centimetres": (lambda s: [f * 100 for f in s], "DC201", "cm"),
    "root-relative": (lambda s: [f - f[0] for f in s], "DC301", "root"),
    "mean-centred": (lambda s: [f - f.mean(axis=0) for f in s], "DC301", "centroid"),
    # Or the root was subtracted twice
    "opencv": (lambda s: [f * [1, -1, -1] for f in s], "DC303", ""),
    "copies": (lambda s: [np.repeat(f[:1], 21, axis=0) for f in s], "DC602", ""),
}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", sorted(FAULTS))
def test_each_fault_of_a_sequence_has_its_own_code_and_no_other(name, whole):
    change, code, kind = FAULTS[name]
    sequences = [sequence(i) for i in range(3)]
    sequences = [change(s) if whole or i == 1 else s for i, s in enumerate(sequences)]
    finding = only(hands(sequences), code)
    assert finding.kind == kind
    assert finding.failed == (180 if whole else 60)
    finding = only(films(sequences), code)
    assert finding.kind == kind
    assert finding.rows.tolist() == ([0, 1, 2] if whole else [1])


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("tips", "the tips of pinky, ring are permuted"),
        ("rolled", "the tips of index, middle, pinky, ring, thumb are permuted"),
        ("openpose", "they are in the order mano21_openpose"),
        ("complete", "ring and pinky are swapped"),
        ("mano", "they are in the order mano21"),
        ("chains", "the chains of ring and pinky are swapped, their tips are not"),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_another_order_of_joints_is_found_and_named(order, words, seed):
    finding = only(hands([sequence(seed), sequence(seed + 50, order=order)]), "DC605")
    assert words in finding.message
    assert finding.rows.tolist() == list(range(60, 120))
    taken = finding.measured["taken"]  # what is printed puts the joints right
    assert (
        codes(hands([sequence(seed), [f[taken] for f in sequence(seed + 50, order=order)]])) == []
    )
    film = only(films([sequence(seed), sequence(seed + 50, order=order)]), "DC605")
    assert (film.message.partition(": ")[2], film.measured, film.rows.tolist()) == (
        finding.message.partition(": ")[2],
        finding.measured,
        [1],
    )


def test_a_short_sequence_is_not_judged_by_rigidity_but_by_lengths():
    found = hands([sequence(1, frames=20, order="tips")])
    verdict = next(v for v in found.verdicts if v.code == "DC605")
    # Too short to name the order, not to see bones change
    assert (verdict.verdict, codes(found)) == ("skip", ["DC601"])
    assert "fewer than 50 frames" in "; ".join([verdict.why, *verdict.unseen])
    assert codes(hands([sequence(1, frames=20, order="complete")])) == ["DC605"]


def test_a_stretched_frame_is_named_within_its_sequence():
    frames = sequence(7)
    frames[5] = frames[5].copy()
    frames[5][17] += [0.0, 0.02, 0.0]
    finding = only(hands([frames]), "DC601")
    assert finding.rows.tolist() == [5]
    finding = only(films([sequence(1), frames]), "DC601")
    assert (finding.kind, finding.rows.tolist()) == ("step", [1])
    assert "has steps that differ from the others in the length of a bone" in finding.message


def test_a_sequence_of_which_no_frame_has_the_usual_lengths_is_named():
    frames = [f[:1] + (f - f[:1]) * s for f, s in zip(sequence(8), [0.7, 1.4] * 30, strict=True)]
    finding = only(hands([frames]), "DC601")
    assert (finding.severity, finding.kind, finding.failed) == ("error", "frame", 60)


def test_bones_that_drift_within_a_sequence_are_a_warning():
    frames = [
        f[:1] + (f - f[:1]) * s
        for f, s in zip(sequence(8), np.linspace(0.97, 1.03, 60), strict=True)
    ]
    finding = only(hands([frames]), "DC601")
    assert (finding.severity, finding.failed) == ("warning", 60)
    finding = only(films([sequence(1), frames]), "DC601")
    assert (finding.severity, finding.kind, finding.rows.tolist()) == ("warning", "sequence", [1])


def test_sequences_too_short_to_judge_and_skeletons_that_are_none_are_not_passed():
    found = films([sequence(1, frames=20, order="tips"), sequence(2, frames=60)])
    verdict = next(v for v in found.verdicts if v.code == "DC605")
    assert (
        verdict.checked,
        "fewer than 50 frames" in "; ".join([verdict.why, *verdict.unseen]),
    ) == (1, True)
    schema = schema_of(HANDS.replace("shape: [21, 3], ", "").replace("distance: 0.2..1.5", ""))
    blocks = [np.stack([np.stack(sequence(i, frames=3))] * 2) for i in range(3)]  # (2, 3, 21, 3)
    found = judged(
        schema, measured(schema, pieces([one * 1000 for one in blocks], "j", ["a", "b", "c"]))
    )
    for code in ("DC201", "DC601", "DC605"):
        verdict = next(v for v in found.verdicts if v.code == code)
        assert (verdict.verdict, verdict.checked) == ("skip", 0), code
        assert "no whole skeletons of 21 joints" in "; ".join([verdict.why, *verdict.unseen])


def test_one_bad_sample_of_many_is_enough():
    arrays = clouds(50, 0.1, 0.3)
    arrays[20] = arrays[20] * 1000
    schema = schema_of(GRASPED)
    finding = only(judged(schema, measured(schema, pieces(arrays))), "DC201")
    assert (finding.examples, finding.cause.factor, finding.cause.explains) == (
        ("s00020",),
        0.001,
        1,
    )
    assert "few samples" in finding.cause.text


@pytest.mark.parametrize("mark", [-1.0, -1000.0])
def test_the_marks_of_dexycb_are_marks_whatever_else_they_break(mark):
    frames = sequence(3)
    frames[7] = np.full((21, 3), mark)
    finding = only(hands([frames]), "DC222")
    assert (finding.severity, finding.rows.tolist()) == ("error", [7])


def test_orders_of_joints_are_permutations_of_one_another():
    for one in SKELETONS.values():
        assert len(one.pairs) <= 64
        for other in one.others:
            there, back = one.taken_from(other), other.taken_from(one)
            assert sorted(there) == list(range(21))
            assert [there[back[j]] for j in range(21)] == list(range(21))


def test_a_rule_of_which_nothing_was_measured_passes_nobody():
    schema = schema_of(
        "fields: {n: {role: normal, shape: [P, 3]}, s: {role: normal, shape: [T, P, 3]}}"
    )
    normal = np.random.default_rng(0).normal(size=(40, 3))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    steps = np.stack([normal] * 2)
    both = [("", Piece(str(i), {"n": normal, "s": steps}, Origin(""))) for i in range(3)]
    one = [("", Piece(str(i), {"s": steps}, Origin(""))) for i in range(3)]
    told = []
    for samples in (both, one):
        own = (
            schema
            if samples is both
            else schema_of("fields: {s: {role: normal, shape: [T, P, 3]}}")
        )
        verdict = next(v for v in judged(own, measured(own, samples)).verdicts if v.code == "DC311")
        told.append((verdict.verdict, verdict.checked, verdict.why))
    assert told == [("pass", 3, ""), ("skip", 0, "no sample holds what it judges")]


WIDE = "fields: {a: {role: action, shape: [T, SIZE]}}"


def robots(size, steps=400):
    """Episodes of a robot of so many dimensions: number 20 never moves, number 30 is clipped."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(5):
        values = rng.normal(0, 100, (steps, size))
        values[:, 20] = 0.25
        values[:, 30] = np.minimum(values[:, 30], 150)
        found.append(values)
    return found


def test_dimensions_of_a_humanoid_are_judged_one_by_one():
    schema = schema_of(WIDE.replace("SIZE", "34"))
    answer = judged(schema, measured(schema, pieces(robots(34), "a")))
    flat, clipped = (
        next(f for f in answer.findings if f.code == code) for code in ("DC223", "DC225")
    )
    assert flat.measured["dimensions"] == [20]
    # 6.7 % are beyond 1.5 sd
    assert clipped.message.startswith("6.") or clipped.message.startswith("7.")
    assert "% of dimension 30 at 150 exactly" in clipped.message


def test_a_thousand_dimensions_are_judged_one_by_one():
    schema = schema_of(WIDE.replace("SIZE", "1000"))
    answer = judged(schema, measured(schema, pieces(robots(1000, 16), "a")))
    (flat,) = (finding for finding in answer.findings if finding.code == "DC223")
    assert flat.message == "dimension 20 (always 0.25) of 1000 in 5 samples: no change at all."
    assert {v.code: (v.verdict.value, v.why) for v in answer.verdicts if v.code == "DC225"} == {
        "DC225": ("skip", "more than 64 dimensions")
    }


@pytest.mark.parametrize("dtype", ["i1", "i2", "f2"])
def test_dimensions_of_small_numbers_that_use_their_whole_range_move(dtype):
    rng = np.random.default_rng(0)
    found = [rng.integers(-128, 128, (20, 100)).astype(dtype) for _ in range(5)]
    if dtype == "i2":
        found = [rng.integers(-(2**15), 2**15, (20, 100), dtype=np.int16) for _ in range(5)]
    schema = schema_of(WIDE.replace("SIZE", "100"))
    assert not [
        f
        for f in judged(schema, measured(schema, pieces(found, "a"))).findings
        if f.code == "DC223"
    ]


def test_a_sample_has_its_dimensions_whatever_lies_beside_it():
    schema = schema_of(WIDE.replace("SIZE", "100"))
    samples = [np.zeros((0, 100)), *robots(100, 16)[:2], *[np.zeros((0, 100))] * 40]
    (flat,) = (
        f
        for f in judged(schema, measured(schema, pieces(samples, "a"))).findings
        if f.code == "DC223"
    )
    assert flat.message == "dimension 20 (always 0.25) of 100 in 2 samples: no change at all."


def test_a_few_long_samples_do_not_speak_for_all():
    schema = schema_of(WIDE.replace("SIZE", "100"))
    samples = [
        *robots(100, 16),
        *[np.random.default_rng(1).normal(size=(15, 100)) for _ in range(5)],
    ]
    answer = judged(schema, measured(schema, pieces(samples, "a")))
    assert not [f for f in answer.findings if f.code == "DC223"]
    assert [v.verdict.value for v in answer.verdicts if v.code == "DC223"] == ["skip"]


@pytest.mark.parametrize(("size", "steps"), [(65, 15), (4_097, 16)])
def test_what_cannot_be_judged_one_by_one_is_not_passed(size, steps):
    schema = schema_of(WIDE.replace("SIZE", str(size)))
    answer = judged(schema, measured(schema, pieces(robots(size, steps), "a")))
    verdicts = {
        v.code: (v.verdict.value, v.why) for v in answer.verdicts if v.code in {"DC223", "DC225"}
    }
    few = (
        "more than 64 dimensions are judged one by one up to 4,096, in samples of 16 rows and "
        "more, and as far as "
    )
    assert verdicts == {
        "DC223": ("skip", few + "memory allows"),
        "DC225": ("skip", "more than 64 dimensions"),
    }
