import json

import numpy as np
import pytest

SPLIT = ("--train", "0.5", "--val", "0.5", "--to", "lists")


@pytest.fixture
def scenes(place):
    """Twenty files of ten scenes, one of them broken."""
    folder = place / "scenes"
    folder.mkdir()
    for i in range(20):
        np.save(
            folder / f"s{i // 2}_{i % 2}.npy",
            np.random.default_rng(i).normal(size=4).astype(np.float32),
        )
    (folder / "s3_1.npy").write_bytes(b"broken")
    (place / "scenes.yaml").write_text(
        "datacheck: 1\nname: scenes\nsamples: {files: '{scene}_{take}.npy'}\nfields: {x: {role: "
        "value, shape: [4]}}\n"
    )
    return place


def read(place, name):
    return (place / "lists" / name).read_text().split()


def test_valid_samples_are_split_by_scene(here, scenes):
    code, out, _ = here("split", "scenes", "--schema", "scenes.yaml", "--by", "scene", *SPLIT)
    assert code == 0
    train, val = read(scenes, "train.txt"), read(scenes, "val.txt")
    assert len(train) + len(val) == 19
    assert "s3_1.npy" not in train + val
    assert not {key[:2] for key in train} & {key[:2] for key in val}
    assert f"lists/train.txt: {len(train)} samples" in out
    assert "groups by scene" in out
    assert "1 invalid sample left out" in out
    code, _, err = here("split", "scenes", "--schema", "scenes.yaml", "--by", "scene", *SPLIT)
    assert (code, "exists already" in err) == (2, True)


def test_a_finished_run_is_split_without_the_data(here, scenes):
    here("scan", "scenes", "--schema", "scenes.yaml", "--fail-on", "never")
    code, out, _ = here("split", ".datacheck/latest", "--by", "key", "--invalid", *SPLIT)
    assert (code, len(read(scenes, "train.txt")), len(read(scenes, "val.txt"))) == (0, 10, 10)
    assert "left out" not in out
    (scenes / ".datacheck/latest/valid.json").write_text(json.dumps([]))
    code, _, err = here(
        "split", ".datacheck/latest", "--by", "key", "--train", "1", "--to", "other"
    )
    assert (code, "cannot be read" in err) == (2, True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--by", "scene", "--train", "0.5", "--to", "lists"), "add up to 0.5"),
        (
            ("--by", "room", "--train", "1", "--to", "lists"),
            "there is no such key; known are file, key, scene, take",
        ),
        (("--train", "1", "--to", "lists"), "Missing option '--by'"),
    ],
)
def test_a_wrong_request_is_one_message(here, scenes, args, said):
    code, _, err = here("split", "scenes", "--schema", "scenes.yaml", *args)
    assert code == 2
    assert said in err
    assert not (scenes / "lists").exists()


def test_a_run_knows_its_schema_and_the_newest_is_found(here, scenes):
    here("scan", "scenes", "--schema", "scenes.yaml")
    code, out, _ = here("split", ".datacheck", "--by", "scene", *SPLIT)
    assert (code, "groups by scene" in out) == (0, True)


@pytest.mark.parametrize("name", ["a\nb.npy", " a.npy", "a\x85b.npy"])
def test_a_name_that_no_list_can_hold_is_left_out_and_told(here, place, name):
    """One file with such a name ended the split of all others."""
    others = {file.name for file in (place / "data").iterdir()}
    np.save(place / "data" / name, np.full(4, 7, np.float32))
    code, out, _ = here("split", "data", "--schema", "plain.yaml", "--by", "key", *SPLIT)
    assert (
        code,
        f"1 sample left out ({name!r}): no list can hold a name with a line break" in out,
    ) == (0, True)
    listed = [
        line for file in (place / "lists").iterdir() for line in file.read_text().splitlines()
    ]
    assert sorted(listed) == sorted(others)
