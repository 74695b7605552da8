"""Clean data must be clean by arithmetic that owes nothing to the rules, in every seed, and the same every time."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
import tokenizers
import yaml

from datacheck.errors import UsageError
from datacheck.testing import synth
from datacheck.testing.ho3d import FINGERS
from datacheck.testing.minimind import SPECIAL

SEEDS = range(6)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        f.relative_to(folder).as_posix(): f.read_bytes()
        for f in sorted(folder.rglob("*"))
        if f.is_file()
    }


SMALL = {
    "sceneleap": {"train": 3, "test": 2},
    "ho3d": {"train": 2, "evaluation": 1, "frames": (5, 8)},
    "scannetpp": {"train": 2, "validation": 1, "points": 3000, "low": 2500},
    "scannet": {"train": 2, "validation": 1, "points": 3000, "low": 2500},
    "scannet_raw": {"train": 2, "points": 3000, "low": 2500},
    "libero": {"tasks": 1, "demos": 2, "image": 4},
    "robomimic": {"tasks": 1, "demos": 3},
    "aloha": {"tasks": 1, "episodes": 2},
    "lerobot": {"episodes": 3, "rows_files": 2, "video_files": 2},
    "lerobot_v21": {"episodes": 3},
    "minimind": {"pretrain": 5, "sft": 5, "dpo": 5},
}


@pytest.mark.parametrize("system", sorted(SMALL))
def test_the_same_seed_writes_the_same_bytes_and_another_does_not(system, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        synth.write(system, tmp_path / name, seed=seed, **SMALL[system])
    a, b, c = (tree(tmp_path / n) for n in "abc")
    assert a == b
    assert a != c


def test_a_sample_does_not_depend_on_how_many_others_there_are(tmp_path):
    synth.write("sceneleap", tmp_path / "few", train=2, test=0)
    synth.write("sceneleap", tmp_path / "many", train=5, test=3)
    few, many = tree(tmp_path / "few"), tree(tmp_path / "many")
    assert few.items() <= many.items()


def test_unknown_systems_and_parameters_are_named(tmp_path):
    with pytest.raises(UsageError, match="known are sceneleap"):
        synth.write("scenelap", tmp_path)
    with pytest.raises(UsageError, match="no size parameter 'scenes'; it has train"):
        synth.write("scannetpp", tmp_path, scenes=3)


@pytest.mark.parametrize("system", ["sceneleap", "ho3d", "scannetpp", "libero", "minimind"])
def test_the_demo_size_is_a_few_dozen_samples(system, tmp_path):
    synth.write(system, tmp_path)
    assert sum(len(data) for data in tree(tmp_path).values()) < 40 << 20


@pytest.mark.parametrize("seed", SEEDS)
def test_sceneleap(seed, tmp_path):
    synth.write("sceneleap", tmp_path, seed=seed, train=4, test=2)
    files = sorted((tmp_path / "train").glob("*.npy")) + sorted((tmp_path / "test").glob("*.npy"))
    assert len(files) == 6
    for path in files:
        name, _, uid = path.stem.rpartition("_")
        assert name
        assert len(bytes.fromhex(uid)) == 16
        record = np.load(path, allow_pickle=True).item()
        grasps, pose = record["grasp_qpos"], record["obj_pose"]
        assert set(record) == {"grasp_qpos", "obj_pose"}
        assert grasps.ndim == 2
        assert grasps.shape[1] == 23
        assert pose.shape == (7,)
        assert np.isfinite(grasps).all()
        assert len(np.unique(grasps, axis=0)) == len(grasps) >= 64
        np.testing.assert_allclose(np.linalg.norm(grasps[:, 3:7], axis=1), 1, atol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(pose[3:]), 1, atol=1e-12)
        assert np.abs(grasps[:, 7:]).max() < 2.6
        assert grasps[:, 2].min() > 0
        away = np.linalg.norm(grasps[:, :3] - pose[:3], axis=1)
        assert 0.02 < np.median(away) < 0.5
        _check_mesh(tmp_path / "objects" / path.stem / "mesh" / "simplified.obj", pose)


def _check_mesh(path, pose):
    lines = [line.split() for line in path.read_text().splitlines()]
    vertices = 0.1 * np.array([line[1:] for line in lines if line[0] == "v"], dtype=float)
    faces = np.array([line[1:] for line in lines if line[0] == "f"], dtype=int) - 1
    assert 0.01 < np.linalg.norm(np.ptp(vertices, axis=0)) < 0.6
    edges = Counter(tuple(sorted((int(f[i]), int(f[i - 1])))) for f in faces for i in range(3))
    assert set(edges.values()) == {2}  # closed
    assert len(vertices) - len(edges) + len(faces) == 2  # Euler: a sphere
    assert abs(vertices[:, 2].min() + pose[2]) < 1e-5  # it stands on the table


def test_palms_point_at_the_object(tmp_path):
    synth.write("sceneleap", tmp_path, train=1, test=0)
    (path,) = (tmp_path / "train").glob("*.npy")
    record = np.load(path, allow_pickle=True).item()
    w, x, y, z = record["grasp_qpos"][:, 3:7].T
    # Third column of R
    axis = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=1)
    toward = record["obj_pose"][:3] - record["grasp_qpos"][:, :3]
    cosine = np.einsum("ij,ij->i", axis, toward) / np.linalg.norm(toward, axis=1)
    assert cosine.min() > 0.8


HO3D_KEYS = [
    "camIDList",
    "camMat",
    "handBeta",
    "handJoints3D",
    "handPose",
    "handTrans",
    "handVertContact",
    "handVertDist",
    "handVertIntersec",
    "handVertObjSurfProj",
    "objCorners3D",
    "objCorners3DRest",
    "objLabel",
    "objName",
    "objRot",
    "objTrans",
]


def _frames(folder):
    return [
        pickle.loads(f.read_bytes(), encoding="latin1")  # noqa: S301
        for f in sorted((folder / "meta").iterdir())
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_ho3d_training_frames(seed, tmp_path):
    synth.write("ho3d", tmp_path, seed=seed, train=3, evaluation=1, frames=(50, 60))
    listed = (tmp_path / "train.txt").read_text().splitlines()
    on_disk = {f"{p.parts[-3]}/{p.stem}" for p in (tmp_path / "train").rglob("*.pkl")}
    assert len(listed) == len(on_disk)
    assert set(listed) == on_disk
    for folder in sorted((tmp_path / "train").iterdir()):
        records = _frames(folder)
        assert all(sorted(r) == HO3D_KEYS for r in records)
        first = records[0]
        shapes = {
            k: np.shape(first[k])
            for k in ("camMat", "handPose", "handBeta", "handTrans", "handJoints3D")
        }
        assert shapes == {
            "camMat": (3, 3),
            "handPose": (48,),
            "handBeta": (10,),
            "handTrans": (3,),
            "handJoints3D": (21, 3),
        }
        assert first["handVertObjSurfProj"].shape == (778, 3)
        assert isinstance(first["objName"], str)
        joints = np.stack([r["handJoints3D"] for r in records])
        _check_bones(joints)
        assert joints[:, :, 2].max() < 0  # OpenGL
        assert (np.abs(joints[:, 0, 2]) > 0.3).all()
        assert (np.abs(joints[:, 0, 2]) < 1.0).all()
        _check_view(joints, first["camMat"])
        pose = np.stack([r["handPose"] for r in records]).reshape(len(records), 16, 3)
        assert np.linalg.norm(pose, axis=2).max() < np.pi
        beta = np.stack([r["handBeta"] for r in records])
        assert np.ptp(beta, axis=0).max() == 0
        assert np.abs(beta).max() <= 3
        assert all(np.ptp(r["objCorners3D"], axis=0).max() > 0.02 for r in records)


def _check_bones(joints):
    lengths = []
    for first, tip, bones, _, _ in FINGERS.values():
        chain = [0, first, first + 1, first + 2, tip]
        found = np.linalg.norm(np.diff(joints[:, chain], axis=1), axis=2)
        assert found.std(axis=0).max() < 1e-12  # rigid
        np.testing.assert_allclose(found[0] / np.array(bones), found[0, 0] / bones[0], rtol=1e-9)
        straight = np.linalg.norm(joints[:, tip] - joints[:, 0], axis=1)
        assert (straight > np.linalg.norm(joints[:, first] - joints[:, 0], axis=1)).mean() > 0.95
        lengths += list(found[0])
    assert 0.025 < np.median(lengths) < 0.031  # the mean hand has 28 mm
    still = np.ptp(joints - joints[:, :1], axis=0).max()
    assert still > 0.01  # it moves


def _check_view(joints, camera):
    flipped = joints * [1, -1, -1]
    image = np.einsum("ij,tkj->tki", camera, flipped)
    u, v = image[..., 0] / image[..., 2], image[..., 1] / image[..., 2]
    inside = (u >= 0) & (u < 640) & (v >= 0) & (v < 480)
    assert np.median(inside.mean(axis=1)) == 1
    assert inside.mean(axis=1).min() >= 0.9


def test_ho3d_evaluation_holds_the_root_only_and_no_training_subject(tmp_path):
    synth.write("ho3d", tmp_path, train=6, evaluation=2)
    records = [r for folder in sorted((tmp_path / "evaluation").iterdir()) for r in _frames(folder)]
    for record in records:
        assert record["handJoints3D"].shape == (3,)
        assert "handPose" not in record
        x1, y1, x2, y2 = record["handBoundingBox"]
        assert x1 < x2
        assert y1 < y2
    subjects = [
        {d.name.rstrip("0123456789") for d in (tmp_path / s).iterdir()}
        for s in ("train", "evaluation")
    ]
    assert not subjects[0] & subjects[1]


def test_the_real_number_of_ho3d_sequences_has_distinct_names(tmp_path):
    synth.write("ho3d", tmp_path, train=55, evaluation=13, frames=(1, 1), vertices=False)
    assert len(list((tmp_path / "train").iterdir())) == 55
    assert len(list((tmp_path / "evaluation").iterdir())) == 13


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("system", ["scannetpp", "scannet"])
def test_scenes(system, seed, tmp_path):
    synth.write(system, tmp_path, seed=seed, train=2, validation=1)
    ignored, none = (-100, -100) if system == "scannetpp" else (0, -1)
    known = yaml.safe_load((tmp_path / "label_database.yaml").read_text())
    for split, listing in (("train", "train_list.txt"), ("validation", "val_list.txt")):
        entries = yaml.safe_load((tmp_path / f"{split}_database.yaml").read_text())
        names = (tmp_path / listing).read_text().split()
        assert names == [e["scene"] for e in entries]
        for entry in entries:
            cloud = np.load(tmp_path / entry["filepath"])
            assert cloud.dtype == np.float32
            assert cloud.shape == (entry["file_len"], 12)
            truth = np.loadtxt(tmp_path / entry["instance_gt_filepath"], dtype=np.int64)
            labels = cloud[:, 9:].astype(np.int64)
            assert (labels == cloud[:, 9:]).all()
            assert (truth == labels[:, 1] * 1000 + labels[:, 2] + 1).all()
            _check_room(cloud)
            instances = {
                i: labels[labels[:, 2] == i, 1] for i in np.unique(labels[:, 2]) if i != none
            }
            assert 20 <= len(instances) <= 26
            assert max(instances) < 999
            for classes in instances.values():
                assert len(set(classes.tolist())) == 1
                assert int(classes[0]) in known
            assert set(np.unique(labels[:, 1]).tolist()) - {ignored} <= set(known)
            assert (labels[:, 1] == ignored).any()
            if system == "scannetpp":
                told = json.loads((tmp_path / "captions" / f"{entry['scene']}.json").read_text())[
                    "objects"
                ]
                assert {int(i) for i in told} == set(instances)


def _check_room(cloud):
    size = np.ptp(cloud[:, :3], axis=0)
    assert 3 < size.max() < 9
    assert 2 < size[2] < 3.5
    np.testing.assert_allclose(np.linalg.norm(cloud[:, 6:9], axis=1), 1, atol=1e-6)
    rgb = cloud[:, 3:6]
    assert rgb.min() >= 0
    assert rgb.max() <= 255
    assert 0.1 < rgb.mean() / 255 < 0.9
    segments = np.unique(cloud[:, 9])
    assert (segments == np.arange(len(segments))).all()
    objects = cloud[cloud[:, 11] >= 0]
    for i in np.unique(objects[:, 11]):
        mine = objects[objects[:, 11] == i, :3].astype(np.float64)
        for edge in (0.02, 0.06):
            occupied = len(np.unique(np.floor((mine - cloud[:, :3].min(axis=0)) / edge), axis=0))
            assert occupied >= 60, (i, edge, occupied)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("suite", ["libero_spatial", "libero_10"])
def test_libero(suite, seed, tmp_path):
    synth.write("libero", tmp_path, seed=seed, suites=(suite,), tasks=2, demos=4, image=8)
    files = sorted((tmp_path / suite).glob("*_demo.hdf5"))
    assert len(files) == 2
    for path in files:
        with h5py.File(path) as file:
            data = file["data"]
            assert json.loads(data.attrs["problem_info"])["language_instruction"]
            demos = [data[name] for name in data]
            assert len(demos) == data.attrs["num_demos"]
            assert sum(len(d["actions"]) for d in demos) == data.attrs["total"]
            for demo in demos:
                _check_demo(demo)


def _check_demo(demo):
    arrays = {}
    demo.visititems(
        lambda name, item: (
            arrays.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
        )
    )
    steps = int(demo.attrs["num_samples"])
    assert {len(a) for a in arrays.values()} == {steps}
    assert steps >= 64
    actions = arrays["actions"]
    assert actions.dtype == np.float64
    assert np.abs(actions).max() <= 1
    assert set(np.unique(actions[:, 6]).tolist()) == {-1, 1}
    assert actions[:, :6].std(axis=0).min() > 0.01
    joints = arrays["obs/joint_states"]
    np.testing.assert_array_equal(joints[:-1], arrays["states"][1:, 1:8])
    np.testing.assert_array_equal(demo.attrs["init_state"], arrays["states"][0])
    assert np.abs(joints).max() < 2 * np.pi
    speed = np.linalg.norm(np.diff(arrays["obs/ee_pos"], axis=0), axis=1) * 20
    assert speed.max() < 1
    assert (speed < 0.01 * np.quantile(speed, 0.99)).mean() < 0.05  # never idle for long
    fingers = arrays["obs/gripper_states"]
    assert np.corrcoef(actions[:-5, 6], fingers[5:, 0])[0, 1] < -0.5  # +1 closes
    np.testing.assert_allclose(fingers[:, 0], -fingers[:, 1], atol=1e-4)
    assert arrays["rewards"].sum() == arrays["rewards"][-1] == 1
    assert all(a.reshape(steps, -1).std() > 0 for a in arrays.values())


def test_robomimic_and_aloha(tmp_path):
    synth.write("robomimic", tmp_path / "r", tasks=1, demos=4)
    (path,) = (tmp_path / "r").rglob("*.hdf5")
    with h5py.File(path) as file:
        named = {*file["mask/train"][()].astype(str), *file["mask/valid"][()].astype(str)}
        assert named == set(file["data"])
        demo = file["data/demo_0"]
        np.testing.assert_allclose(
            np.linalg.norm(demo["obs/robot0_eef_quat"][()], axis=1), 1, atol=1e-12
        )
        np.testing.assert_array_equal(
            demo["obs/robot0_eef_pos"][1:], demo["next_obs/robot0_eef_pos"][:-1]
        )
    synth.write("aloha", tmp_path / "a", tasks=1, episodes=2)
    for path in (tmp_path / "a").rglob("*.hdf5"):
        with h5py.File(path) as file:
            assert file["action"].shape == file["observations/qpos"].shape
            np.testing.assert_array_equal(file["action"][:-1], file["observations/qpos"][1:])


@pytest.mark.parametrize("seed", SEEDS)
def test_minimind(seed, tmp_path):
    synth.write("minimind", tmp_path, seed=seed)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    assert [tokenizer.token_to_id(t) for t in SPECIAL] == list(range(36))
    assert tokenizer.get_vocab_size() <= 6400
    start, end = (tokenizer.encode(t).ids for t in ("<|im_start|>assistant\n", "<|im_end|>\n"))
    seen = set()
    for line in (tmp_path / "sft_t2t_mini.jsonl").read_text(encoding="utf-8").splitlines():
        messages = json.loads(line)["conversations"]
        assert line not in seen
        seen.add(line)
        roles = [m["role"] for m in messages if m["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) != []
        assert all(m["content"] == m["content"].strip() != "" for m in messages)
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        assert len(ids) < 768
        spots = [i for i in range(len(ids)) if ids[i : i + len(start)] == start]
        assert len(spots) == len(roles) // 2
        assert all(ids[i + len(start) : i + len(start) + 2] != end for i in spots)
    pretrain = [
        json.loads(x)["text"]
        for x in (tmp_path / "pretrain_t2t_mini.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(set(pretrain)) == len(pretrain)
    assert any("的" in t for t in pretrain)
    assert any("the" in t for t in pretrain)
    pairs = [json.loads(x) for x in (tmp_path / "dpo.jsonl").read_text("utf-8").splitlines()]
    assert all(p["chosen"][0] == p["rejected"][0] and p["chosen"] != p["rejected"] for p in pairs)


def test_the_template_renders_what_the_markers_expect(tmp_path):
    jinja2 = pytest.importorskip("jinja2.sandbox", reason="the extra 'text' is not installed")
    synth.write("minimind", tmp_path, pretrain=1, sft=1, dpo=1)
    config = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text("utf-8"))
    template = jinja2.ImmutableSandboxedEnvironment().from_string(config["chat_template"])
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    expected = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nhi<|im_end|>\n"
    assert template.render(messages=messages) == expected
