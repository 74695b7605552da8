"""False alarms and bad advice that people met on data of their own."""

import tracemalloc

import numpy as np
import pytest

from datacheck.model.sample import Column, Origin, Piece
from datacheck.model.table import Note
from datacheck.rules.families.episodes import timing
from datacheck.schema.load import load_schema
from datacheck.schema.model import FieldSpec
from datacheck.sources import list_files, plan_work
from tests.trials.base import sample
from tests.trials.memory import scan_pieces, schema_of


def found(schema, samples):
    """Findings by code."""
    answer = scan_pieces(
        schema_of(schema), [sample(f"s{i:03d}", fields) for i, fields in enumerate(samples)]
    )
    return {finding.code: finding for finding in answer.findings}


@pytest.mark.parametrize(
    "call",
    [
        {"role": "assistant", "content": [{"type": "tool_call", "name": "f", "arguments": "{}"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I look"}, {"type": "tool_use", "name": "f"}],
        },
        {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
        },
    ],
)
def test_a_call_may_stand_in_the_parts_of_a_content(call):
    """22 of 50 valid chats were thrown out: "the reply of a tool that nobody called"."""
    chat = [
        {"role": "user", "content": "how warm is it?"},
        call,
        {"role": "tool", "content": "20"},
        {"role": "assistant", "content": "20 degrees"},
    ]
    schema = {"fields": {"chat": {"role": "chat"}}}
    assert "DC706" not in found(schema, [{"chat": chat}] * 3)
    lost = [chat[0], *chat[2:]]
    assert (
        "a tool that nobody called"
        in found(schema, [{"chat": chat}, {"chat": lost}])["DC706"].message
    )


def test_a_clock_that_stands_still_does_not_run_backwards():
    schema = {"fields": {"t": {"role": "timestamp", "shape": ["T"], "unit": "s"}}}
    clocks = [np.arange(20) / 20 for _ in range(3)]
    frozen = np.full(20, 5.0)
    finding = found(schema, [{"t": t} for t in (*clocks, frozen)])["DC502"]
    assert finding.message == "time stands still 19 times in 1 sample."
    assert finding.fix == "Write the time of each row."
    swapped = clocks[0][[0, 2, 1, *range(3, 20)]]
    finding = found(schema, [{"t": t} for t in (*clocks, swapped)])["DC502"]
    assert finding.message == "time runs backwards 1 time in 1 sample."
    assert finding.fix.startswith("Sort the rows")
    answer = scan_pieces(
        schema_of(schema),
        [sample(f"s{i}", {"t": t}) for i, t in enumerate((*clocks, frozen, swapped))],
    )
    kinds = [(f.kind, f.rows.tolist()) for f in answer.findings if f.code == "DC502"]
    assert sorted(kinds) == [("order", [4]), ("still", [3])]


@pytest.mark.parametrize(("gaps", "told"), [(1, True), (9, True), (10, False), (30, False)])
def test_a_clock_of_no_one_rate_has_no_gaps(gaps, told):
    """Traffic counters report when something passes: a third of their steps are long."""
    steps = np.ones(99)
    steps[5 : 5 + 3 * gaps : 3] = 4
    schema = {"fields": {"t": {"role": "timestamp", "shape": ["T"], "unit": "s"}}}
    assert ("DC502" in found(schema, [{"t": np.cumsum([i, *steps])} for i in range(4)])) is told


def test_gaps_are_told_against_the_steps_of_their_own_clocks():
    schema = {"fields": {"t": {"role": "timestamp", "shape": ["T"], "unit": "s"}}}
    clocks = [np.delete(np.arange(99.0) * rate, 40) for rate in (300, 300, 3600)]
    message = found(schema, [{"t": t} for t in clocks])["DC502"].message.replace("\u2009", " ")
    assert (
        message == "3 samples have 3 gaps above 1.5 of their own median steps (300 s to 3,600 s)."
    )
    alone = found(schema, [{"t": t} for t in (*clocks[:2], np.arange(99.0))])[
        "DC502"
    ].message.replace("\u2009", " ")
    assert alone == "2 samples have 2 gaps above 1.5 median steps of 300 s."


@pytest.mark.parametrize(
    ("hours", "told"), [(24, False), (98, False), (100, True), (2_300, True), (9_999, True)]
)
def test_one_long_gap_is_told_by_the_time_that_it_takes(hours, told):
    """Of 17,420 hourly rows 9,999, or 500, were gone: one gap, below the share of gaps."""
    schema = {"fields": {"t": {"role": "timestamp", "shape": ["T"], "unit": "s"}}}
    rows = np.delete(np.arange(20_000) * 3600, np.s_[5_000 : 5_000 + hours])
    answer = found(schema, [{"t": rows}, {"t": np.arange(20_000) * 3600}])
    assert ("DC502" in answer) is told
    if told:
        share = round(100 * hours / 19_999)
        ends = f", which take up to {share}% of the time." if share > 10 else "."
        assert answer["DC502"].message.endswith(f" 100 median steps of 3,600 s{ends}")


def test_a_jump_among_shorter_gaps_is_told_with_them():
    schema = {"fields": {"t": {"role": "timestamp", "shape": ["T"], "unit": "s"}}}
    rows = np.delete(np.arange(20_000.0), [7, 9, *range(500, 800)])
    message = found(schema, [{"t": rows}, {"t": np.arange(20_000.0)}])["DC502"].message
    assert message.replace("\u2009", " ") == (
        "1 sample has 3 gaps above 1.5 median steps of 1 s, 1 of them above 100."
    )
    schema["rules"] = {"DC502": {"jump": 1000}}
    assert "DC502" not in found(schema, [{"t": rows}, {"t": np.arange(20_000.0)}])


def test_the_gaps_of_millions_of_steps_take_little_memory():
    """Eleven ratios at once took 100 bytes for each step: a file of 9 million time stamps exceeded its limit."""
    column = Column.of([np.arange(1_000_000, dtype=np.int64) * 1_000_000])
    tracemalloc.start()
    timing.function(column, FieldSpec(role="timestamp"))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 80 * 1_000_000


def test_a_goal_that_stands_still_was_not_clipped():
    """A goal pose is constant in each episode: the largest one fills a whole episode, and nobody clipped it."""
    rng = np.random.default_rng(0)
    schema = {"fields": {"a": {"role": "action", "shape": ["T", 2]}}}
    goals = [np.column_stack([np.full(200, rng.normal()), rng.normal(size=200)]) for _ in range(10)]
    assert "DC225" not in found(schema, [{"a": goal} for goal in goals])
    clipped = [np.minimum(goal, [9, 1.0]) for goal in goals]
    assert (
        "% of dimension 1 at 1 exactly"
        in found(schema, [{"a": a} for a in clipped])["DC225"].message
    )


@pytest.mark.parametrize(
    ("factor", "severity", "kind"),
    [(1000, "error", "mm"), (100, "error", "cm"), (1 / 512, "warning", None)],
)
def test_what_is_far_beyond_all_others_is_more_than_information(factor, severity, kind):
    rng = np.random.default_rng(1)
    schema = {
        "fields": {"x": {"role": "points", "shape": ["P", 3], "unit": "m"}},
        "rules": {"DC203": "off", "DC227": "off"},
    }
    clouds = [rng.uniform(-0.5, 0.5, (50, 3)) * rng.uniform(0.9, 1.1) for _ in range(60)]
    clouds[7] = clouds[7] * factor
    finding = found(schema, [{"x": cloud} for cloud in clouds])["DC226"]
    assert (finding.severity, finding.rows.tolist()) == (severity, [7])
    assert (finding.cause.kind if finding.cause else None) == kind


def test_what_moved_far_away_is_in_no_other_unit():
    """A path that is as long as the others, a thousand times as far away: no unit did that."""
    rng = np.random.default_rng(5)
    schema = {
        "fields": {"x": {"role": "position", "shape": ["T", 3], "unit": "m"}},
        "rules": {"DC203": "off"},
    }
    paths = [
        [1.0, 0, 0] * rng.uniform(0.9, 1.1, 3) + rng.uniform(-0.2, 0.2, (50, 3)) for _ in range(60)
    ]
    paths[7] = paths[7] + [1000.0, 0, 0]
    finding = found(schema, [{"x": path} for path in paths])["DC226"]
    assert (finding.severity, finding.rows.tolist(), finding.cause) == ("warning", [7], None)
    paths[7] = (paths[7] - [1000.0, 0, 0]) * 1000
    assert found(schema, [{"x": path} for path in paths])["DC226"].cause.kind == "mm"


def test_joints_in_degrees_stand_out_as_degrees():
    rng = np.random.default_rng(2)
    schema = {"fields": {"q": {"role": "joint_angle", "shape": ["T", 7]}}}
    episodes = [rng.uniform(-1, 1, (50, 7)) for _ in range(60)]
    episodes[7] = np.rad2deg(episodes[7])
    finding = found(schema, [{"q": q} for q in episodes])["DC226"]
    assert (finding.severity, finding.cause.kind) == ("error", "deg")


@pytest.mark.parametrize(
    ("lacking", "told"), [(0, False), (1, True), (5, True), (6, False), (12, False)]
)
def test_an_optional_field_that_some_lack_is_a_warning(lacking, told):
    schema = {
        "fields": {
            "a": {"role": "value", "shape": [4]},
            "b": {"role": "value", "shape": [2], "optional": True},
        }
    }
    rng = np.random.default_rng(3)
    samples = [{"a": rng.normal(size=4), "b": rng.normal(size=2)} for _ in range(12)]
    for place in range(lacking):
        del samples[place]["b"]
    findings = found(schema, samples)
    assert ("DC129" in findings) is told
    if told:
        assert (findings["DC129"].severity, findings["DC129"].rows.tolist()) == (
            "warning",
            list(range(lacking)),
        )
        assert found(schema | {"rules": {"DC129": "error"}}, samples)["DC129"].severity == "error"


def profile(rng, curve):
    """A picture whose rows are about as bright as a curve says."""
    rows = np.clip(curve + rng.normal(0, 0.03, 64), 0, 1)
    return (255 * np.repeat(rows[:, None, None], 48, axis=1) * np.ones(3)).astype(np.uint8)


def test_photos_of_many_scenes_are_not_upside_down():
    """20 of 239 photos were: in most of them the sky is above, in some the floor is the brightest."""
    rng = np.random.default_rng(4)
    schema = {"fields": {"i": {"role": "image", "shape": ["H", "W", 3], "dtype": "uint8"}}}
    down = np.linspace(0.9, 0.2, 64)
    one = [profile(rng, down) for _ in range(30)] + [profile(rng, down[::-1]) for _ in range(3)]
    assert found(schema, [{"i": image} for image in one])["DC314"].rows.tolist() == [30, 31, 32]
    bumps = [
        np.interp(np.arange(64), np.linspace(0, 63, 6), rng.uniform(0, 1, 6)) for _ in range(60)
    ]
    photos = [profile(rng, 0.5 * down + 0.5 * bump) for bump in bumps] + [
        profile(rng, down[::-1]) for _ in range(4)
    ]
    assert "DC314" not in found(schema, [{"i": image} for image in photos])


def test_numbers_do_not_repeat_themselves_and_no_phrase_takes_more_than_the_text():
    schema = {"fields": {"t": {"role": "text"}}}
    calibration = "P0: " + " ".join(["7.215377e+02 0.000000e+00 6.095593e+02 0.000000e+00"] * 12)
    assert "DC707" not in found(schema, [{"t": calibration}] * 3)
    loop = "again and " + "again " * 100
    assert "takes up to 100%" in found(schema, [{"t": loop}])["DC707"].message.replace("\u2009", "")
    phrase = " ".join(f"word{number} the very same phrase" for number in range(40))
    message = found(schema, [{"t": phrase}])["DC707"].message
    assert message.startswith(
        "1 sample repeats itself: up to less than 1 % of a text stood in it three times before"
    )


@pytest.mark.parametrize(
    ("lack", "empty", "named"), [(2, 0, 2), (0, 1, 1), (7, 0, None), (7, 1, 1)]
)
def test_companions_that_few_lack_or_that_are_empty_are_a_warning(lack, empty, named):
    """From half of the samples on they are no exception; a file without a byte is no image in any case."""
    rng = np.random.default_rng(6)
    keys = [f"s{i:03d}" for i in range(12)]
    about = {"name": "rgb", "lack": keys[:lack], "empty": keys[lack : lack + empty]}
    schema = schema_of(
        {
            "samples": {"files": "{id}.npy", "companions": {"rgb": "{id}.jpg"}},
            "fields": {"a": {"role": "value"}},
        }
    )
    samples = [sample(key, {"a": rng.normal(size=4)}) for key in keys]
    answer = scan_pieces(schema, samples, [Note("DC129", "{id}.jpg", "", about=about)])
    found = [f for f in answer.findings if f.code == "DC129"]
    assert [(f.severity, len(f.rows), f.kind) for f in found] == (
        [("warning", named, "rgb")] if named else []
    )
    others = f"; {12 - lack - empty} others of the split do."
    assert all(f.message.endswith(others) for f in found)


TASKS = [f"task{i}" for i in range(6)]


def tasks(rng, change):
    """Four episodes of each of six tasks; `change` edits the actions of one of them."""
    found = []
    for task in TASKS:
        for take in range(4):
            action = rng.normal(size=(40, 4))
            action[:, 3] = np.where(action[:, 3] > 0, 1.0, -1.0)
            if task == "task2":
                change(action)
            found.append(sample(f"{task}/{take}", {"a": action}, group=task))
    return found


@pytest.mark.parametrize(
    ("dimension", "value", "named"),
    [(1, 0.25, True), (0, 0.0, True), (3, -1.0, False), (None, 0.0, False)],
)
def test_a_dimension_that_is_dead_in_one_task_is_named(dimension, value, named):
    """All of the dataset was looked at together; a task that never moves an axis was passed. A gripper may rest."""

    def kill(action):
        if dimension is not None:
            action[:, dimension] = value

    schema = schema_of({"fields": {"a": {"role": "action", "shape": ["T", 4]}}})
    samples = tasks(np.random.default_rng(8), kill)
    found = [f for f in scan_pieces(schema, samples).findings if f.code == "DC223"]
    keys = sorted(piece.key for _, piece in samples)
    assert [[keys[i] for i in f.rows] for f in found] == (
        [[f"task2/{i}" for i in range(4)]] if named else []
    )
    if named:
        told = f"dimension {dimension} of 4 never changes in 1 group: task2 (always {value:.3g})"
        assert (found[0].severity, found[0].message) == (
            "warning",
            f"{told}; it moves in the other 5.",
        )


def test_what_stands_still_within_every_episode_may_be_the_same_in_one_task():
    """The place of a goal changes from episode to episode, and in one task it does not."""
    rng = np.random.default_rng(9)
    schema = schema_of({"fields": {"a": {"role": "position", "shape": ["T", 3]}}})
    samples = []
    for task in TASKS:
        for i in range(4):
            goal = [1.0, 2, 3] if task == "task2" else rng.normal(size=3)
            samples.append(sample(f"{task}/{i}", {"a": np.tile(goal, (30, 1))}, group=task))
    assert not [f for f in scan_pieces(schema, samples).findings if f.code == "DC223"]


def test_lines_of_evaluation_that_training_has_are_a_leak():
    """Three kinds in one folder were an error; a chat of one kind is no copy of a text of another."""
    schema = load_schema("minimind")

    def chat(text):
        return [
            {"role": "user", "content": f"what of {text}?"},
            {"role": "assistant", "content": f"that {text} is so"},
        ]

    names = ["red", "blue", "green", "black", "white", "brown"]
    samples = [sample(f"sft:{name}", {"conversations": chat(name)}, split="sft") for name in names]
    samples += [
        sample(f"eval:{name}", {"conversations": chat(name)}, split="sft_eval")
        for name in ("blue", "grey")
    ]
    samples += [
        sample(f"text:{name}", {"text": f"that {name} is so and more"}, split="pretrain")
        for name in names
    ]
    keys = sorted(piece.key for _, piece in samples)
    (finding,) = [f for f in scan_pieces(schema, samples).findings if f.code == "DC801"]
    assert [keys[i] for i in finding.rows] == ["eval:blue"]
    assert finding.message == "sft_eval shares samples with sft: 1 of its 2 samples."
    clean = [pair for pair in samples if pair[1].key != "eval:blue"]
    assert not [
        f
        for f in scan_pieces(schema, clean).findings
        if f.code in {"DC121", "DC129", "DC801", "DC802"}
    ]


def test_a_sampler_that_takes_more_grasps_than_there_are_repeats_them():
    schema = schema_of({"fields": {"g": {"role": "pose", "shape": ["G", 7], "min_points": 64}}})
    samples = [
        sample(f"o{n:03d}", {"g": np.random.default_rng(n).normal(size=(n, 7))})
        for n in (0, 12, 64, 500)
    ]
    found = [f for f in scan_pieces(schema, samples).findings if f.code == "DC124"]
    assert [(f.severity, f.rows.tolist(), f.kind) for f in found] == [
        ("error", [0], "none"),
        ("warning", [1], "repeated"),
    ]
    loose = schema_of({"fields": {"g": {"role": "pose", "shape": ["G", 7]}}})
    assert not [f for f in scan_pieces(loose, samples).findings if f.code == "DC124"]


def test_an_end_of_text_alone_says_nothing_of_chats():
    """13,649 of 13,649 completions that end with <|endoftext|> on purpose "were made from rendered chats"."""
    schema = {"fields": {"t": {"role": "text"}}}
    texts = [f"The answer to question {i} is written here." for i in range(4)]
    finding = found(schema, [{"t": text + "<|endoftext|>"} for text in texts])["DC709"]
    assert (finding.message[:9], finding.cause) == ("4 samples", None)
    rendered = [f"<|im_start|>user\n{text}<|im_end|>" for text in texts[:3]]
    finding = found(schema, [{"t": text} for text in (*rendered, texts[3] + "<|endoftext|>")])[
        "DC709"
    ]
    assert (finding.cause.kind, finding.cause.explains) == ("<|im_start|>", 3)
    assert "DC709" not in found(schema, [{"t": text} for text in texts])


def test_a_rate_of_half_says_nothing_of_rows_that_are_gone():
    """Time stamps that were stretched by 2 look like every second row: "only every 2th row is there"."""
    schema = {
        "episode": {"fps": 20},
        "fields": {"t": {"role": "timestamp", "shape": ["T"], "unit": "s"}},
    }
    finding = found(
        schema, [{"t": np.arange(20) / 20} for _ in range(3)] + [{"t": np.arange(20) / 10}]
    )["DC503"]
    assert finding.cause.text == "one row for 2 steps of the declared rate"
    assert "DC503" not in found(schema, [{"t": np.arange(20) / 20} for _ in range(4)])


@pytest.mark.parametrize(
    ("factor", "spread", "told"), [(100, 1, True), (10, 1, False), (100, 30, False)]
)
def test_numbers_without_a_role_that_are_many_times_as_large_stand_out(factor, spread, told):
    """A confidence in percent, boxes in pixels: `init` drafts a range from what it met, and the range held."""
    schema = {"fields": {"c": {"shape": [], "range": "0..1000"}, "t": {"role": "text"}}}
    values = np.random.default_rng(0).uniform(0.5, 1.0, 60) / np.where(
        np.arange(60) % 7 == 0, spread, 1
    )
    samples = [
        {"c": np.array(v * (factor if i in {3, 40} else 1)), "t": f"text {i}"}
        for i, v in enumerate(values)
    ]
    finding = found(schema, samples).get("DC226")
    assert (finding is not None) == told
    if told:
        assert (finding.failed, finding.severity.value, finding.cause) == (2, "warning", None)
    assert "DC226" not in found(
        schema, [{"c": np.array(v), "t": f"text {i}"} for i, v in enumerate(values)]
    )


def test_samples_whose_fields_are_all_others_are_of_another_kind():
    """Of a folder of motions beside two of characters: "restore" the frames of the characters."""
    names = ("frames", "loop", "bodies", "joints")
    schema = {"fields": {name: {"dtype": "text", "optional": True} for name in names}}
    motions = [{"frames": f"frames {i}", "loop": "wrap"} for i in range(9)]
    characters = [{"bodies": f"bodies {i}", "joints": "hip"} for i in range(3)]

    def missing(samples):
        pieces = [("", Piece(f"s{i:02d}", row, Origin(f"{i}"))) for i, row in enumerate(samples)]
        findings = scan_pieces(schema_of(schema), pieces).findings
        return [(f.failed, f.fields) for f in findings if f.code == "DC129"]

    assert missing(motions + characters) == []
    # A motion without frames has still its loop, and a character without joints its bodies
    assert missing([*motions, {"loop": "wrap"}, *characters]) == [(1, ("frames",))]
    # One sample has fields of both, so they are of one kind
    both = dict.fromkeys(names, "a")
    assert missing([*motions, both, *characters]) == [(3, ("frames", "loop"))]


def test_files_without_a_field_are_another_table():
    """Of a folder with model solutions beside questions: "restore what is missing", once for each of four fields."""
    schema = {
        "samples": {"files": "*.jsonl", "each": "line"},
        "fields": {name: {"role": "text", "optional": name != "q"} for name in ("q", "a", "b")},
    }
    rows = [{"q": f"question {i}", "a": f"answer {i}", "b": f"reason {i}"} for i in range(8)]
    few = [{"q": f"other question {i}"} for i in range(3)]
    files = ["qa.jsonl"] * 8 + ["more.jsonl"] * 3
    every = zip(rows + few, files, strict=True)
    pieces = [("", Piece(f"s{i:02d}", row, Origin(file))) for i, (row, file) in enumerate(every)]
    (finding,) = scan_pieces(schema_of(schema), pieces).findings
    assert (finding.code, finding.failed, finding.fields) == ("DC129", 3, ("a", "b"))
    assert finding.message == (
        "3 samples have no a, b; 8 others of the split do. In 1 file no sample has them: "
        "more.jsonl."
    )
    assert finding.fix.startswith("Scan files of another table separately")
    # A field was lost within the file
    pieces[8] = ("", Piece("s08", rows[0] | {"q": "one more"}, Origin("more.jsonl")))
    (finding,) = [
        one for one in scan_pieces(schema_of(schema), pieces).findings if one.code == "DC129"
    ]
    assert (finding.failed, finding.fix) == (
        2,
        "Restore what is missing, or leave these samples out.",
    )


def test_files_of_no_bytes_that_no_sample_uses_are_told(tmp_path):
    """A lidar sweep of 0 bytes among Arrow files that no format reads."""
    for name, data in (
        ("a.npy", b"x"),
        ("lidar/1.feather", b"ARROW1"),
        ("lidar/2.feather", b""),
        ("poses.h5", b""),
        ("labels/1.txt", b""),
        ("pkg/__init__.py", b""),
        ("README.md", b""),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    schema = schema_of(
        {"samples": {"files": "*.npy"}, "fields": {"x": {"role": "value", "shape": [3]}}}
    )
    notes = [note for note in plan_work(schema, list_files(tmp_path)).notes if note.code == "DC103"]
    assert [note.key for note in notes] == ["lidar/2.feather", "poses.h5"]
    pieces = [sample("s", {"x": np.arange(3.0)})]
    (finding,) = [one for one in scan_pieces(schema, pieces, notes).findings if one.code == "DC103"]
    assert finding.message == "2 files of 0 bytes beside the samples: lidar/2.feather, poses.h5."
    assert (finding.severity.value, finding.failed) == ("warning", 0)


def test_dashes_of_windows_1252_are_not_called_utf_8():
    """15 prompts with U+0096 and U+0097: "UTF-8 was decoded as Latin-1 or Windows-1252"."""
    schema = {"fields": {"t": {"role": "text"}}}
    texts = [f"question {i} of the story, and what it is" for i in range(5)]
    spoiled = "what it is \u2013 a nice one".encode("cp1252").decode("latin-1")
    finding = found(schema, [{"t": text} for text in (*texts, spoiled)])["DC708"]
    assert (
        finding.cause.text
        == "UTF-8 or Windows-1252 was decoded as Latin-1, or UTF-8 as Windows-1252"
    )
    assert "DC708" not in found(
        schema, [{"t": text} for text in (*texts, "what it is \u2013 a nice one")]
    )


def sounds(rng, count=60):
    return [(rng.normal(0, 3000, rng.integers(800, 1200))).astype(np.int16) for _ in range(count)]


@pytest.mark.parametrize("value", [0, 7])
def test_few_samples_of_one_value_throughout_are_dead(value):
    """18 of 600 recordings held nothing but zeros, and the scan said OK."""
    schema = {"fields": {"x": {"shape": ["N"]}, "t": {"role": "text"}}}
    samples = [{"x": x, "t": f"word {i}"} for i, x in enumerate(sounds(np.random.default_rng(0)))]
    assert "DC226" not in found(schema, samples)
    for place in (7, 21):
        samples[place] = {"x": np.full_like(samples[place]["x"], value), "t": f"word {place}"}
    finding = found(schema, samples)["DC226"]
    assert finding.message == f"2 samples hold one value throughout ({value}); the other 58 vary."
    assert (finding.severity.value, finding.rows.tolist(), finding.cause) == (
        "warning",
        [7, 21],
        None,
    )


@pytest.mark.parametrize("dtype", [np.int16, np.float64])
def test_a_value_at_an_end_hides_no_dead_sample(dtype):
    """One more file that held 32767 throughout, and three of zeros were green: all were judged as one."""
    schema = {"fields": {"x": {"shape": ["N"]}, "t": {"role": "text"}}}
    samples = [
        {"x": x.astype(dtype), "t": f"word {i}"}
        for i, x in enumerate(sounds(np.random.default_rng(0)))
    ]
    for place, value in ((7, 0), (21, 0), (30, 32767), (40, 7)):
        samples[place]["x"] = np.full_like(samples[place]["x"], value)
    finding = found(schema, samples)["DC226"]
    assert finding.message == "3 samples hold one value throughout (0, 7); the other 56 vary."
    assert (finding.rows.tolist(), finding.measured["values"]) == ([7, 21, 40], [0, 7])


def test_what_may_well_stand_still_is_not_dead():
    """Counts that are all 0 begin at 0 elsewhere, too; a switch knows two values; of many, a tenth is no exception."""
    rng = np.random.default_rng(0)
    schema = {"fields": {"x": {"shape": ["N"]}, "t": {"role": "text"}}}
    rain = [np.maximum(0, rng.normal(0, 9, 40)).astype(np.float32) for _ in range(60)]
    switches = [rng.integers(-1, 2, 40) for _ in range(60)]
    short = [rng.normal(size=6) for _ in range(60)]
    for arrays, dead in ((rain, 3), (switches, 3), (short, 3), (sounds(rng), 9)):
        samples = [np.full_like(x, 0) if i < dead else x for i, x in enumerate(arrays)]
        findings = found(schema, [{"x": x, "t": f"word {i}"} for i, x in enumerate(samples)])
        assert "hold one value" not in getattr(findings.get("DC226"), "message", "")


@pytest.mark.parametrize(
    ("name", "usual", "other", "odd", "told"),
    [
        ("rate", 8000, 16000, 3, True),
        ("audio/sampling_rate", 8000, 16000, 1, True),
        ("fps", 30.0, 25.0, 2, True),
        ("frame_time", 1 / 30, 1 / 60, 3, True),
        ("rate", 8000, 16000, 7, False),
        ("label", 0, 1, 3, False),
        ("heart_rate", 80, 90, 3, False),
        ("rate", 8000, 8000, 3, False),
        ("audio.sampling_rate", 8000, 16000, 1, True),
        ("dt", 1 / 120, 0.008333, 3, False),
    ],
)
def test_few_recordings_of_another_rate_are_told(name, usual, other, odd, told):
    """40 of 600 recordings said 16,000 Hz where all others say 8,000: "nothing found"."""
    schema = {"fields": {name: {"shape": []}, "t": {"role": "text"}}}
    samples = [{name: np.array(other if i < odd else usual), "t": f"word {i}"} for i in range(60)]
    finding = found(schema, samples).get("DC226")
    assert (finding is not None) == told
    if told:
        assert (finding.rows.tolist(), finding.severity.value, finding.cause) == (
            list(range(odd)),
            "warning",
            None,
        )
    if told and name == "rate":
        assert finding.message == "3 samples have rate 16,000; the other 57 have 8,000."


def test_rates_that_three_digits_do_not_tell_apart_are_shown_with_more():
    schema = {"fields": {"fps": {"shape": []}, "t": {"role": "text"}}}
    samples = [{"fps": np.array(29.97 if i == 3 else 30.0), "t": f"word {i}"} for i in range(60)]
    assert (
        found(schema, samples)["DC226"].message == "1 sample has fps 29.97; the other 59 have 30."
    )


@pytest.mark.parametrize(
    ("name", "told"), [("force", False), ("joint_vel", False), ("reward", False), ("sound", True)]
)
def test_forces_and_speeds_of_what_rests_are_0(name, told):
    rng = np.random.default_rng(0)
    schema = {"fields": {name: {"shape": ["N"]}, "t": {"role": "text"}}}
    samples = [
        {name: np.zeros(40) if i < 3 else rng.normal(size=40), "t": f"word {i}"} for i in range(60)
    ]
    assert ("DC226" in found(schema, samples)) is told
    samples[0] = {name: np.full(40, 0.5), "t": "stuck"}
    assert "DC226" in found(schema, samples)


def test_clipped_samples_are_told_where_they_are_few():
    """Those that reach -1 and 1 in all dimensions end at whole numbers, as rounded ones do."""
    rng = np.random.default_rng(0)
    schema = {"fields": {"a": {"role": "action", "shape": ["T", 2]}}}
    samples = [
        {"a": np.clip((2.0 if i % 5 == 0 else 0.2) * rng.normal(size=(60, 2)), -1, 1)}
        for i in range(40)
    ]
    assert "exactly" in found(schema, samples)["DC225"].message


@pytest.mark.parametrize(
    ("usual", "others", "told"),
    [
        (1, [1000, 1000], True),
        (525.5, [500.0], True),
        (640, [480, 320, 320], True),
        (640, [480] * 4, False),
        (3, [4, 5], False),
        (0, [5000], False),
        (640, [1, 2, 300, 4], False),
        (True, [False], False),
    ],
)
def test_another_setting_is_information(usual, others, told):
    schema = {"fields": {"scale": {"shape": []}, "t": {"role": "text"}}}
    values = [*others, *[usual] * (60 - len(others))]
    finding = found(
        schema, [{"scale": np.array(v), "t": f"word {i}"} for i, v in enumerate(values)]
    ).get("DC226")
    assert (finding is not None) == told
    if told:
        assert (finding.rows.tolist(), finding.severity.value) == (list(range(len(others))), "info")


@pytest.mark.parametrize(
    ("usual", "far", "count", "told"),
    [
        (range(15), 57, 4, True),
        (range(1, 9), 99, 3, True),
        (range(15), 57, 2, False),
        (range(15), 40, 4, False),
        (range(15), 255, 4, False),
        (range(0, 60, 4), 500, 4, False),
        (range(4), 57, 4, False),
        (range(15), 57, 9, False),
        (range(15), 2016, 4, False),
    ],
)
def test_one_whole_number_far_beyond_all_others_is_told(usual, far, count, told):
    """Four of 87 files had 57 for their class, of 17 classes: a draft of these files allowed it."""
    schema = {"fields": {"content": {"shape": [], "range": "0..3000"}, "t": {"role": "text"}}}
    values = [*[far] * count, *(usual[i % len(usual)] for i in range(80 - count))]
    finding = found(
        schema, [{"content": np.array(v), "t": f"word {i}"} for i, v in enumerate(values)]
    ).get("DC226")
    assert (finding is not None) == told
    if told:
        assert (finding.rows.tolist(), finding.severity.value) == (list(range(count)), "warning")
    if far == 57 and told:
        assert finding.message == "4 samples have content 57; the other 76 have 0 to 14."
    schema["fields"]["content"] = {"role": "class", "classes": "0..3000"}
    samples = [{"content": np.array(v), "t": f"word {i}"} for i, v in enumerate(values)]
    assert "DC226" not in found(schema, samples)  # as the finding advises


def test_rotations_without_a_role_are_in_two_units_where_their_unit_says_angles():
    """5 of 87 clips of motion capture had their rotations in radians."""
    rng = np.random.default_rng(0)
    clips = [rng.uniform(-1, 1, (50, 9)) * rng.uniform(150, 180) for _ in range(40)]
    for place in (3, 9, 30):
        clips[place] = np.deg2rad(clips[place])
    for spec, told in (({"unit": "deg"}, True), ({}, False), ({"unit": "mm"}, False)):
        schema = {"fields": {"r": {"shape": ["T", 9]} | spec}}
        finding = found(schema, [{"r": clip} for clip in clips]).get("DC203")
        assert (finding is not None) == told
    finding = found(
        {"fields": {"r": {"shape": ["T", 9], "unit": "deg"}}}, [{"r": clip} for clip in clips]
    )["DC203"]
    assert (finding.rows.tolist(), finding.severity.value) == ([3, 9, 30], "warning")
    assert finding.cause.factor == 57.3


def accelerations(factor, few, spread=1.3, count=60):
    """Return recordings whose largest numbers lie within `spread`, few of them times a factor."""
    rng = np.random.default_rng(4)
    peaks = rng.uniform(1, spread, count)
    peaks[:few] *= factor
    return [{"a": np.clip(rng.normal(0, 0.2, (50, 3)), -1, 1) * 0.5 + peak} for peak in peaks]


@pytest.mark.parametrize(
    ("factor", "few", "spread", "told"),
    [
        (9.80665, 6, 1.3, True),
        (9.80665, 1, 1.3, True),
        (3, 6, 1.3, False),
        (9.80665, 20, 1.3, False),  # a third of the samples
        (9.80665, 6, 6, False),  # the others differ as much
    ],
)
def test_a_few_samples_five_times_as_large_as_very_similar_ones_are_named(
    factor, few, spread, told
):
    schema = {"fields": {"a": {"shape": ["N", 3]}}}
    finding = found(schema, accelerations(factor, few, spread)).get("DC226")
    assert (finding is not None and finding.kind == "much larger") is told
    if told:
        assert finding.rows.tolist() == list(range(few))
