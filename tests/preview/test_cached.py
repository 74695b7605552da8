"""Pictures of samples of a cache: what is stored, in the words of the fields as they are after the transforms."""

import shutil

import numpy as np
import orjson
import pytest

from datacheck.cache import layout, open_cache
from datacheck.model.sample import ArraySpec
from datacheck.preview import cache_samples
from datacheck.preview.pictures import POINTS, SAMPLE_BYTES
from tests.cache.make import make_cache

SPECS = {
    "xyz": ArraySpec("float32", (3,), "P", attrs={"role": "points", "unit": "m"}),
    "label": ArraySpec("int32", (), "P", attrs={"role": "segment"}),
    "joints": ArraySpec(
        "float32", (21, 3), attrs={"role": "joints", "unit": "m", "frame": "camera_opencv"}
    ),
    "said": ArraySpec("uint8", (), layout.text_dim("said"), "text"),
    "more": ArraySpec("float32", (2,), optional=True),
}


def sample(number, points=400):
    rng = np.random.default_rng(number)
    return {
        "xyz": rng.uniform(number, number + 1, (points, 3)),
        "label": np.arange(points) % 3,
        "joints": rng.uniform(0, 0.1, (21, 3)),
        "said": f"a cup {number}",
    }


@pytest.fixture
def folder(tmp_path):
    return make_cache(
        tmp_path, SPECS, [sample(0), sample(1) | {"more": np.ones(2)}, sample(2, 3000)], k=1
    )


def drawn(folder, numbers, declared=None, **options):
    return cache_samples.samples_of_cache(open_cache(folder), declared, numbers, **options)


def fields(folder, number, declared=None):
    ((made,), _, _) = drawn(folder, [number], declared)
    return {one["field"]: one for one in made["fields"]}


def test_pictures_are_of_what_is_stored_in_the_words_of_its_fields(folder):
    samples, said, damage = drawn(folder, [2, 0])
    assert [one["key"] for one in samples] == ["sample/000002", "sample/000000"]
    assert (said, damage) == ([], [])
    found = fields(folder, 2)
    points = np.asarray(sample(2, 3000)["xyz"], np.float32)
    np.testing.assert_allclose(
        found["xyz"]["box"], [points.min(axis=0), points.max(axis=0)], rtol=1e-4
    )
    assert (found["xyz"]["points"], found["xyz"]["shown"], found["xyz"]["unit"]) == (
        3000,
        POINTS,
        "m",
    )
    assert found["xyz"]["colour"]["name"] == "label"
    # Of OpenCV: y points down
    assert (found["joints"]["kind"], found["joints"]["up"]) == ("skeleton", "-y")
    assert found["said"]["segments"][0]["text"] == "a cup 2"
    assert "more" not in found
    assert fields(folder, 1)["more"]["about"] == "float32 [2]: 1 1"


def test_what_a_transform_has_changed_is_not_taken_from_the_schema_of_the_data(folder):
    before = {
        "role": "joints",
        "frame": "camera_opengl",
        "up": "y",
        "unit": "mm",
        "skeleton": "mano21_ho3d",
    }
    found = fields(folder, 0, {"fields": {"joints": before}})["joints"]
    assert (found["up"], found["unit"], found["guessed"]) == ("-y", "m", True)
    chat = {
        "conversations": ArraySpec(
            "uint8", (), layout.text_dim("c"), "json", attrs={"role": "chat"}
        )
    }
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    place = make_cache(folder.parents[2] / "chat", chat, [{"conversations": turns}])
    found = fields(
        place, 0, {"fields": {"conversations": {"role": "chat", "train_on": "assistant"}}}
    )
    assert [one["is"] for one in found["conversations"]["segments"]] == ["masked", "supervised"]


@pytest.mark.parametrize(
    "declared",
    [
        None,
        3,
        {},
        {"fields": 3},
        {"fields": {"xyz": 3}},
        {"fields": {"xyz": {"role": "no"}}},
        {"episode": 3},
    ],
)
def test_a_schema_that_makes_no_sense_takes_nothing_away(folder, declared):
    found = fields(folder, 0, declared)
    assert [found[name]["kind"] for name in ("xyz", "joints", "said")] == [
        "cloud",
        "skeleton",
        "text",
    ]


def test_names_that_no_schema_may_have_are_drawn(tmp_path):
    specs = {
        "a b": ArraySpec("float32", (3,), "\U0001f600.x", attrs={"role": "<b>", "unit": "\x1b"})
    }
    found = fields(
        make_cache(tmp_path, specs, [{"a b": np.random.default_rng(0).random((50, 3))}]), 0
    )
    assert found["a b"]["kind"] in {"cloud", "note"}


def test_of_long_axes_the_first_rows_are_read_equally_many_of_all(folder, monkeypatch):
    # Of xyz and label; three axes share the bytes: points, letters, and fields without one
    row = 3 * 4 + 4
    monkeypatch.setattr(cache_samples, "_READ", 3 * 100 * row)
    found = fields(folder, 2)
    assert found["xyz"]["points"] == sum(found["xyz"]["colour"]["counts"]) == 100
    points = np.asarray(sample(2, 3000)["xyz"][:100], np.float32)
    np.testing.assert_allclose(
        found["xyz"]["box"], [points.min(axis=0), points.max(axis=0)], rtol=1e-4
    )
    assert found["P"]["about"] == "the first 100 of 3,000 rows are drawn"
    monkeypatch.setattr(cache_samples, "_READ", 3 * 5)
    assert {name: one["about"].partition(":")[0] for name, one in fields(folder, 2).items()} == {
        "xyz": "36,000 bytes",
        "label": "12,000 bytes",
        "joints": "252 bytes",
        "said": "7 bytes",
    }


def test_pictures_of_a_sample_are_bounded(tmp_path):
    specs = {
        f"x{n:02d}": ArraySpec("uint8", (64, 64, 3), attrs={"role": "image"}) for n in range(20)
    }
    noise = np.random.default_rng(0).integers(0, 256, (20, 64, 64, 3), np.uint8)
    folder = make_cache(tmp_path, specs, [dict(zip(specs, noise, strict=True))])
    ((made,), _, _) = drawn(folder, [0])
    kinds = [one["kind"] for one in made["fields"]]
    assert len(kinds) == 20
    assert 1 <= kinds.count("image") < 20
    assert {one["about"] for one in made["fields"] if one["kind"] == "note"} == {
        "no room for its picture in this page"
    }
    assert (
        len(orjson.dumps([one for one in made["fields"] if one["kind"] == "image"]))
        < SAMPLE_BYTES + 1000
    )


def test_whatever_there_is_no_time_for_is_told(folder):
    samples, said, _ = drawn(folder, [0, 1], seconds=-1)
    assert [one["fields"] for one in samples] == [[], []]
    assert said == ["2 samples not drawn: reading may take -1 s in all"]


def test_fields_behind_those_that_took_all_the_time_are_told(folder, monkeypatch):
    # One second each time that somebody looks: at the start, the sample, its fields
    clock = iter(range(100))
    monkeypatch.setattr(cache_samples.time, "monotonic", lambda: next(clock))
    (first, second), said, _ = drawn(folder, [0, 1], seconds=3)
    late = [one["field"] for one in first["fields"] if one["about"] == "there was no more time"]
    assert late == ["more", "said", "xyz"]  # in the order of their names behind joints and label
    assert (second["fields"], len(said)) == ([], 1)


def test_a_sample_that_is_damaged_is_never_drawn(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy" / folder.name, copy_function=shutil.copyfile)
    file = copy / "fields/xyz/c.1.0"
    raw = bytearray(file.read_bytes())
    raw[5] ^= 1
    file.write_bytes(raw)
    samples, _, damage = drawn(copy, [0, 1, 2])
    assert [bool(one["fields"]) for one in samples] == [True, False, True]
    assert "xyz" in samples[1]["why"]
    assert len(damage) == 1
