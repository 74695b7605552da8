"""Time, streams, videos and commands of episodes: both sides of each limit, by arithmetic."""

from dataclasses import replace
from itertools import groupby
from timeit import timeit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.model.sample import Column, Origin, Piece, stack
from datacheck.rules.families.episodes import commands, timing
from datacheck.rules.families.motion import LAGS, lags, speed
from datacheck.rules.families.statistics import course
from datacheck.rules.families.streams import DARK, ending, frames, frozen
from datacheck.rules.series import RUNS, least_run, long_runs, runs, steps
from datacheck.scan.run_documents import ranges
from datacheck.schema.model import FieldSpec
from tests.rules.harness import judged, measured, schema_of


def said(schema, *samples, groups=None):
    """Return the findings of samples given as mappings of fields."""
    schema = schema_of(schema)
    pieces = [
        ("", Piece(f"s{i:03d}", sample, Origin(""), (groups or [""] * len(samples))[i]))
        for i, sample in enumerate(samples)
    ]
    return judged(schema, measured(schema, pieces)).findings


def brief(findings, code):
    return [(f.kind, f.severity.value, f.rows.tolist()) for f in findings if f.code == code]


# ----------------------------------------------------------------------------------- runs and steps


@given(st.lists(st.lists(st.booleans(), max_size=12), min_size=1, max_size=5))
def test_runs_are_those_of_a_plain_loop(samples):
    count = np.array([len(s) for s in samples])
    flags = np.array([flag for s in samples for flag in s], bool)
    expected = []
    for i, s in enumerate(samples):
        at = 0
        while at < len(s):
            end = at
            while end < len(s) and s[end] == s[at]:
                end += 1
            if s[at]:
                expected.append((i, int(count[:i].sum()) + at, end - at))
            at = end
    found = runs(flags, count)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected
    total = long_runs(found[0], found[2], len(samples))
    for place, least in enumerate(RUNS):
        per = [sum(n for s, _, n in expected if s == i and n >= least) for i in range(len(samples))]
        assert total[:, place].tolist() == per


@pytest.mark.parametrize(
    ("seconds", "fps", "wanted"),
    [(0.5, 20, 10), (1, 30, 30), (0.5, 15, 6), (1, None, 20), (1, 0.3, 1)],
)
def test_a_pause_is_at_most_as_long_as_asked(seconds, fps, wanted):
    assert RUNS[least_run(seconds, fps, 20)] == wanted


def test_steps_do_not_run_from_one_sample_into_the_next():
    column = Column.of(
        [np.array([[0.0], [1.0], [3.0]]), np.array([[100.0]]), np.array([[7.0], [5.0]])]
    )
    change, count = steps(column, np.array([True, False, True]))
    assert (change.tolist(), count.tolist()) == ([[1.0, 2.0, -2.0]], [2, 0, 1])


# ------------------------------------------------------------------------------- windows and groups

WINDOWS = "fields: {a: {role: action, shape: [T, 2]}}\nwindows: {length: 64}"


def demos(*lengths):
    return [{"a": np.random.default_rng(i).normal(size=(n, 2))} for i, n in enumerate(lengths)]


def test_lost_starts_are_counted_and_emptied_groups_named():
    found = said(WINDOWS, *demos(500, 63, 64, 20), groups=["x", "y", "x", "y"])
    (short,) = [f for f in found if f.kind == "short"]
    assert (short.rows.tolist(), short.measured["groups"]) == ([1, 3], ["y"])
    assert "1 group without any: y" in short.message
    (lost,) = [f for f in found if f.kind == "lost-starts"]
    assert lost.measured == {
        "share": 438 / 647,
        "starts": 437 + 1,
        "steps": 647,
        "lost": 63 + 63 + 63 + 20,
    }
    (collapse,) = [f for f in found if f.code == "DC509"]
    assert (collapse.kind, collapse.severity, collapse.measured["groups"]) == (
        "emptied",
        "error",
        {"y": [2, 2]},
    )


def test_eighty_percent_of_starts_are_enough():
    for steps_, kinds in ((315, []), (314, ["lost-starts"])):  # 252 of 315 are 80 %
        assert [f.kind for f in said(WINDOWS, *demos(steps_))] == kinds


def test_starts_are_not_lost_where_no_episode_has_any():
    assert [f.kind for f in said(WINDOWS, *demos(20, 30)) if f.code == "DC501"] == ["short"]


def test_an_episode_without_steps_gives_no_window_even_with_padding():
    found = said(WINDOWS.replace("64", "64, pad: edge"), {"a": np.zeros((0, 2))}, *demos(20, 30))
    assert brief(found, "DC501") == [("empty", "error", [0])]


@pytest.mark.parametrize(("short", "kinds"), [(1, []), (2, []), (3, ["thinned"]), (4, ["emptied"])])
def test_half_of_a_task_may_be_left_out(short, kinds):
    lengths = [10] * short + [500] * (4 - short) + [500] * 12
    found = said(WINDOWS, *demos(*lengths), groups=["t"] * 4 + ["u"] * 12)
    assert [f.kind for f in found if f.code == "DC509"] == kinds


# ------------------------------------------------------------------------------------------ clocks

CLOCK = "fields: {t: {role: timestamp, shape: [T], unit: UNIT}}\nepisode: {fps: 20}"


@pytest.mark.parametrize(
    ("step", "unit", "kind"),
    [
        (0.05, "s", None),
        (0.0509, "s", None),
        (0.0511, "s", ""),
        (50.0, "ms", None),
        (50.0, "s", "ms"),
        (5e7, "s", "ns"),
        (0.05, "ms", "s"),
        (0.1, "s", "thinned"),
        (0.025, "s", "denser"),
    ],
)
def test_the_rate_is_one_over_the_median_step(step, unit, kind):
    times = step * np.arange(30)
    told = said(CLOCK.replace("UNIT", unit), {"t": times})
    if kind in {"s", "ms", "ns"}:  # the unit is the cause, and only that is told
        assert (brief(told, "DC503"), brief(told, "DC206")) == ([], [(kind, "error", [0])])
    else:
        assert brief(told, "DC503") == ([] if kind is None else [(kind, "warning", [0])])
        assert brief(told, "DC206") == []


def test_times_of_one_step_or_none_have_no_rate():
    found = timing.function(Column.of([np.array([1.0]), np.zeros(0)]), FieldSpec(role="timestamp"))
    assert not found["step"].present.any()


# -------------------------------------------------------------------------- idle and empty commands

IDLE = """
fields: {a: {role: action, shape: [T, 3]}, q: {role: joint_angle, shape: [T, 2]}}
episode: {fps: 20, max_idle: 20%}
"""


def arm(pause, length=100, start=40):
    at = np.concatenate([np.arange(start), np.full(pause, start), np.arange(start, length - pause)])
    return np.cumsum(np.random.default_rng(3).uniform(0.5, 1, (length, 2)), axis=0)[at]


def moves(length=100):
    return np.random.default_rng(4).normal(size=(length, 3))


@pytest.mark.parametrize(
    ("pauses", "wanted"), [([19], []), ([21], ["no-op"]), ([9, 9, 9], []), ([11, 11], ["no-op"])]
)
def test_pauses_count_from_half_a_second_on(pauses, wanted):
    still = np.zeros(100, bool)
    at = 5
    for pause in pauses:
        still[at : at + pause] = True
        at += pause + 10
    path = np.cumsum(
        np.where(still[:, None], 0.0, np.random.default_rng(3).uniform(0.5, 1, (100, 2))), axis=0
    )
    act = np.where(still[:, None], 0.0, moves())
    found = [
        f
        for f in said(IDLE, {"a": act, "q": path})
        if f.code == "DC504" and f.severity == "warning"
    ]
    assert [f.cause.kind for f in found if f.cause] == wanted


def moved(still):
    """Return a path of one row more than there are steps, of which some are still."""
    step = np.where(
        np.asarray(still)[:, None], 0.0, np.random.default_rng(3).uniform(0.5, 1, (len(still), 2))
    )
    return np.concatenate([np.zeros((1, 2)), np.cumsum(step, axis=0)])


def left(still, least=10, most=8):
    """Return the ranges of rows that are left without the longest pauses, by a plain loop."""
    pauses, at = [], 0
    for held, run in groupby(still):
        steps = len(list(run))
        pauses += [(steps, at)] if held and steps >= least else []
        at += steps
    out = set()
    for steps, first in sorted(pauses, key=lambda pause: -pause[0])[:most]:
        end = first + steps
        out |= set(range(first + 1 if first else 0, end + 1 if end == len(still) else end))
    rows = [row not in out for row in range(len(still) + 1)]
    bounds = np.flatnonzero(np.diff([False, *rows, False])).reshape(-1, 2)
    return bounds.tolist()


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 4)), min_size=1, max_size=14),
    st.integers(0, 30),
)
def test_an_idle_episode_is_left_in_the_ranges_between_its_pauses(parts, tail):
    still = np.array(
        [s for pause, moving in parts for s in [True] * pause + [False] * moving] + [True] * tail
    )
    schema = IDLE.replace("max_idle: 20%", "max_idle: 1%")
    found = [
        f
        for f in said(schema, {"a": np.ones((len(still) + 1, 3)), "q": moved(still)})
        if f.code == "DC504"
    ]
    (told,) = ranges(f for f in found if f.severity == "warning").values() or [
        [[0, len(still) + 1]]
    ]
    assert told == left(still.tolist())


def test_of_an_episode_that_never_moves_nothing_is_left_and_of_one_that_moves_enough_nothing_is_said():
    act, lively = np.ones((100, 3)), moved([False] * 99)
    found = said(
        IDLE,
        {"a": act, "q": np.zeros((100, 2))},
        {"a": act, "q": lively},
        {"a": act, "q": lively * 1e-5},
    )
    assert ranges(f for f in found if f.code == "DC504") == {0: [], 2: []}


def test_what_two_findings_say_of_an_episode_is_all_to_hold():
    (found,) = (f for f in said(IDLE, {"a": moves(), "q": arm(50)}) if f.code == "DC504")
    other = replace(found, ranges=np.array([[[10, 20], [30, 45], [95, 95]]]))
    assert ranges([found]) == {0: [[0, 41], [90, 100]]}
    assert ranges([found, other]) == ranges([other, found]) == {0: [[10, 20], [30, 41]]}


def test_a_robot_that_does_not_follow_its_commands_is_stuck():
    (found,) = [f for f in said(IDLE, {"a": moves(), "q": arm(50)}) if f.code == "DC504"]
    assert (found.cause.kind, found.measured["inside"], found.measured["start"]) == ("stuck", 50, 0)
    held = moves()
    held[40:91] = held[40]  # an absolute command that stays asks for nothing
    (found,) = [f for f in said(IDLE, {"a": held, "q": arm(50)}) if f.code == "DC504"]
    assert found.cause.kind == "no-op"


def test_a_command_is_none_where_all_is_zero_and_the_gripper_stays():
    act = np.concatenate([np.random.default_rng(0).normal(size=(10, 3)), np.ones((10, 1))], axis=1)
    act[2:6, :3] = 0.0
    act[4:, 3] = -1.0  # the gripper opens at step 4: that is a command
    found = commands.function(Column.of([act]), FieldSpec(role="action"))
    assert found["noop"].values[0] == pytest.approx(3 / 10)
    bang = np.where(np.arange(20)[:, None] % 7 < 3, -1.0, 1.0)
    assert not commands.function(Column.of([bang]), FieldSpec(role="action"))["noop"].present[0]


# ------------------------------------------------------------------------------------ speed and lag


def test_the_farthest_and_the_most_isolated_step():
    x = np.array([0.0, 1.0, 2.0, 3.0, 9.0, 10.0, 11.0])[:, None]
    found = speed.function(Column.of([x, x[:2]]), FieldSpec(role="joint_angle"))
    assert [found[n].values[0] for n in ("leap", "leap_at", "lone")] == [6.0, 3, 5.0]
    assert found["leap"].present.tolist() == [True, False]


def test_positions_move_by_distances_and_rotations_by_angles():
    place = np.array([[0, 0, 0], [3, 4, 0], [3, 4, 0], [3, 4, 12.0]])
    assert speed.function(Column.of([place]), FieldSpec(role="position"))["leap"].values[0] == 12.0
    # 3.1 and -3.1 are 0.083 rad apart
    near = np.array([[0, 0, 3.1], [0, 0, -3.1], [0, 0, -3.0], [0, 0, -2.9]])
    found = speed.function(Column.of([near]), FieldSpec(role="rotvec", unit="rad"))
    assert found["leap"].values[0] == pytest.approx(0.1, abs=1e-6)
    degrees = speed.function(Column.of([np.rad2deg(near)]), FieldSpec(role="rotvec", unit="deg"))
    assert degrees["leap"].values[0] == pytest.approx(np.rad2deg(0.1), abs=1e-4)


def test_max_speed_is_allowed_and_a_little_more_is_not():
    schema = (
        "fields: {q: {role: joint_angle, shape: [T, 1], unit: rad, max_speed: 2.0}}\nepisode: "
        "{fps: 10}"
    )
    for step, wanted in ((0.2, []), (0.21, [("speed", "warning", [0])])):
        q = np.array([0, 0.1, 0.2, 0.2 + step, 0.3 + step, 0.4 + step])[:, None]
        assert brief(said(schema, {"q": q}), "DC505") == wanted
    wrapped = np.array([3.0, 3.1, -3.1, -3.0, -2.9])[:, None]
    (found,) = [f for f in said(schema, {"q": wrapped}) if f.code == "DC505"]
    assert found.cause.kind == "wrap"


def walk(jump, *, after=0.0):
    """Return nine steps of 1, then one of `jump`, then one of 1 + `after` and nine of 1."""
    steps = np.array([1.0] * 9 + [jump, 1.0 + after] + [1.0] * 9)
    return np.concatenate([[0.0], steps.cumsum()])[:, None] * [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("jumps", "beside", "wanted"),
    [
        # The excesses of 200 tracks in steps of a millionth to 1 have one spacing each of about
        # log(k + 1) - log(k); four of 40 beyond a gap of log(40) x 4 = 14.8 are no chance.
        ([41] * 4, 0, [(196, 200)]),
        ([41] * 4, 30, []),  # the step beside is nearly as large: fast, but no jump
        ([1.9] * 4, 0, []),  # no gap
        ([41] * 11, 0, []),  # more than a twentieth
    ],
)
def test_few_tracks_jump_beyond_a_gap_above_many_others_of_any_spread(jumps, beside, wanted):
    """Half of all people stand still, so a deviation of the logarithm alone shows nothing."""
    usual = 1 + 1e-6 ** (np.arange(200 - len(jumps)) / 200)
    tracks = [walk(step) for step in usual] + [walk(step, after=beside) for step in jumps]
    schema = "fields: {p: {role: position, shape: [T, 2]}}"
    found = brief(said(schema, *({"p": track} for track in tracks)), "DC505")
    assert found == [("jump", "warning", list(range(*rows))) for rows in wanted]


@pytest.mark.parametrize(
    ("others", "length", "wanted"),
    [
        ([25.0] * 3, 9, [37, 38, 39]),
        ([25.0] * 2, 9, []),  # too few
        ([25.0] * 5, 9, []),  # an eighth
        ([10.1] * 3, 9, []),  # 1 % is within the tolerance
        ([25.0] * 3, 8, []),  # seven steps
    ],
)
def test_few_samples_with_another_time_step_are_named_without_a_declared_rate(
    others, length, wanted
):
    clocks = [np.arange(20) * 10.0] * (40 - len(others))
    clocks += [np.arange(length) * step for step in others]
    schema = "fields: {t: {role: timestamp, shape: [T]}}"
    found = brief(said(schema, *({"t": clock} for clock in clocks)), "DC503")
    assert found == ([("step", "warning", wanted)] if wanted else [])


def test_clocks_without_one_step_have_no_rate_to_compare():
    rng = np.random.default_rng(0)
    clocks = [{"t": np.cumsum(rng.uniform(0.5, 2, 20))} for _ in range(40)]
    clocks += [{"t": np.arange(20.0) * 50}] * 3
    assert brief(said("fields: {t: {role: timestamp, shape: [T]}}", *clocks), "DC503") == []


@pytest.mark.parametrize("kind", ["delta", "absolute"])
@pytest.mark.parametrize("lag", [-2, 0, 1, 4])
def test_the_lag_is_found_by_correlation(kind, lag):
    rng = np.random.default_rng(lag + 9)
    asked = rng.normal(size=(120, 2))
    path = np.cumsum(asked, axis=0) if kind == "delta" else asked
    late = np.roll(path, lag, axis=0)[6:-6]
    schema = schema_of(
        "fields: {a: {role: action, shape: [T, 2], drives: q}, q: {role: position, shape: [T, 2]}}"
    )
    (block,) = stack([Piece("s", {"a": asked[6:-6], "q": late}, Origin(""))])
    found = lags.function(block, schema)[f"a:{kind}"].values[0]
    assert LAGS[int(np.argmax(found))] == lag
    assert found.max() == pytest.approx(1.0, abs=0.05)
    a, change = asked[6:-6], np.diff(late, axis=0)
    if lag == 0 and kind == "delta":
        r = np.mean([np.corrcoef(a[1:, k], change[:, k])[0, 1] for k in range(2)])
        assert found[LAGS.index(0)] == pytest.approx(r)


def test_commands_that_nothing_follows_have_no_lag():
    rng = np.random.default_rng(0)
    schema = (
        "fields: {a: {role: action, shape: [T, 2], drives: q, lag: 0}, q: {role: position, "
        "shape: [T, 2]}}"
    )
    rows = [
        {"a": rng.normal(size=(90, 2)), "q": np.cumsum(rng.normal(size=(90, 2)), axis=0)}
        for _ in range(5)
    ]
    assert brief(said(schema, *rows), "DC507") == []
    still = [{"a": rng.normal(size=(90, 2)), "q": np.full((90, 2), 0.1 * i)} for i in range(5)]
    assert brief(said(schema, *still), "DC507") == []


def test_path_jerk_and_end_are_sums_and_differences():
    walk = np.array([[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 2], [1, 2, 3.0]])
    schema = schema_of(
        "fields: {at: {role: position, shape: [T, 3]}, a: {role: action, shape: [T, 1]}}"
    )
    samples = [
        Piece(k, {"at": v, "a": v[:, :1]}, Origin(""))
        for k, v in (("a", walk), ("b", walk[:3]), ("c", -walk))
    ]
    (block,) = stack(samples)
    found = course.function(block, schema)
    third = np.diff(walk, n=3, axis=0)
    assert found["path"].values.tolist() == [6.0, 0.0, 6.0]
    assert found["jerk"].values[[0, 2]] == pytest.approx(np.sqrt((third**2).sum(axis=1).mean()))
    assert found["path"].present.tolist() == [True, False, True]
    assert found["end"].values[2].tolist() == [-1, -2, -3]


# -------------------------------------------------------------------------- videos, pictures, marks

VIDEO = "fields: {a: {role: action, shape: [T, 2]}, cam: {role: video}}\nepisode: {fps: 10}"


@pytest.mark.parametrize(
    ("times", "kind", "cause"),
    [
        (np.arange(50) / 10, None, None),
        (np.arange(49) / 10, "frames", "one"),
        (np.arange(40) / 10, "frames", None),
        (np.arange(100) / 20, "frames", "rate"),
        (np.arange(50) / 10 * 1.02, None, None),
        (np.arange(50) / 10 * 1.03, "drift", "rate"),
        (np.zeros(0), "frames", None),
    ],
)
def test_a_video_has_a_frame_for_each_row_and_lasts_as_long(times, kind, cause):
    found = [
        f
        for f in said(VIDEO, {"a": np.random.default_rng(0).normal(size=(50, 2)), "cam": times})
        if f.code == "DC508"
    ]
    assert [(f.kind, f.cause.kind if f.cause else None) for f in found] == (
        [] if kind is None else [(kind, cause)]
    )


@pytest.mark.parametrize(
    ("dtype", "white"), [(np.uint8, 255), (np.uint16, 65_535), (np.float32, 1.0)]
)
def test_brightness_is_measured_on_one_scale(dtype, white):
    film = np.zeros((4, 2, 2, 3))
    film[1], film[2], film[3] = 0.02, 0.5, 0.9
    film[1:, 0, 0, 0] = 0.001
    found = frames.function(
        Column.of([(white * film).astype(dtype)]), FieldSpec(role="image", shape=("T", 2, 2, 3))
    )
    mean = 255 * film.reshape(4, -1).mean(axis=1)
    assert found["dark"].values[0].tolist() == [int((mean < level).sum()) for level in DARK]
    assert (found["flat"].values[0], found["first_dark"].values[0]) == (1, 0)


def test_a_picture_is_one_frame_and_normalised_floats_are_left_alone():
    single = [np.full((3, 4, 3), 9, np.uint8), np.arange(36, dtype=np.uint8).reshape(3, 4, 3)]
    found = frames.function(Column.of(single), FieldSpec(role="image", shape=("H", "W", 3)))
    assert (found["frames"].values.tolist(), found["flat"].values.tolist()) == ([1, 1], [1, 0])
    films = [
        np.random.default_rng(0).normal(size=(5, 4, 4, 3)),
        np.full((5, 4, 4, 3), 0.9),
        np.full((1, 4, 4, 3), 9.0),
    ]
    found = frames.function(Column.of(films), FieldSpec(role="image", shape=("T", 4, 4, 3)))
    # Each by its own scale: -1..1, 0..1, 0..255
    assert found["dark"].present.tolist() == [False, True, True]


def test_pictures_of_several_heights_are_looked_at_each_on_its_own():
    pictures = [
        np.full((height, 4, 3), value, np.uint8) for height, value in ((3, 9), (5, 1), (0, 7))
    ]
    pictures[0][0, 0, 0] = 10
    found = frames.function(Column.of(pictures), FieldSpec(role="image", shape=("H", "W", 3)))
    assert found["frames"].present.tolist() == [True, True, False]
    assert (found["flat"].values[:2].tolist(), found["first_dark"].values[:2].tolist()) == (
        [0, 1],
        [-1, 0],
    )


@pytest.mark.parametrize(
    ("done", "kind"),
    [
        ([0, 0, 0, 1], None),
        ([0, 0, 0, 0], "never"),
        ([0, 1, 0, 1], "early"),
        ([0, 1, 0, 0], "early"),
        ([0, 0, 1, 1], "long"),
        ([1], None),
    ],
)
def test_the_mark_of_the_end_stands_at_the_end(done, kind):
    for dtype in (np.uint8, bool, np.float32):
        found = said("fields: {d: {role: done, shape: [T]}}", {"d": np.array(done, dtype)})
        assert [f.kind for f in found if f.code == "DC512"] == ([] if kind is None else [kind])


def test_a_reward_may_be_zero_throughout_and_is_judged_only_where_it_is_sparse():
    sparse = "fields: {r: {role: reward, shape: [T], values: [0, 1]}}"
    assert brief(said(sparse, {"r": np.zeros(5)}), "DC512") == []
    assert brief(said(sparse, {"r": np.array([0, 1, 0, 0, 0.0])}), "DC512") == [
        ("early", "warning", [0])
    ]
    assert (
        brief(
            said("fields: {r: {role: reward, shape: [T]}}", {"r": np.array([0, 1, 0, 0, 0.0])}),
            "DC512",
        )
        == []
    )
    assert not ending.function(Column.of([np.zeros(0)]), FieldSpec(role="done"))["set"].present[0]


# ----------------------------------------------------------------------------------- frozen streams

FROZEN = """
fields: {q: {role: joint_angle, shape: [T, 2]}, s: {role: value, shape: [T, 6]}}
episode: {fps: 10}
"""


def stream(start, length, rows=100):
    at = np.arange(rows)
    at[start : start + length] = start
    return np.random.default_rng(5).normal(size=(rows, 6))[at]


@pytest.mark.parametrize(
    ("length", "robot", "dtype", "wanted"),
    [
        (11, True, np.float64, [("frozen", "warning", [0])]),  # ten steps of a tenth of a second
        (10, True, np.float64, []),
        (11, False, np.float64, []),  # nothing moves: no wonder
        (11, True, np.int64, []),  # whole numbers are labels and counters
        (60, True, np.float64, []),  # it mostly stands still: that is how it is
    ],
)
def test_a_stream_is_frozen_for_a_second_while_the_robot_moves(length, robot, dtype, wanted):
    q = np.cumsum(np.random.default_rng(6).uniform(0.5, 1, (100, 2)), axis=0)
    if not robot:
        q[30:60] = q[30]
    sample = {"q": q, "s": (100 * stream(35, length)).astype(dtype)}
    assert brief(said(FROZEN, sample), "DC506") == wanted


def test_of_hundreds_of_streams_a_few_are_compared():
    """Each of 400 was compared with all others: 16 seconds for one episode of 20 rows."""
    names = [f"f{i:03d}" for i in range(400)]
    schema = schema_of({"fields": {name: {"shape": ["T", 6]} for name in names}})
    rng = np.random.default_rng(5)
    (block,) = stack(
        [Piece("a", {name: rng.normal(size=(20, 6)) for name in names}, Origin("a"), "", {})], ""
    )
    found = {}
    assert timeit(lambda: found.update(frozen.function(block, schema)), number=1) < 2
    assert {name.partition(":")[0] for name in found} == set(names[:64])


def test_joints_in_ticks_of_their_encoders_move_too():
    q = np.cumsum(np.random.default_rng(6).integers(5, 10, (100, 2)), axis=0)
    assert brief(said(FROZEN, {"q": q, "s": stream(35, 11)}), "DC506") == [
        ("frozen", "warning", [0])
    ]


@pytest.mark.parametrize(
    ("episodes", "stopped", "wanted"), [(80, 4, [0, 1, 2, 3]), (80, 5, None), (19, 1, None)]
)
def test_a_stream_may_stop_for_good_in_few_episodes_while_the_action_moves(
    episodes, stopped, wanted
):
    schema = (
        "fields: {action: {role: action, shape: [T, 2]}, s: {shape: [T, 6]}}\nepisode: {fps: 10}"
    )
    rng = np.random.default_rng(7)
    rows = []
    for number in range(episodes):
        s = rng.normal(size=(100, 6))
        s[30:] = s[30] if number < stopped else s[30:]
        rows.append({"action": rng.normal(size=(100, 2)), "s": s})
    found = [f for f in said(schema, *rows) if f.code == "DC506"]
    assert [f.rows.tolist() for f in found] == ([] if wanted is None else [wanted])
    assert all(
        "repeats one row for 6.9 s (median) while action moves, in 4 samples" in f.message
        for f in found
    )
    still = [row | {"action": np.ones((100, 2))} for row in rows]
    assert [f for f in said(schema, *still) if f.code == "DC506"] == []


@pytest.mark.parametrize(("resting", "wanted"), [(1, [0]), (3, [])])
def test_things_that_rest_in_other_episodes_are_no_sensors(resting, wanted):
    """Keypoints of a block that is pushed repeat until it is touched: 3 of 100 steps, where 2 are allowed."""
    schema = (
        "fields: {action: {role: action, shape: [T, 2]}, s: {shape: [T, 6]}}\nepisode: {fps: 10}"
    )
    rng = np.random.default_rng(8)
    rows = []
    for number in range(9):
        s = rng.normal(size=(101, 6))
        start, stop = (30, 60) if number == 0 else (0, resting)
        s[start : stop + 1] = s[start]
        rows.append({"action": rng.normal(size=(101, 2)), "s": s})
    assert [f.rows.tolist() for f in said(schema, *rows) if f.code == "DC506"] == (
        [wanted] if wanted else []
    )


@pytest.mark.parametrize("every", [2, 3000])
def test_one_long_episode_hides_no_sensor_that_stalls(every):
    """One of 3,000 rows at half rate, of 31, outweighed all others by its steps: two stalled sensors were green."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(30):
        s = rng.normal(size=(200, 6))
        if number in {3, 11}:
            s[60:150] = s[60]
        rows.append({"q": np.cumsum(rng.normal(size=(200, 2)), 0), "s": s})
    long = {
        "q": np.cumsum(rng.normal(size=(3000, 2)), 0),
        "s": np.repeat(rng.normal(size=(3000, 6))[::every], every, 0),
    }
    assert brief(said(FROZEN, *rows, long), "DC506") == [("frozen", "warning", [3, 11])]


def test_pictures_beside_a_stream_without_a_role_stop_while_it_moves():
    """All episodes are of one length; there is one observation more than actions."""
    schema = """
    fields: {a: {role: action, shape: [40, 2]}, s: {shape: [41, 3]}, rgb: {role: image, shape: [41, 2, 2, 3]},
             still: {role: image, shape: [5, 2, 2, 3]}}
    """
    rng = np.random.default_rng(8)
    film = rng.integers(50, 200, (41, 2, 2, 3)).astype(np.uint8)
    stopped = film[np.minimum(np.arange(41), 15)]
    moving, rests = rng.normal(size=(41, 3)), np.ones((41, 3))
    rows = [
        {"a": rng.normal(size=(40, 2)), "s": s, "rgb": rgb, "still": film[[n, n, n, n, n]]}
        for n, (s, rgb) in enumerate(
            [(moving, film), (moving + 1, stopped), (rests, stopped), *[(moving, film)] * 2]
        )
    ]
    found = [f for f in said(schema, *rows) if f.code == "DC513"]
    assert [(f.kind, f.rows.tolist()) for f in found] == [("frozen", [1])]
    assert (
        "rgb repeats one row for 25 steps (median) while s moves, in 1 sample" in found[0].message
    )
    assert [f for f in said(schema, *rows[:4]) if f.code == "DC513"] == []  # one of four


def test_black_pictures_and_objects_at_rest_are_not_frozen():
    """A picture of one value is dark (DC511); the velocity of a cube that lies there is 0."""
    schema = """
    fields: {a: {role: joint_angle, shape: [T, 2]}, v: {shape: [T, 6]}, rgb: {role: image, shape: [T, 2, 2, 3]}}
    episode: {fps: 10}
    """
    rng = np.random.default_rng(9)
    film, speed = rng.integers(50, 200, (60, 2, 2, 3)).astype(np.uint8), rng.normal(size=(60, 6))
    row = {"a": rng.normal(size=(60, 2)), "v": speed, "rgb": film}
    late = np.arange(60) >= 30
    rest, black = (
        np.where(late[:, None], 0.0, speed),
        np.where(late[:, None, None, None], 1, film).astype(np.uint8),
    )
    found = said(schema, row, row | {"v": rest}, row | {"rgb": black})
    assert [f.code for f in found if f.code in {"DC506", "DC513"}] == []
    stopped = [row | {"v": np.where(late[:, None], speed[30], speed)}]
    stopped += [row | {"rgb": np.where(late[:, None, None, None], film[30], film)}]
    found = said(schema, row, row, *stopped)
    assert [(f.code, f.rows.tolist()) for f in found if f.code in {"DC506", "DC513"}] == [
        ("DC506", [2]),
        ("DC513", [3]),
    ]


def test_commands_show_no_motion_of_what_a_camera_sees():
    schema = "fields: {a: {role: action, shape: [T, 2]}, rgb: {role: image, shape: [T, 2, 2, 3]}}"
    rng = np.random.default_rng(9)
    film = np.repeat(rng.integers(50, 200, (1, 2, 2, 3)).astype(np.uint8), 60, axis=0)
    assert brief(said(schema, {"a": rng.normal(size=(60, 2)), "rgb": film}), "DC513") == []


def test_a_sample_of_uneven_fields_does_not_hide_its_neighbours():
    q = np.cumsum(np.random.default_rng(6).uniform(0.5, 1, (100, 2)), axis=0)
    rows = [
        {"q": q, "s": stream(35, 11)},
        {"q": q[:-1], "s": stream(1, 1)},
        {"q": 2 * q, "s": stream(2, 1)},
    ]
    assert brief(said(FROZEN, *rows), "DC506") == [("frozen", "warning", [0])]


def test_pictures_that_come_at_half_the_rate_are_repeats():
    schema = (
        "fields: {q: {role: joint_angle, shape: [T, 2]}, rgb: {role: image, shape: [T, 2, 2, "
        "3]}}\nepisode: {fps: 10}"
    )
    rng = np.random.default_rng(0)
    film, q = rng.integers(50, 200, (61, 2, 2, 3)), np.cumsum(rng.uniform(0.5, 1, (61, 2)), axis=0)
    for rate, wanted in ((1, []), (2, []), (3, [("repeats", "warning", [0])])):
        assert (
            brief(said(schema, {"q": q, "rgb": film[rate * (np.arange(61) // rate)]}), "DC513")
            == wanted
        )


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_nanoseconds_since_1970_do_not_stand_still(dtype):
    """As float64 they are multiples of 64 or 256, and steps below that were none."""
    stamps = (1_400_000_000 * 10**9 + np.cumsum(np.arange(40) % 7 + 1)).astype(dtype)
    found = timing.function(Column.of([stamps]), FieldSpec(role="timestamp"))
    assert (found["still"].values[0], found["back"].values[0]) == (0, 0)
    assert found["step"].values[0] == np.sort(np.diff(stamps.astype(np.int64)))[19]
