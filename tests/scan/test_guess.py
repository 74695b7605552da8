"""What a draft makes of hands without a name, of lengths that differ in a few samples, and of tables of texts."""

import math
import wave

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.infer.axes import name_axes
from datacheck.infer.draft import draft
from datacheck.infer.guess import guess
from datacheck.infer.profile import FieldProfile
from datacheck.infer.roles import rounded
from datacheck.scan import Request, run_scan
from datacheck.schema.load import parse_schema

LENGTHS = [int(n) for n in np.random.default_rng(0).permutation(1000)[:20] + 100]


def folder(tmp_path, files):
    for name, array in files.items():
        path = tmp_path / "d" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
    return tmp_path / "d"


def drafted(path):
    text = draft(path).text
    return text, parse_schema(text)


@pytest.mark.parametrize("steps", [(), (5,)])
def test_rows_of_a_hand_are_joints_whatever_they_are_called(tmp_path, steps):
    rng = np.random.default_rng(0)
    hands = rng.normal(0, 0.1, (8, *steps, 21, 3)).astype(np.float32)
    hands[3] *= 1000
    text, schema = drafted(folder(tmp_path, {f"{n}.npy": hand for n, hand in enumerate(hands)}))
    spec = schema.fields["array"]
    assert (spec.role, list(spec.shape), spec.unit) == ("joints", [*steps, 21, 3], "m")
    assert "role from shape and values" in text
    assert "sizes so far apart that some may be in another unit" in text
    assert "with a skeleton (mano21, mano21_ho3d, mano21_openpose) bones are judged, too" in text


def test_a_torn_hand_does_not_make_joints_points(tmp_path):
    hands = np.random.default_rng(0).normal(0, 0.1, (12, 21, 3))
    torn = {f"{n}.npy": hand[: 20 if n == 7 else 21] for n, hand in enumerate(hands)}
    _, schema = drafted(folder(tmp_path, torn))
    assert (schema.fields["array"].role, list(schema.fields["array"].shape)) == ("joints", [21, 3])


def test_bytes_of_a_file_without_a_header_are_of_an_unknown_type(tmp_path):
    """As float32 they were a cloud of coordinates about 1e-42."""
    (tmp_path / "d").mkdir()
    for i in range(3):
        np.random.default_rng(i).integers(0, 20, 4000).astype(np.uint8).tofile(
            tmp_path / f"d/{i}.bin"
        )
    text = draft(tmp_path / "d").text
    (spec,) = parse_schema(text).fields.values()
    assert (spec.role, spec.dtype, spec.shape) == (None, None, ("N",))
    assert "labels, a mask or tokens, of uint8, uint16, uint32 or int64: say which" in text


def test_whole_numbers_and_clouds_are_no_hands(tmp_path):
    triangles = {f"{n}.npy": np.random.default_rng(n).integers(0, 9, (21, 3)) for n in range(8)}
    assert drafted(folder(tmp_path / "a", triangles))[1].fields["array"].role is None
    clouds = {f"{n}.npy": np.random.default_rng(n).normal(size=(15 + n, 3)) for n in range(8)}
    spec = drafted(folder(tmp_path / "b", clouds))[1].fields["array"]
    assert (spec.role, list(spec.shape)) == (None, ["P", 3])


def test_labels_that_are_cut_off_in_one_scene_share_the_axis_of_its_points(tmp_path):
    rng, files = np.random.default_rng(0), {}
    for n, length in enumerate(LENGTHS):
        files[f"{n}/coord.npy"] = rng.uniform(0, 5, (length, 3))
        files[f"{n}/segment.npy"] = rng.integers(0, 20, length - (5 if n == 12 else 0))
    text, schema = drafted(folder(tmp_path, files))
    assert [list(schema.fields[name].shape) for name in ("coord", "segment")] == [["P", 3], ["P"]]
    assert "another length than the others with P in 1 of 20 samples" in text


def test_lengths_of_few_samples_may_differ_where_the_others_are_equal_by_no_chance():
    def names(one, two):
        seen = {
            name: FieldProfile(lengths=list(of), ndims={"1": 1}, item=[])
            for name, of in {"a": one, "b": two}.items()
        }
        return name_axes(seen, episodes=False)

    assert names(LENGTHS, LENGTHS) == {"a": ("P", 0), "b": ("P", 0)}
    assert names(LENGTHS, [*LENGTHS[:16], 1, 2, 3, 4]) == {"a": ("P", 0), "b": ("P", 4)}
    # A fourth
    assert names(LENGTHS, [*LENGTHS[:15], 1, 2, 3, 4, 5]) == {"a": ("P", 0), "b": ("N", 0)}
    assert names(LENGTHS, LENGTHS[:19]) == {"a": ("P", 0), "b": ("N", 0)}  # not of the same samples
    cut = [512] * 18  # as tokens are that are cut at a longest length
    assert names([*cut, 30, 40], [*cut, 50, 60]) == {"a": ("P", 0), "b": ("N", 0)}


def test_there_is_a_name_for_every_axis():
    seen = {
        f"{n:02}": FieldProfile(lengths=[n, 100 * n], ndims={"1": 1}, item=[]) for n in range(1, 15)
    }
    axes = name_axes(seen, episodes=False)
    assert len({axis.name for axis in axes.values()}) == 14
    shapes = [guess(name, one, axes, 0).spec["shape"] for name, one in seen.items()]
    # Of one name they would have to be of one length
    assert len({tuple(shape) for shape in shapes}) == 14


@pytest.mark.parametrize(
    ("texts", "each"),
    [
        ([f"document {n}" for n in range(50)], "row"),
        (["open the drawer"] * 50, None),
        (list("ab") * 25, None),
    ],
    ids=["documents", "an episode with its task", "an episode with its phases"],
)
def test_rows_of_a_table_with_different_texts_are_samples(tmp_path, texts, each):
    (tmp_path / "d").mkdir()
    for n in range(7):  # as a data set is that is published in shards
        pq.write_table(
            pa.table({"text": texts, "score": np.arange(50.0)}), tmp_path / f"d/part-{n}.parquet"
        )
    _, schema = drafted(tmp_path / "d")
    assert schema.samples.each == each
    assert schema.fields["text"].dtype == ("text" if each else "json")


def test_rows_of_a_table_of_tokens_are_samples(tmp_path):
    rng = np.random.default_rng(0)
    packed = [rng.integers(0, 32000, 64).tolist() for _ in range(50)]
    for name, table in {
        "packed": {"input_ids": packed, "labels": packed},
        "cut": {"ids": [row[:n] for n, row in enumerate(packed, 3)]},
        "episode": {"action": rng.normal(size=(50, 7)).tolist(), "timestamp": np.arange(50) / 10},
    }.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(table), tmp_path / name / "0.parquet")
    made = {name: drafted(tmp_path / name)[1] for name in ("packed", "cut", "episode")}
    assert {name: one.samples.each for name, one in made.items()} == {
        "packed": "row",
        "cut": "row",
        "episode": None,
    }
    # The next text may hold a token above all that were met
    assert made["packed"].fields["labels"].role is None


def test_what_has_an_action_or_a_pose_at_each_step_has_an_axis_of_time(tmp_path):
    rng = np.random.default_rng(0)
    for n, steps in enumerate(LENGTHS):
        one = {
            name: rng.normal(size=(steps, *item)) for name, item in {"act": (6,), "rew": ()}.items()
        }
        one["obs"] = rng.normal(size=(steps + 1, 9))
        (tmp_path / "robot").mkdir(exist_ok=True), (tmp_path / "hand").mkdir(exist_ok=True)
        np.savez(tmp_path / f"robot/{n}.npz", **one)
        np.savez(
            tmp_path / f"hand/{n}.npz",
            joint_3d=rng.normal(size=(steps, 21, 3)),
            joint_2d=one["act"],
        )
    shapes = {
        name: list(spec.shape) for name, spec in drafted(tmp_path / "robot")[1].fields.items()
    }
    roles = {name: spec.role for name, spec in drafted(tmp_path / "robot")[1].fields.items()}
    assert roles == {"act": "action", "rew": "reward", "obs": None}
    assert shapes == {"act": ["T", 6], "rew": ["T"], "obs": ["P", 9]}
    assert {spec.shape[0] for spec in drafted(tmp_path / "hand")[1].fields.values()} == {"T"}


def cloud(i, *columns):
    """Places of 200 points with normals, colours, labels, instances, intensities or shares."""
    rng = np.random.default_rng(i)
    n = 200 + i
    normal = rng.normal(size=(n, 3))
    made = {
        "xyz": rng.uniform(-2, 3, (n, 3)),
        "rgb": rng.integers(0, 256, (n, 3)),
        "share": rng.uniform(0, 1, (n, 3)),
        "normal": normal / np.linalg.norm(normal, axis=1)[:, None],
        "label": rng.integers(-1, 20, (n, 1)),
        "instance": rng.integers(0, 9, (n, 1)),
        "intensity": rng.uniform(0, 1, (n, 1)),
        "move": rng.normal(size=(n, 3)),
    }
    return np.concatenate([made[name] for name in columns], axis=1).astype(np.float32)


@pytest.mark.parametrize(
    ("folder", "columns", "roles"),
    [
        ("rooms", ["xyz", "rgb"], {"xyz": "points", "rgb": "color"}),
        ("rooms", ["xyz", "share"], {"xyz": "points", "rgb": "color"}),
        (
            "rooms",
            ["xyz", "rgb", "normal", "label", "instance"],
            {
                "xyz": "points",
                "rgb": "color",
                "normal": "normal",
                "label": "class",
                "instance": "instance",
            },
        ),
        ("rooms", ["xyz", "normal"], {"xyz": "points", "normal": "normal"}),
        ("scans", ["xyz", "intensity"], {"xyz": "points", "intensity": "value"}),
        ("rooms", ["xyz", "intensity"], {}),  # nothing says that these are points
        ("rooms", ["xyz", "move"], {}),
        ("rooms", ["share", "share"], {}),  # six probabilities
        ("rooms", ["label", "label", "label", "rgb"], {}),
    ],
)
def test_points_colours_and_labels_in_columns_keep_their_roles(tmp_path, folder, columns, roles):
    (tmp_path / folder).mkdir()
    for i in range(4):
        np.save(tmp_path / folder / f"{i}.npy", cloud(i, *columns))
    fields = parse_schema(draft(tmp_path / folder).text).fields
    assert {
        name.removeprefix("array."): spec.role for name, spec in fields.items() if name != "array"
    } == roles
    assert fields["array"].shape[0] == "P"
    if roles:
        size = fields["array.xyz"].size
        assert size.low <= 8.66 / 2 <= 2 * 8.66 <= size.high + 0.5  # boxes of nearly 5 * sqrt(3)
    if "label" in roles:
        assert (fields["array.label"].ignore, str(fields["array.label"].classes)) == (
            (-1,),
            "0..19",
        )


@pytest.mark.parametrize(("dtype", "role"), [("float32", "transform"), ("uint8", None)])
def test_four_rows_of_four_bytes_are_no_transform(dtype, role):
    """Extra bytes of a LAS file of four points."""
    seen = FieldProfile(1, {dtype: 1}, {"2": 1}, [4], [4], 0.0, 200.0)
    assert guess("ExtraBytes", seen, {}, 1).spec.get("role") == role


def bvh(rng, frames):
    turned = "\n".join(
        " ".join(f"{value:.3f}" for value in row) for row in rng.uniform(-179, 179, (frames, 6))
    )
    return (
        "HIERARCHY\nROOT Hips\n{\nOFFSET 0 0 0\n"
        "CHANNELS 6 Xposition Yposition Zposition Zrotation Xrotation Yrotation\n"
        f"End Site\n{{\nOFFSET 0 1 0\n}}\n}}\nMOTION\nFrames: {frames}\nFrame Time: "
        f"0.01\n{turned}\n"
    )


def test_motion_capture_is_frames_of_degrees_and_its_frame_time_is_no_clock(tmp_path):
    rng = np.random.default_rng(0)
    for n, frames in enumerate(LENGTHS):
        (tmp_path / f"{n}.bvh").write_text(bvh(rng, frames))
    text, schema = drafted(tmp_path)
    shapes = {
        name: list(schema.fields[name].shape)
        for name in ("positions", "rotations", "frame_time", "offsets")
    }
    assert shapes == {
        "positions": ["T", 3],
        "rotations": ["T", 3],
        "frame_time": [],
        "offsets": [1, 3],
    }
    assert (schema.fields["rotations"].unit, schema.fields["rotations"].role) == ("deg", None)
    assert schema.fields["frame_time"].role is None
    assert "unit from name and values" in text


@pytest.mark.parametrize(
    ("name", "values", "unit"),
    [
        ("angles", [-170.5, 90], "deg"),
        ("euler_angle", [0, 359.5], "deg"),
        ("angles", [-3.1, 3.1], None),
        ("triangle_area", [0, 90.5], None),
        ("angle_vel", [-90.5, 90], None),
        ("rotation", [0, 5000.5], None),
        ("rotation", [0, 90], None),
    ],
)
def test_angles_beyond_a_turn_in_radians_are_degrees(name, values, unit):
    seen = FieldProfile(
        samples=9, dtypes={"float64": 9}, ndims={"2": 9}, item=[66], low=values[0], high=values[1]
    )
    seen.whole = all(float(value).is_integer() for value in values)
    assert guess(name, seen, {}, 9).spec.get("unit") == unit


def test_a_folder_of_sound_is_samples_and_their_rate(tmp_path):
    rng = np.random.default_rng(0)
    for n, count in enumerate(LENGTHS):
        with wave.open(str(tmp_path / f"{n}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(rng.integers(-3000, 3000, count, dtype=np.int16).tobytes())
    schema = drafted(tmp_path)[1]
    assert {name: (spec.role, len(spec.shape)) for name, spec in schema.fields.items()} == {
        "rate": (None, 0),
        "samples": (None, 1),
    }
    assert schema.fields["samples"].range is None  # a louder recording is no fault


def records(folder, rows):
    folder.mkdir(exist_ok=True)
    (folder / "all.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return parse_schema(draft(folder).text).fields


def test_messages_of_sharegpt_and_preferences_are_chats(tmp_path):
    def message(name, text):
        return {"from": name, "value": text}

    rows = [
        {
            "conversations": [message("human", f"Question {i}?"), message("gpt", f"Answer {i}.")],
            "chosen": message("gpt", f"Good {i}."),
            "rejected": message("gpt", f"Bad {i}."),
            "response_chosen": f"Yes {i}",
            "response_rejected": f"No {i}",
            "edges": [message("a", "b"), message("b", "c")],
        }
        for i in range(30)
    ]
    fields = records(tmp_path / "d", rows)
    told = {
        name: (spec.role, spec.dtype, spec.train_on, spec.preferred_over)
        for name, spec in fields.items()
    }
    assert told == {
        "conversations": ("chat", None, "gpt", None),
        "chosen": ("chat", None, "gpt", "rejected"),
        "rejected": ("chat", None, "gpt", None),
        "response_chosen": ("text", None, None, "response_rejected"),
        "response_rejected": ("text", None, None, None),
        "edges": (None, "json", None, None),
    }


@pytest.mark.parametrize(
    ("speakers", "role", "train_on"),
    [
        (("USER", "SYSTEM"), "chat", "SYSTEM"),
        (("user", "agent"), "chat", "agent"),
        (("Romeo", "Juliet"), None, None),
    ],
)
def test_dialogues_of_a_user_are_chats_and_plays_are_none(tmp_path, speakers, role, train_on):
    turns = [{"speaker": name, "utterance": f"{name} says something."} for name in speakers]
    field = records(tmp_path / "d", [{"turns": turns * 2, "n": i} for i in range(30)])["turns"]
    assert (field.role, field.train_on) == (role, train_on)


def test_the_speaker_of_most_chats_answers_whichever_comes_first(tmp_path):
    def chat(name, i):
        return [
            {"from": "human", "value": f"Question {i}?"},
            {"from": name, "value": f"Answer {i}."},
        ]

    rows = [{"conversations": chat("model" if i else "gpt", i)} for i in range(30)]
    for order in (rows, rows[::-1]):
        assert records(tmp_path / "d", order)["conversations"].train_on == "model"


@pytest.mark.parametrize("names", [("km", "model", "m"), ("gpt", "chatgpt"), ("ann", "bob", "bot")])
def test_messages_of_which_many_have_no_answer_are_no_chats(tmp_path, names):
    said = [
        {"from": names[i % len(names)], "to": "mi", "value": f"{i} and some more"}
        for i in range(60)
    ]
    assert records(tmp_path / "d", [{"x": one} for one in said])["x"].role is None
    assert records(tmp_path / "d", [{"x": [one, one]} for one in said])["x"].role is None


def test_what_stands_beside_a_chosen_answer_is_no_preference(tmp_path):
    rows = [
        {
            "chosen": f"Good {i}",
            "rejected": f"Bad {i}",
            "chosen-model": f"m{i % 3}",
            "rejected-model": f"m{i % 2}",
            "chosen_prompt": "a prompt of both " * 9,
            "rejected_prompt": "a prompt of both " * 9,
        }
        for i in range(30)
    ]
    fields = records(tmp_path / "d", rows)
    assert {name: spec.preferred_over for name, spec in fields.items() if spec.preferred_over} == {
        "chosen": "rejected"
    }


def test_numbers_and_names_of_rows_are_ids_and_labels_are_none(tmp_path):
    rows = [
        {
            "id": f"a-{i}",
            "idx": (i * 37) % 100,
            "__index_level_0__": 7000 - i,
            "sample_id": i,
            "index": i % 2,
            "class_id": i % 50,
            "text": f"This is sentence {i} of a hundred.",
        }
        for i in range(100)
    ]
    fields = records(tmp_path / "d", rows)
    assert {name for name, spec in fields.items() if spec.role == "id"} == {
        "id",
        "idx",
        "__index_level_0__",
        "sample_id",
    }


@pytest.mark.parametrize("digest", ["", "-6f1a2b3c4d5e6f70"])
def test_rows_of_the_test_split_that_train_repeats_are_named_whatever_their_index(
    tmp_path, monkeypatch, digest
):
    """As Hugging Face publishes tables: the numbers of rows made equal rows unequal, and no split was known."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    texts = [f"This is sentence {i} of the terms of service." for i in range(300)]
    parts = {
        "train-00000-of-00002": texts[:100],
        "train-00001-of-00002": texts[100:200] + texts[210:217],
    }
    parts |= {"test-00000-of-00001": texts[200:250], "validation-00000-of-00001": texts[250:]}
    for number, (name, rows) in enumerate(parts.items()):
        index = np.random.default_rng(number).permutation(1000)[: len(rows)]
        pq.write_table(
            pa.table({"text": rows, "__index_level_0__": index}),
            tmp_path / f"d/{name}{digest}.parquet",
        )
    _, schema = drafted(tmp_path / "d")
    assert schema.samples.files == ("{split}-{shard}-of-{shards}.parquet",)
    report = run_scan(schema, Request(tmp_path / "d")).report
    assert [(one.code, one.kind, one.failed) for one in report.findings] == [("DC801", "test", 7)]


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_what_is_not_finite_is_rounded_to_itself(value):
    assert rounded(value) == rounded(value, down=True) == value
    assert math.isnan(rounded(math.nan))
