"""The layouts of the five systems and their neighbours in miniature, read under the schemas that ship."""

import json
import pickle

import h5py
import numpy as np
import zarr

from datacheck.schema.load import load_schema
from datacheck.sources import list_files, open_source, plan_work
from tests.sources.schemas import every, facts, schema


def read_all(root, spec, roots=None):
    """Return (work, {key: (split, group, fields)}, unread) of a folder under a schema."""
    listing = list_files(root, roots)
    work = plan_work(spec, listing)
    source = open_source(spec, root, roots)
    samples, unread = {}, []
    for item in work.items:
        found, lost = every(source, item)
        samples |= found
        unread += lost
    return work, samples, unread


def test_ho3d_lists_pickles_and_an_evaluation_with_the_root_joint_only(tmp_path):
    frame = {
        "handJoints3D": np.zeros((21, 3)),
        "handPose": np.zeros(48),
        "handBeta": np.zeros(10),
        "handTrans": np.zeros(3),
        "camMat": np.eye(3),
        "objName": "010_potted_meat_can",
        "handVertContact": None,
    }
    for seq, frames in (("ABF10", 3), ("ABF11", 2)):
        for number in range(frames):
            path = tmp_path / f"train/{seq}/meta/{number:04d}.pkl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(frame, protocol=2))
            (path.parent.parent / "rgb").mkdir(exist_ok=True)
            (path.parent.parent / f"rgb/{number:04d}.jpg").write_bytes(b"\xff\xd8")
    path = tmp_path / "evaluation/SM1/meta/0000.pkl"
    path.parent.mkdir(parents=True)
    path.write_bytes(
        pickle.dumps(
            {"handJoints3D": np.zeros(3), "camMat": np.eye(3), "handBoundingBox": [1, 2, 30, 40]}
        )
    )
    (tmp_path / "train.txt").write_text("ABF10/0000\nABF10/0002\nABF11/0000\nABF11/0009\n")
    (tmp_path / "evaluation.txt").write_text("SM1/0000\n")
    (tmp_path / "README.txt").write_text("HO-3D\n")
    spec = load_schema("ho3d")
    work, samples, unread = read_all(tmp_path, spec)
    assert list(samples) == [
        "evaluation/SM1/meta/0000.pkl",
        "train/ABF10/meta/0000.pkl",
        "train/ABF10/meta/0002.pkl",
        "train/ABF11/meta/0000.pkl",
    ]
    assert unread == []
    assert [(n.key, n.missing) for n in work.notes] == [
        ("train/ABF10/meta/0001.pkl", False),
        ("train/ABF11/meta/0001.pkl", False),
        ("train/ABF11/meta/0009.pkl", True),
    ]
    assert samples["evaluation/SM1/meta/0000.pkl"]["handJoints3D"].shape == (3,)
    np.testing.assert_array_equal(
        samples["evaluation/SM1/meta/0000.pkl"]["handBoundingBox"], [1, 2, 30, 40]
    )
    assert sorted(samples["evaluation/SM1/meta/0000.pkl"]) == [
        "camMat",
        "handBoundingBox",
        "handJoints3D",
    ]
    assert sorted(samples["train/ABF10/meta/0000.pkl"]) == [
        "camMat",
        "handBeta",
        "handJoints3D",
        "handPose",
        "handTrans",
    ]
    source = open_source(spec, tmp_path)
    told = facts(source, work.items[1])["train/ABF10/meta/0000.pkl"]
    # The five cameras of one recording
    assert (told["id"], told["split_key"]) == ("ABF10/0000", "ABF1")
    (block,) = source.read(work.items[1])
    assert (block.split, block.groups) == ("train", ["ABF10"])


def test_scannetpp_columns_ground_truth_and_captions(tmp_path):
    table = np.zeros((5, 12), np.float32)
    table[:, 9:] = [[0, 3, 7]] * 5
    for split, scene, columns in (
        ("train", "0a5c013435", 12),
        ("train", "0a7cc12c0e", 12),
        ("test", "1b75758486", 10),
    ):
        (tmp_path / split).mkdir(exist_ok=True)
        np.save(tmp_path / split / f"{scene}.npy", table[:, :columns])
    (tmp_path / "instance_gt/train").mkdir(parents=True)
    (tmp_path / "instance_gt/train/0a5c013435.txt").write_text("3008\n" * 5)
    (tmp_path / "captions").mkdir()
    (tmp_path / "captions/0a5c013435.json").write_text(
        json.dumps({"objects": {"7": {"summarized": "a chair"}}})
    )
    (tmp_path / "label_database.yaml").write_text("3: {name: chair, validation: true}\n")
    spec = load_schema("scannetpp")
    work, samples, unread = read_all(tmp_path, spec)
    assert unread == []
    assert list(work.unclaimed) == ["label_database.yaml"]
    full = samples["train/0a5c013435.npy"]
    assert sorted(full) == [
        "captions",
        "instance",
        "instance_gt",
        "normal",
        "rgb",
        "segment",
        "semantic",
        "xyz",
    ]
    assert full["captions"] == {"7": {"summarized": "a chair"}}
    assert (full["instance_gt"].dtype, set(full["instance_gt"])) == (np.int64, {3008})
    assert (full["instance"].shape, full["xyz"].shape) == ((5,), (5, 3))
    assert sorted(samples["test/1b75758486.npy"]) == ["normal", "rgb", "segment", "xyz"]
    source = open_source(spec, tmp_path)
    told = facts(source, work.items[-1])["train/0a7cc12c0e.npy"]
    assert told["absent/captions"] == "captions/0a7cc12c0e.json"
    assert told["absent/instance_gt"] == "instance_gt/train/0a7cc12c0e.txt"


def test_captions_in_another_folder(tmp_path):
    (tmp_path / "data/train").mkdir(parents=True)
    np.save(tmp_path / "data/train/0a5c013435.npy", np.zeros((2, 12), np.float32))
    (tmp_path / "words").mkdir()
    (tmp_path / "words/0a5c013435.json").write_text('{"objects": {}}')
    _, samples, _ = read_all(
        tmp_path / "data", load_schema("scannetpp"), {"captions": tmp_path / "words"}
    )
    assert samples["train/0a5c013435.npy"]["captions"] == {}


def test_sceneleap_pickled_dicts_with_meshes_beside_them(tmp_path):
    uid = "0123456789abcdef0123456789abcdef"
    values = {"grasp_qpos": np.zeros((6, 23)), "obj_pose": np.zeros(7)}
    np.save(tmp_path / f"red_mug_{uid}.npy", values, allow_pickle=True)
    np.save(tmp_path / f"bowl_{uid}.npy", values, allow_pickle=True)
    mesh = tmp_path / f"objects/red_mug_{uid}/mesh/simplified.obj"
    mesh.parent.mkdir(parents=True)
    mesh.write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 2 3\nf 1 2 4\nf 1 3 4\nf 2 3 4\n")
    spec = load_schema("sceneleap")
    work, samples, unread = read_all(tmp_path, spec)
    assert (unread, list(work.unclaimed)) == ([], [])
    mug = samples[f"red_mug_{uid}.npy"]
    assert {name: value.shape for name, value in mug.items()} == {
        "grasp_qpos": (6, 23),
        "obj_pose": (7,),
        "verts": (4, 3),
        "faces": (4, 3),
    }
    assert sorted(samples[f"bowl_{uid}.npy"]) == ["grasp_qpos", "obj_pose"]
    told = facts(open_source(spec, tmp_path), work.items[0])[f"bowl_{uid}.npy"]
    assert (told["id"], told["split_key"]) == (f"bowl_{uid}", f"bowl_{uid}")
    assert told["absent/verts"] == f"objects/bowl_{uid}/mesh/simplified.obj"


def test_sceneleap_cache_one_group_per_index(tmp_path):
    name = "objectcentric_0123456789abcdef0123456789abcdef_64.h5"
    with h5py.File(tmp_path / name, "w") as file:
        for number in range(3):
            group = file.create_group(str(number))
            group["is_error"] = number == 2
            group["scene_pc"] = np.zeros((8, 3), np.float32)
            group["obj_verts"] = np.zeros((number + 4, 3), np.float32)
            group["obj_code"] = np.bytes_(f"mug_{number}")
    _, samples, unread = read_all(tmp_path, load_schema("sceneleap_cache"))
    assert unread == []
    assert list(samples) == [f"{name}:/{n}" for n in range(3)]
    assert [bool(s["is_error"]) for s in samples.values()] == [False, False, True]
    assert [s["obj_code"] for s in samples.values()] == ["mug_0", "mug_1", "mug_2"]
    assert [len(s["obj_verts"]) for s in samples.values()] == [4, 5, 6]


def test_libero_demos_with_attributes(tmp_path):
    path = tmp_path / "libero_10/KITCHEN_SCENE3_turn_on_the_stove_demo.hdf5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["problem_info"] = json.dumps({"language_instruction": "turn on the stove"})
        for number, steps in enumerate((70, 41)):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = steps
            demo.attrs["model_file"] = "<mujoco/>" * 1000
            for name, width in (("actions", 7), ("states", 79)):
                demo[name] = np.zeros((steps, width))
            for name, width in (
                ("ee_pos", 3),
                ("ee_ori", 3),
                ("joint_states", 7),
                ("gripper_states", 2),
            ):
                demo[f"obs/{name}"] = np.zeros((steps, width))
            demo["dones"] = np.zeros(steps, np.uint8)
    spec = load_schema("libero")
    work, samples, unread = read_all(tmp_path, spec)
    assert unread == []
    keys = [f"libero_10/{path.name}:/data/demo_{n}" for n in range(2)]
    assert list(samples) == keys
    assert [len(s["actions"]) for s in samples.values()] == [70, 41]
    assert {s.pop("instruction") for s in samples.values()} == {"turn on the stove"}
    assert all(len({len(v) for v in s.values()}) == 1 for s in samples.values())
    told = facts(open_source(spec, tmp_path), work.items[0])
    assert [told[key]["attrs/num_samples"] for key in keys] == [70, 41]
    assert [told[key]["split_key"] for key in keys] == [f"libero_10/{path.name}"] * 2


def test_aloha_one_episode_per_file(tmp_path):
    for task in ("fold", "pour"):
        (tmp_path / task).mkdir()
        with h5py.File(tmp_path / task / "episode_0.hdf5", "w") as file:
            file["action"] = np.zeros((130, 14), np.float32)
            file["observations/qpos"] = np.zeros((130, 14), np.float32)
            frames = file.create_dataset(
                "observations/images/cam_high", (2,), h5py.vlen_dtype(np.uint8)
            )
            frames[0], frames[1] = np.arange(5, dtype=np.uint8), np.arange(3, dtype=np.uint8)
    spec = load_schema("aloha")
    work, samples, unread = read_all(tmp_path, spec)
    assert unread == []
    assert [sorted(s) for s in samples.values()] == [["action", "observations/qpos"]] * 2
    told = [facts(open_source(spec, tmp_path), item)[item.path]["id"] for item in work.items]
    assert told == ["fold/episode_0.hdf5", "pour/episode_0.hdf5"]  # "0" would be two samples


def test_minimind_chats_texts_and_preferences(tmp_path):
    turn = [{"role": "user", "content": "你好"}, {"role": "assistant", "content": "Hi"}]
    (tmp_path / "sft_mini_512.jsonl").write_text(
        json.dumps({"conversations": turn}, ensure_ascii=False) + "\n"
    )
    (tmp_path / "pretrain_hq.jsonl").write_text('{"text": "一段文字"}\n{"text": "b"}\n')
    (tmp_path / "dpo.jsonl").write_text(json.dumps({"chosen": turn, "rejected": turn[:1]}) + "\n")
    for name, key, field, value in (
        ("minimind_sft", "sft_mini_512.jsonl:000000000000", "conversations", turn),
        ("minimind_pretrain", "pretrain_hq.jsonl:000000000000", "text", "一段文字"),
        ("minimind_dpo", "dpo.jsonl:000000000000", "rejected", turn[:1]),
    ):
        _, samples, unread = read_all(tmp_path, load_schema(name))
        assert unread == []
        assert samples[key][field] == value


def test_pusht_replay_buffer(tmp_path):
    root = zarr.open_group(tmp_path / "pusht_cchi_v7_replay.zarr", mode="w", zarr_format=2)
    for name, shape in (("action", (10, 2)), ("state", (10, 5)), ("img", (10, 4, 4, 3))):
        root.create_array(f"data/{name}", data=np.ones(shape, np.float32), chunks=(4, *shape[1:]))
    root.create_array("meta/episode_ends", data=np.array([4, 10]))
    work, samples, unread = read_all(tmp_path, load_schema("replay_zarr"))
    assert (unread, list(work.unclaimed)) == ([], [])
    assert [s["action"].shape for s in samples.values()] == [(4, 2), (6, 2)]
    assert list(samples) == [f"pusht_cchi_v7_replay.zarr:{n:012d}" for n in range(2)]


def test_joints_of_many_frames_in_one_array(tmp_path):
    joints = np.random.default_rng(0).normal(size=(50, 21, 3))
    np.save(tmp_path / "rhd_test.npy", joints)
    spec = schema(
        {"files": "rhd_{split}.npy", "each": "row"},
        {"joints": {"role": "joints", "shape": [21, 3]}},
    )
    work, samples, _ = read_all(tmp_path, spec)
    assert work.items[0].split == "test"
    np.testing.assert_array_equal(np.stack([s["joints"] for s in samples.values()]), joints)


def test_any_folder_under_the_schema_for_any_folder(tmp_path):
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "a.npy", np.zeros(3))
    np.savez(tmp_path / "d/b.npz", x=np.zeros(3), y=np.ones(2))
    (tmp_path / "notes.md").write_text("hello")
    (tmp_path / "bad.npy").write_bytes(b"no")
    spec = load_schema("files")
    work = plan_work(spec, list_files(tmp_path))
    assert [item.path for item in work.items] == ["a.npy", "bad.npy", "d/b.npz"]
    assert list(work.unclaimed) == ["notes.md"]
    source = open_source(spec, tmp_path)
    parts = list(source.read_all(work.items, lambda _: None))
    assert [getattr(part, "keys", None) or part.key for part in parts] == [
        "bad.npy",
        ["a.npy"],
        ["d/b.npz"],
    ]
