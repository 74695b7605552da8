"""Every real file of a known format is read or refused with a reason; those that open elsewhere open here."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats.base import format_of, store_markers
from tests.formats.reading import read_all


def listed(root: Path) -> list[Path]:
    """Files and stores below a folder."""
    found = []
    for path in sorted(root.iterdir()):
        if path.is_file() or any((path / marker).is_file() for marker in store_markers()):
            found.append(path)
        else:
            found += listed(path)
    return found


def opening(root: Path) -> dict[str, bool]:
    """What the index of the data says: path to whether the usual reader opens it."""
    rows = (re.split(r"(?<!\\)\|", line) for line in (root / "INDEX.md").read_text().splitlines())
    return {
        row[1].strip().rstrip("/"): row[6].strip() == "True"
        for row in rows
        if len(row) > 7 and "/" in row[1]
    }


@pytest.mark.parametrize(
    "folder", ["a_pointclouds", "b_scenes_labels", "c_robot_demos", "d_hand_joints", "e_lm_corpora"]
)
def test_good_folders_are_read(shared_data, folder):
    opens = opening(shared_data)
    paths = [p for p in listed(shared_data / folder) if format_of(p.name)]
    assert paths
    for path in paths:
        name = path.relative_to(shared_data).as_posix()
        assert opens[name], name
        assert read_all(path), name


def test_malformed_files_are_read_or_refused(shared_data):
    counts = {"read": 0, "refused": 0}
    for path in listed(shared_data / "f_malformed"):
        if format_of(path.name) is None and not path.is_dir():
            continue
        start = time.process_time()
        try:
            read_all(path)
            counts["read"] += 1
        except FormatError:
            counts["refused"] += 1
        assert time.process_time() - start < 10, path
    assert counts["read"] > 300
    assert counts["refused"] > 100


# From the index of the data: what is inside, as its authors' tools measured it.
SHAPES = {
    "a_pointclouds/mikedh-trimesh/bunny.ply": {
        "points": (8171, 3),
        "faces": (16301, 3),
        "confidence": (8171,),
    },
    "a_pointclouds/mikedh-trimesh/ballA.off": {"points": (1900, 3), "faces": (3796, 3)},
    "a_pointclouds/daavoo-pyntcloud/diamond.npz": {"points.x": (6,), "mesh.v1": (8,)},
    "a_pointclouds/laspy-laspy/plane.laz": {"points": (28185, 3), "colors": (28185, 3)},
    "a_pointclouds/open-mmlab-mmdetection3d/demo/data/kitti/000008.bin": {"points": (17238, 4)},
    "b_scenes_labels/open-mmlab-mmdetection3d/scannet_train_instance_data/scene0000_00_vert_all.npy": {
        "array": (81369, 6)
    },
    "c_robot_demos/ARISE-Initiative-robosuite/v1.0.1_lift_panda_demo.hdf5": {
        "data/demo_1/actions": (412, 7),
        "data/demo_1/states": (412, 32),
    },
    "c_robot_demos/HumanCompatibleAI-imitation/tests/testdata/expert_models/cartpole_0/rollouts/final.npz": {
        "obs": (27021, 4),
        "acts": (26964,),
        "indices": (56,),
    },
    "c_robot_demos/humanoid-collective-diffusion_policy_soup/pusht_cchi_v7_replay.zarr": {
        "meta/episode_ends": (206,),
        "data/keypoint": (25650, 9, 2),
    },
    "d_hand_joints/MengHao666-Hand-BMC-pytorch/joints/stb_test.npy": {"array": (3000, 21, 3)},
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_those_of_the_index(shared_data, name):
    values = read_all(shared_data / name)
    for field, shape in SHAPES[name].items():
        assert values[field].shape == shape


def test_line_counts_are_those_of_the_index(shared_data):
    for name, count in {
        "hiyouga-LLaMA-Factory/c4_demo.jsonl": 300,
        "hiyouga-LLaMA-Factory/alpaca_en_demo.json": 999,
        "jingyaogong-minimind/notebook/toydata/dpo_data.jsonl": 2,
        "allenai-dolma/tests/data/provided/documents/000.json.gz": 10,
    }.items():
        assert len(read_all(shared_data / "e_lm_corpora" / name)["records"]) == count


def test_hostile_sizes_of_the_real_corpus_are_refused(shared_data):
    folder = shared_data / "f_malformed/HDFGroup-hdf5/1.10.8/test"
    for name in ("bounds_sel_earliest_latest.h5", "bounds_sel_v110_v110.h5"):
        with pytest.raises(FormatError, match="17,213,423,616 bytes"):
            read_all(folder / name)


def test_extremes_of_a_scan_are_those_of_the_index(shared_data):
    path = (
        shared_data / "b_scenes_labels/open-mmlab-mmdetection3d/demo/data/scannet/scene0000_00.bin"
    )
    from datacheck.formats.base import Hint, open_container

    with open_container(path, Hint("float32", (6,))) as container:
        points = container.read("points")
    assert points.shape == (40684, 6)
    np.testing.assert_allclose(np.ptp(points[:, :3].T, axis=1), [8.42, 8.737, 3.023], rtol=6e-4)
