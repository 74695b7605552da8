"""What the loaders of five systems did to their data is named, with the cause; loaders as they should be are silent."""

import h5py
import pytest

from datacheck.scan import scan_loader
from datacheck.schema.load import load_schema
from tests.audit.conftest import finding, told

GRASPS = {
    "hand_model_pose": {"role": "pose", "shape": ["G", 23], "columns": "pos:3 quat:4 joints:16"},
    "obj_pose": {"role": "pose", "shape": [7]},
    "obj_code": {"role": "id", "dtype": "text"},
}
HANDS = {
    "joints_3d_gt": {"role": "joints", "shape": [21, 3], "unit": "m", "skeleton": "mano21_ho3d"},
    "frame": {"role": "id", "dtype": "text"},
}
SCENES = {
    "coordinates": {"role": "points", "shape": ["P", 3], "unit": "m", "size": "0.5..80"},
    "raw_coordinates": {"role": "points", "shape": ["P", 3], "unit": "m"},
    "semantic": {
        "role": "class",
        "shape": ["P"],
        "classes": "0..40",
        "ignore": [255],
        "at": "labels/semantic",
    },
    "instance": {
        "role": "instance",
        "shape": ["P"],
        "ignore": [-1],
        "min_instances": 1,
        "at": "labels/instance",
    },
}
CHUNKS = {
    "actions": {"role": "action", "shape": [32, 7], "range": "-1.000001..1.000001"},
    "state": {"role": "joint_angle", "shape": [32, 7], "unit": "rad"},
}
CHATS = {
    "input_ids": {"role": "tokens", "shape": ["S"], "at": "0"},
    "labels": {"role": "labels", "shape": ["S"], "at": "1", "label_of": "input_ids", "shift": 0},
}


# ---------------------------------------------------------------------------------------- SceneLeap


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_grasps_that_a_correct_loader_serves_are_silent(data, audit):
    run = audit("sceneleap:Grasps", GRASPS, data("sceneleap", train=10, test=2))
    assert (told(run), run.report.exit_code) == ([], 0)
    assert len(run.table.keys[0]) > 32  # an object's code: the field with role id


def test_zeros_after_an_exception_directory_order_and_the_global_generator_are_named(data, audit):
    root = data("sceneleap", train=10, test=2)
    victim = sorted((root / "train").iterdir())[4]
    cut(victim)
    run = audit("sceneleap:GraspsAsTheyWere", GRASPS, root)
    assert told(run) == [("DC904", "directory"), ("DC904", "seed"), ("DC905", "made:DC109")]
    made = finding(run, "DC905")
    assert (made.examples, made.hides["DC109"]) == ((victim.stem,), 1)
    assert made.severity == "error"
    assert finding(run, "DC904", "directory").severity == "error"
    drawn = finding(run, "DC904", "seed")
    assert (drawn.severity, drawn.fields) == ("warning", ("hand_model_pose",))
    assert "numpy.random" in drawn.cause.text
    assert run.report.exit_code == 1


# ------------------------------------------------------------------------------------------ HO3D


def test_frames_that_a_correct_loader_serves_are_silent(data, audit):
    root = data("ho3d", train=3, evaluation=1, frames=(12, 16), vertices=False)
    run = audit("ho3d:train", HANDS, root, split="train")
    assert (told(run), run.report.exit_code) == ([], 0)


def test_copies_of_the_root_and_frames_that_are_passed_over_are_named(data, audit):
    root = data("ho3d", train=3, evaluation=2, frames=(12, 16), vertices=False)
    lines = (root / "evaluation.txt").read_text().split()
    for line in lines[3:5]:
        sequence, frame = line.split("/")
        (root / f"evaluation/{sequence}/meta/{frame}.pkl").unlink()
    run = audit("ho3d:evaluation_as_it_was", HANDS, root, split="evaluation")
    assert told(run) == [("DC905", "dropped"), ("DC905", "made:DC602")]
    made = finding(run, "DC905", "made:DC602")
    assert (made.failed, made.of) == (len(lines) - 2, len(lines) - 2)
    assert made.hides["DC602"] == made.failed
    assert "21 joints coincide" in made.message
    dropped = finding(run, "DC905", "dropped")
    assert (dropped.measured["count"], dropped.measured["length"]) == (len(lines), len(lines) - 2)
    assert dropped.cause.text == "as many as cannot be read"


# ------------------------------------------------------------------------------------------ ScanNet

LOADER = {"voxel": 0.02, "min_points": 10}
SMALL = {
    "train": 6,
    "validation": 1,
    "points": 6000,
    "low": 5000,
    "high": 8000,
    "instances": (4, 6),
}


def test_scenes_that_a_correct_loader_serves_are_silent(data, audit):
    run = audit("scannet:Scenes", SCENES, data("scannet", **SMALL), split="train", loader=LOADER)
    assert (told(run), run.report.exit_code) == ([], 0)


@pytest.mark.parametrize(("factory", "code"), [("relabelled", "DC401"), ("emptied", "DC405")])
def test_labels_that_the_loader_turns_into_ignore_are_named(data, audit, factory, code):
    run = audit(
        f"scannet:{factory}", SCENES, data("scannet", **SMALL), split="train", loader=LOADER
    )
    assert told(run) == [("DC905", f"made:{code}")]
    assert finding(run, "DC905").failed == 6


def test_a_scene_that_stands_in_for_another_is_named(data, audit):
    run = audit("scannet:KnownBad", SCENES, data("scannet", **SMALL), split="train", loader=LOADER)
    assert told(run) == [("DC905", "substituted")]
    found = finding(run, "DC905")
    assert found.measured["instead"] == {
        "000000000002": "000000000000",
        "000000000004": "000000000000",
    }
    assert found.hides == {"DC803": 2}
    assert run.valid.tolist() == [True, True, False, True, False, True]


def test_an_array_that_is_changed_in_place_is_named(data, audit):
    run = audit("scannet:InPlace", SCENES, data("scannet", **SMALL), split="train", loader=LOADER)
    assert told(run) == [("DC904", "again")]
    found = finding(run, "DC904")
    assert "raw_coordinates" in found.fields
    assert found.severity == "error"
    assert found.measured["difference"] > 0.5


# ------------------------------------------------------------------------------------------ LIBERO


def test_windows_that_a_correct_loader_serves_are_silent(data, audit):
    root = data("libero", tasks=1, demos=2, image=0)
    run = audit("libero:Windows", CHUNKS, root, compare=60)
    assert (told(run), run.report.exit_code) == ([], 0)
    assert any("samples were read once" in said for said in run.report.unchecked)


def test_an_index_that_is_ignored_is_named(data, audit):
    data("libero", tasks=1, demos=2, image=0)
    run = audit("libero:WindowsAsTheyWere", CHUNKS)
    found = finding(run, "DC905", "index-ignored")
    assert found.severity == "error"
    assert "DC904" not in {code for code, _ in told(run)}
    verdict = next(v for v in run.report.verdicts if v.code == "DC904")
    assert (verdict.verdict, "DC905" in verdict.why) == ("skip", True)


@pytest.fixture
def padded(place):
    """The schema of LIBERO with windows that start at every step."""
    (place / "libero32.yaml").write_text(
        "extends: libero\ndatacheck: 1\nname: libero32\nwindows: {length: 32, pad: edge, short: "
        "pad}\n"
    )
    return load_schema(place / "libero32.yaml")


def test_short_demonstrations_that_are_left_out_are_named(data, padded):
    root = data("libero", tasks=1, demos=8, image=0)
    (path,) = root.rglob("*.hdf5")
    with h5py.File(path, "r+") as file:
        for name in ("demo_2", "demo_5"):
            demo = file["data"][name]
            short = {field: demo[field][:20] for field in _fields(demo)}
            for field, values in short.items():
                del demo[field]
                demo[field] = values
            demo.attrs["num_samples"] = 20
    run = scan_loader("tests.audit.loaders.libero:WholeDemos", padded, root)
    dropped = finding(run, "DC905", "dropped")
    assert (dropped.measured["count"], dropped.measured["length"]) == (8, 6)
    assert dropped.cause.text == "as many as are shorter than 32 steps"


def test_windows_at_the_ends_of_demonstrations_that_are_left_out_are_named(data, padded, audit):
    root = data("libero", tasks=1, demos=2, image=0)
    (path,) = root.rglob("*.hdf5")
    with h5py.File(path) as file:
        steps = [len(demo["actions"]) for demo in file["data"].values()]
    run = audit("libero:Inside", CHUNKS, root, files_schema=padded, compare=20)
    assert told(run) == [("DC905", "dropped")]
    dropped = finding(run, "DC905", "dropped")
    assert (dropped.measured["count"], dropped.measured["length"]) == (
        sum(steps),
        sum(steps) - 2 * 31,
    )
    assert (
        dropped.cause.text
        == "as many as the windows that reach beyond the end of their episode (pad: edge)"
    )
    assert told(audit("libero:Windows", CHUNKS, root, files_schema=padded, compare=20)) == []


def _fields(group):
    names = []
    group.visititems(lambda name, node: names.append(name) if hasattr(node, "shape") else None)
    return names


# ----------------------------------------------------------------------------------------- minimind


def test_chats_that_a_correct_loader_serves_are_silent(data, audit):
    root = data("minimind", sft=30, pretrain=5, dpo=5)
    run = audit("minimind:Chats", CHATS)
    assert root.is_dir()
    assert (told(run), run.report.exit_code) == ([], 0)


def test_labels_that_the_loader_shifts_and_the_model_again_are_named(data, audit):
    data("minimind", sft=30, pretrain=5, dpo=5)
    run = audit("minimind:Shifted", CHATS)
    assert told(run) == [("DC710", "lag 1")]
    assert finding(run, "DC710").failed == 30


def test_a_system_prompt_from_the_global_generator_is_named(data, audit):
    data("minimind", sft=30, pretrain=5, dpo=5)
    run = audit("minimind:RandomPrompt", CHATS)
    assert told(run) == [("DC904", "seed")]
    found = finding(run, "DC904")
    assert set(found.fields) == {"0", "1"}
    assert "(random)" in found.cause.text
    meant = audit("minimind:RandomPrompt", CHATS, rules={"DC904": {"augmented": ["0", "1"]}})
    assert told(meant) == []
