"""The examples of docs/systems.md, each on a cache that was built of that system's files."""

from __future__ import annotations

import re

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from datacheck import build_cache
from datacheck.schema.load import load_schema, parse_schema
from datacheck.testing import synth
from datacheck.torch import Sampler

SIZES = {
    "sceneleap": {"train": 5, "test": 1, "rings": 4},
    "ho3d": {"train": 3, "evaluation": 1, "frames": (4, 6), "vertices": False},
    "scannetpp": {"train": 3, "validation": 1, "points": 900, "low": 800, "high": 1000},
    "libero": {"tasks": 1, "demos": 2, "image": 8},
    "minimind": {"pretrain": 2, "sft": 9, "dpo": 2},
}


@pytest.fixture
def page(repository):
    """The examples of each section: its title to them."""
    text = (repository / "docs/systems.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {
        one.split()[0].strip(","): re.findall(r"```\w+\n(.*?)```", one, flags=re.DOTALL)
        for one in sections
    }


def data_of(system, folder, seed=0):
    synth.write(system, folder / system, seed=seed, **SIZES[system])
    return folder / system


def executed(code, **names):
    exec(code, names)
    return names


def test_sceneleap_draws_the_same_in_every_process_and_replaces_what_has_no_surface(page, tmp_path):
    data = data_of("sceneleap", tmp_path)
    flat = sorted((data / "train").glob("*.npy"))[1]
    mesh = data / "objects" / flat.stem / "mesh/simplified.obj"
    mesh.unlink()
    build_cache("sceneleap", data, tmp_path / "cache", split="train")
    (code,) = page["SceneLeapUltra"]
    batches = []
    for workers in (0, 2):
        train = executed(code, path=tmp_path / "cache")["train"]
        assert len(train) == 5
        order = train.sampler(5, seed=1)
        batches += DataLoader(
            train, batch_sampler=order, collate_fn=train.collate_fn, num_workers=workers
        )
    one, two = batches
    assert one["scene_pc"].shape == (5, 8192, 3)
    assert one["hand_model_pose"].shape == (5, 64, 23)
    for name in one:
        assert torch.equal(one[name], two[name]), name
    quaternions = one["hand_model_pose"][..., 19:]
    torch.testing.assert_close(quaternions.norm(dim=-1), torch.ones(5, 64), atol=1e-4, rtol=0)
    starts = [0, *one["obj_verts_offset"].tolist()]
    for cloud, start, end in zip(one["scene_pc"], starts, starts[1:], strict=False):
        verts = one["obj_verts"][start:end]
        assert (cloud >= verts.amin(0) - 1e-5).all()
        assert (cloud <= verts.amax(0) + 1e-5).all()
        assert cloud.std(dim=0).min() > 0


def test_utnet_gets_opencv_joints_of_the_frame_whose_image_it_reads(page, tmp_path):
    data = data_of("ho3d", tmp_path)
    meta = sorted((data / "train").glob("*/meta/*.pkl"))
    meta[2].write_bytes(b"broken")
    build_cache("ho3d", data, tmp_path / "cache", split="train")
    (code,) = page["UTNet"]
    sequences = {path.parts[-3] for path in meta}
    held = {sorted(sequences)[0].rstrip("0123456789")}
    names = executed(code, path=tmp_path / "cache", read_image=lambda file: file, held_out=held)
    frames, train, validation = names["frames"], names["train"], names["validation"]
    whole = [f"train/{path.parts[-3]}/meta/{path.name}" for path in meta if path != meta[2]]
    assert [frames.cached.key(i) for i in range(len(frames))] == whole
    assert len(train) + len(validation) == len(whole)
    for part, inside in ((train, False), (validation, True)):
        seen = []
        for indices in Sampler(part, 1):
            sample = part[indices[0]]
            key = sample["rgb"].replace("/rgb/", "/meta/").replace(".jpg", ".pkl")
            stored = frames.cached[whole.index(key)]["handJoints3D"]
            assert (sample["joints_3d_gt"][:, 2] > 0).all()  # before the camera
            torch.testing.assert_close(
                sample["joints_3d_gt"][[16, 17, 18]], 1000 * stored[[17, 18, 20]]
            )
            seen.append(key)
        assert sorted(seen) == [
            key for key in whole if (key.split("/")[1].rstrip("0123456789") in held) == inside
        ]
        assert seen


def test_excap3d_gets_a_clean_list_and_the_arrays_of_its_files(page, tmp_path, monkeypatch):
    data = data_of("scannetpp", tmp_path)
    first, *rest = sorted((data / "train").glob("*.npy"))
    points = np.load(first)
    points[:, 11] = -100  # no instance
    np.save(first, points)
    monkeypatch.chdir(tmp_path)
    listed, schema, replaced = page["ExCap3D"]
    assert dict(parse_schema(schema).loader.steps) == dict(
        load_schema("scannetpp").loader.steps
    ) | {"clip": 150_000}
    executed(listed, data=data)
    assert (tmp_path / "train_clean.txt").read_text().split() == [path.stem for path in rest]
    build_cache("scannetpp", data, tmp_path / "cache", split="train")
    load = executed(replaced, path=tmp_path / "cache")["load"]
    seen = set()
    for index in range(3):
        found, key = load(index)
        np.testing.assert_array_equal(found, np.load(data / key))
        found -= found.mean(axis=0)  # as theirs does
        seen.add(key)
    assert seen == {f"train/{path.name}" for path in rest}


def test_rdt_gets_a_chunk_at_every_step_of_every_demonstration(page, tmp_path):
    data = data_of("libero", tmp_path)
    build_cache("libero", data, tmp_path / "cache")
    (code,) = page["RDT"]

    def fill(values):
        return torch.nn.functional.pad(values, (0, 128 - values.shape[-1]))

    names = executed(code, path=tmp_path / "cache", fill_in_state=fill, fill_in_action=fill)
    chunks, get_item = names["chunks"], names["get_item"]
    (file,) = data.rglob("*.hdf5")
    with h5py.File(file) as opened:
        demos = [opened[f"data/demo_{i}"] for i in range(2)]
        lengths = [len(demo["actions"]) for demo in demos]
        assert len(chunks) == sum(lengths)
        for demo, start, length in ((0, 0, lengths[0]), (1, lengths[0], lengths[1])):
            group = demos[demo]
            for step in (0, 1, length - 1):
                sample = get_item(start + step)
                actions = np.asarray(group["actions"][step : step + 64], np.float32)
                np.testing.assert_array_equal(sample["actions"][: len(actions), :7], actions)
                assert sample["actions"].shape == (64, 128)
                assert sample["actions_is_pad"].tolist() == [i >= len(actions) for i in range(64)]
                assert sample["cam_high_mask"].tolist() == [step > 0, True]
                image = np.asarray(group["obs/agentview_rgb"][step])
                np.testing.assert_array_equal(sample["cam_high"][1], image[::-1])
                joints = np.asarray(group["obs/joint_states"][step], np.float32)
                np.testing.assert_array_equal(sample["state"][0, :7], joints)
    assert sample["meta"]["instruction"]


def test_minimind_gets_ids_and_labels_that_are_not_shifted(page, tmp_path):
    data = data_of("minimind", tmp_path)
    pipeline, code = page["minimind"]
    (data / "tokens.yaml").write_text(pipeline)
    (built,) = build_cache(data / "tokens.yaml", data, tmp_path / "cache")
    names = {"path": built.path, "batch_size": 3}
    whole = list(executed(code, state=None, **names)["loader"])
    assert len(whole) == 3
    for ids, labels in whole:
        assert (ids.shape, ids.dtype, labels.dtype) == ((3, 768), torch.int64, torch.int64)
        trained = labels != -100
        assert trained.any(dim=1).all()
        assert torch.equal(labels[trained], ids[trained])
        assert (ids < 6400).all()
    first = executed(code, state=None, **names)
    next(iter(first["loader"]))
    rest = list(executed(code, state=first["batches"].state_dict(batches=1), **names)["loader"])
    assert [ids.tolist() for ids, _ in rest] == [ids.tolist() for ids, _ in whole[1:]]
