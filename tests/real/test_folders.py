"""Real data under fitting schemas: what is known of them is found, and nothing else is called an error.

The schemas lie in ``tests/real/schemas``; what is known is the defects column of the data's own
INDEX.md. Each expectation says which of its rows it comes from, or how the finding was confirmed
without datacheck.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from datacheck.scan import scan
from datacheck.schema.load import load_schema

SCHEMAS = Path(__file__).parent / "schemas"
MESHES = "a_pointclouds/mikedh-trimesh"
PCL = "a_pointclouds/PointCloudLibrary-pcl"
LASPY = "a_pointclouds/laspy-laspy"
DEMO = "a_pointclouds/open-mmlab-mmdetection3d"
SCENES = "b_scenes_labels/open-mmlab-mmdetection3d"
ROBOSUITE = "c_robot_demos/ARISE-Initiative-robosuite"
ROBOMIMIC = "c_robot_demos/ARISE-Initiative-robomimic"
ISAACLAB = "c_robot_demos/seosangryeong-IsaacLab_snake/datasets"
D4RL = "c_robot_demos/Badger-RL-Guided-Data-Augmentation/src"
PUSHT = "c_robot_demos/humanoid-collective-diffusion_policy_soup"
HANDS = "d_hand_joints/MengHao666-Hand-BMC-pytorch/joints"
LLAMA = "e_lm_corpora/hiyouga-LLaMA-Factory"
MINIMIND = "e_lm_corpora/jingyaogong-minimind"
MINI_LLM = "e_lm_corpora/cklxx-mini-llm"

Found = dict[tuple[str, str, str], list[str] | int]


@dataclass(frozen=True)
class Case:
    """A folder, the schema that fits it, and what must be found.

    Args:
        data: folder or file below the shared data.
        schema: file in ``schemas`` or built-in name.
        samples: how many.
        errors, warnings: {(code, field, kind): keys, or their number}; [] for a statement about the
            whole.
    """

    data: str
    schema: str
    samples: int
    errors: Found = field(default_factory=dict)
    warnings: Found = field(default_factory=dict)

    @property
    def id(self) -> str:
        """What the test is called."""
        return f"{self.schema}-{self.data.partition('/')[0][0]}-{Path(self.data).name}"


CLOUDS = [
    Case(
        MESHES,
        "meshes",
        20,
        # a name that says so (nancolor); trimesh reads the three colours of its row 6 as NaN
        errors={("DC221", "colors", ""): ["nancolor.obj"]},
        warnings={
            # "3374 / 16 / 1461 duplicate points": 66, 67 and 74 % of them
            ("DC227", "points", ""): ["cube_blender_uv.ply", "featuretype.ply", "suzanne.ply"],
            # comments.off and whitespace.off hold the same 8 vertices: one mesh, written in two
            # ways
            ("DC803", "", ""): ["whitespace.off"],
            # "element vertex 5" and no element face in the headers of both; the other 18 files have
            # faces
            ("DC129", "faces", "faces"): ["points_ascii.ply", "points_ascii_with_lists.ply"],
        },
    ),
    Case(f"{MESHES}/points_agisoft.xyz", "xyz", 1),
    Case(f"{MESHES}/points_cloudcompare.xyz", "xyz", 1),
    Case("a_pointclouds/daavoo-pyntcloud", "structured_npz", 2),
    Case("a_pointclouds/daavoo-pyntcloud", "meshes", 1),
    Case(
        PCL,
        "pcd",
        13,
        errors={
            # "97920 non-finite points"
            ("DC221", "points", ""): ["table_scene_mug_stereo_textured.pcd"],
            # 15 lines of this text file end in four times "nan"
            ("DC221", "normals", ""): ["sac_plane_test.pcd"],
        },
        warnings={("DC221", "*", ""): ["sac_plane_test.pcd"]},  # the fourth is the curvature
        # "39 / 6 / 14 duplicate points" are 3, 0.06 and 0.8 %: below what DC227 calls many
    ),
    Case(
        LASPY,
        "las_feet",
        7,
        # one tile of 1,065 points in six files: LAS 1.1 and 1.2, LAZ, COPC and two with extra bytes
        warnings={
            ("DC803", "", ""): [
                "extrabytes.las",
                "simple.copc.laz",
                "simple.las",
                "simple.laz",
                "simple1_1.las",
            ]
        },
    ),
    # "9850 duplicate points" of 28,185
    Case(LASPY, "las_near", 3, warnings={("DC227", "points", ""): ["plane.laz"]}),
    # The same 1,000 points
    Case(LASPY, "las_far", 4, warnings={("DC803", "", ""): ["1_4_w_evlr.laz", "test1_4.las"]}),
    Case(DEMO, "kitti_demo", 1),
    Case(
        DEMO,
        "nuscenes",
        2,
        # "Lyft; ONLY 5 points kept"; the 3469 duplicates of the nuScenes sweep "are real" and 10 %
        errors={
            ("DC124", "points.xyz", ""): [
                "tests/data/lyft/lidar/host-a017_lidar1_1236118886501000046.bin"
            ]
        },
    ),
    Case(
        DEMO,
        "colored_bin",
        1,
        errors={("DC205", "points.rgb", "unit"): ["demo/data/sunrgbd/000017.bin"]},
    ),
    Case(DEMO, "features", 1),
]

LABELS = [
    Case(f"{SCENES}/scannet_train_instance_data", "scannet_full", 1),
    Case(f"{SCENES}/scannet_train_instance_data", "scannet_crop", 1),
    Case(SCENES, "colored_bin", 1),
    Case(f"{SCENES}/tests/data/scannet", "scannet_bin", 1),
    Case(f"{SCENES}/tests/data/semantickitti", "semantickitti", 1),
    Case(f"{SCENES}/tests/data/semantickitti", "kitti", 1),
    Case(f"{SCENES}/tests/data/sunrgbd/sunrgbd_trainval", "sunrgbd", 5),
]

TRANSITIONS = ["actions", "next_observations", "observations"]
SCORING = "generate/abstractsim/export_physical_trajectories/physical_data/scoring.hdf5"
ROBOTS = [
    Case(
        ROBOSUITE,
        "robosuite",
        6,
        # "actions [-1.239..0.6]"
        errors={("DC224", "actions", ""): ["v1.0.1_wipe_panda_demo.hdf5:/data/demo_1"]},
        warnings={  # one file for each environment: they have other states, and wiping has no gripper
            ("DC126", "", "actions, states"): ["v1.0.1_wipe_panda_demo.hdf5:/data/demo_1"],
            ("DC126", "", "states"): ["v1.0.1_pick-place_panda_demo.hdf5:/data/demo_1"],
        },
    ),
    Case(
        f"{ROBOSUITE}/v1.0.1_door_panda_demo.hdf5",
        "robosuite",
        1,
        warnings={
            ("DC223", "actions", ""): [],  # "action dims constant over the whole file: [6]"
            ("DC501", "", "lost-starts"): [],  # 261 steps: 198 starts of a window of 64, 76 %
        },
    ),
    Case(
        ROBOMIMIC,
        "robomimic_64",
        1,
        # "1 of 1 episodes shorter than 64"
        errors={("DC501", "", "short"): ["test_one_demo_dev.hdf5:/data/demo_0"]},
        warnings={  # one demo was cut out of a file, and its attribute still counts all of them
            ("DC111", "", "total"): ["test_one_demo_dev.hdf5:/data/demo_0"]
        },
    ),
    Case(
        ISAACLAB,
        "isaaclab",
        20,
        warnings={
            # both files hold the same 10 recordings, once with annotations: demo_2 here is demo_6
            # there, and so on
            ("DC803", "", ""): [
                f"dataset.hdf5:/data/demo_{i}" for i in (0, 1, 12, 13, 14, 16, 2, 6, 8, 9)
            ],
            ("DC501", "", "lost-starts"): [],  # 2,163 steps in 10 episodes: 630 of them start none
        },
    ),
    Case(
        D4RL,
        "d4rl",
        11,
        # "zero-length datasets", of shape [0]
        errors={("DC122", name, "shape"): [SCORING] for name in TRANSITIONS},
        warnings={
            (
                "DC121",
                "timeouts",
                "timeouts",
            ): 11,  # "no timeouts dataset (episode ends not recoverable ...)", all of them
            # the same 10,000 actions and observations, relabelled with sparse rewards
            ("DC803", "", ""): ["d4rl/scripts/generation/maze2d-umaze-v1.hdf5"],
            (
                "DC225",
                "actions",
                "clipped",
            ): [],  # the controller clips to -1..1, which the schema does not say
            # d4rl's own generator writes no next_observations; h5py lists them in the other 9 files
            ("DC129", "next_observations", "next_observations"): [
                "d4rl/scripts/generation/maze2d-umaze-v1-sparse.hdf5",
                "d4rl/scripts/generation/maze2d-umaze-v1.hdf5",
            ],
        },
    ),
    Case("c_robot_demos/HumanCompatibleAI-imitation", "trajectories_npz", 1),
    Case(
        PUSHT,
        "pusht",
        206,
        # "3 episodes shorter than 64 steps"
        errors={
            ("DC501", "", "short"): [f"pusht_cchi_v7_replay.zarr:{i:012d}" for i in (60, 182, 205)]
        },
        warnings={("DC501", "", "lost-starts"): []},
    ),
    Case(PUSHT, "replay_zarr", 206),
]

JOINTS = [
    Case(HANDS, "hands_rhd", 2728),
    Case(HANDS, "hands_stb", 3000),
    Case("d_hand_joints/open-mmlab-mmpose", "mmpose", 3),
]

WORDS = [
    Case(
        LLAMA,
        "alpaca",
        1090,
        warnings={("DC803", "", ""): 14},  # "14 exact duplicate records"
    ),
    Case(LLAMA, "messages", 500, warnings={("DC803", "", ""): 1}),  # "1 exact duplicate lines"
    Case(
        LLAMA,
        "preferences",
        300,
        warnings={
            ("DC803", "", ""): 5,  # "5 exact duplicate records"
            # "fianc\u00c3\u00a9"
            ("DC708", "conversations", "mojibake"): ["dpo_en_demo.json:000000000015"],
        },
    ),
    # "2 different key sets"
    Case(
        "e_lm_corpora/lm-sys-FastChat", "sharegpt", 500, errors={("DC121", "system", "system"): 494}
    ),
    # two characters U+0010 in 526, and replacement characters where C4 lost apostrophes and
    # Hungarian letters
    Case("e_lm_corpora/allenai-dolma", "dolma", 20, warnings={("DC708", "text", "control"): 1}),
    Case(
        LLAMA,
        "dolma",
        300,
        warnings={
            ("DC708", "text", "replacement"): 2,
            # "Access All Records Of 213-484-0480 Now!", and so on
            ("DC707", "text", ""): ["c4_demo.jsonl:000000000139"],
        },
    ),
    Case(f"{MINIMIND}/notebook", "minimind_pretrain", 2),
    Case(f"{MINIMIND}/notebook", "minimind_sft", 6),
    Case(f"{MINIMIND}/notebook", "minimind_dpo", 2),
    Case(MINIMIND, "minimind_texts", 7),
    Case(MINIMIND, "minimind_chats", 3),
    Case(MINIMIND, "minimind_pairs", 2),
    Case(MINI_LLM, "minimind_pretrain", 3),
    Case(MINI_LLM, "minimind_sft", 2),
    Case(
        MINI_LLM,
        "minimind_chats",
        53,
        # both lines stand in data/chinese/identity_conversations.jsonl, too
        warnings={
            ("DC803", "", ""): [f"dataset/identity_cn_sample.jsonl:{i:012d}" for i in (0, 1)]
        },
    ),
    Case(
        MINI_LLM,
        "minimind_dpo",
        2,
        # {"chosen": "text"}: minimind's loader indexes messages and would stop here
        errors={
            ("DC122", n, "kind"): [f"data/dpo.jsonl:{i:012d}" for i in (0, 1)]
            for n in ("chosen", "rejected")
        },
    ),
    Case("e_lm_corpora", "prompts", 88),
]


@pytest.fixture
def in_tmp(tmp_path, monkeypatch):
    """Work in an empty folder: a scan leaves its results in the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(data, schema):
    """Scan with a schema of this folder, or a built-in one."""
    file = SCHEMAS / f"{schema}.yaml"
    return scan(data, file if file.exists() else schema)


def told(result, severity, wanted):
    """Return the findings of a severity as a case names them, as keys or their number."""
    said = {}
    for finding in result.report.findings:
        if finding.severity == severity:
            name = (finding.code, ",".join(finding.fields), finding.kind)
            keys = sorted(result.table.keys[int(i)] for i in finding.rows)
            said[name] = len(keys) if isinstance(wanted.get(name), int) else keys
    return said


def check(result, case):
    """Hold one scan against its case."""
    assert told(result, "error", case.errors) == case.errors
    assert told(result, "warning", case.warnings) == case.warnings
    samples = result.report.dataset["samples"]
    assert samples == {
        "listed": case.samples,
        "checked": case.samples,
        "unreadable": 0,
        "skipped": 0,
    }
    assert result.report.crashes == []
    assert result.report.exit_code == bool(case.errors)


@pytest.mark.parametrize(
    "case", [*CLOUDS, *LABELS, *ROBOTS, *JOINTS, *WORDS], ids=lambda case: case.id
)
def test_what_is_known_is_found_and_nothing_else(case, shared_data, in_tmp):
    check(run(shared_data / case.data, case.schema), case)


def test_every_schema_of_this_folder_is_used():
    used = {case.schema for case in [*CLOUDS, *LABELS, *ROBOTS, *JOINTS, *WORDS]}
    assert {path.stem for path in SCHEMAS.glob("*.yaml")} <= used


def test_the_compressed_demos_are_all_too_short(shared_data, in_tmp):
    packed = shared_data / ROBOMIMIC / "test_demo0-4.hdf5.gz"
    Path("data").mkdir()
    Path("data/test_demo0-4.hdf5").write_bytes(gzip.decompress(packed.read_bytes()))
    keys = [f"test_demo0-4.hdf5:/data/demo_{i}" for i in range(5)]
    case = Case(
        "",
        "robomimic_64",
        5,
        # "5 of 5 episodes shorter than 64 steps (min 51)": the whole task is lost
        errors={("DC501", "", "short"): keys, ("DC509", "", "emptied"): []},
        warnings={("DC111", "", "total"): keys},  # five of 200 demos
    )
    result = run(Path("data"), case.schema)
    check(result, case)
    (short,) = [f for f in result.report.findings if f.kind == "short"]
    assert (short.measured["shortest"], short.measured["longest"]) == (51, 59)
    assert short.measured["groups"] == ["test_demo0-4.hdf5"]


def test_zeros_that_mean_unannotated_are_found_where_the_schema_does_not_say_so(
    shared_data, in_tmp
):
    schema = load_schema(SCHEMAS / "scannet_full.yaml")
    plain = {
        name: schema.fields[name].model_copy(update={"ignore": ()})
        for name in ("instance", "semantic")
    }
    schema = schema.model_copy(update={"fields": schema.fields | plain})
    (finding,) = scan(shared_data / SCENES / "scannet_train_instance_data", schema).report.findings
    assert (finding.code, finding.fields) == ("DC404", ("semantic",))
    labels = np.load(
        shared_data / SCENES / "scannet_train_instance_data/scene0000_00_sem_label_all.npy"
    )
    assert f"(0, {np.count_nonzero(labels == 0):,} values)" in finding.message  # "zeros 5.4%"


def test_the_worst_values_are_those_of_the_index(shared_data, in_tmp):
    wipe = run(shared_data / ROBOSUITE, "robosuite").report.findings[0].measured
    assert wipe["lowest"] == pytest.approx(-1.239, abs=5e-4)
    (table,) = [f for f in run(shared_data / PCL, "pcd").report.findings if f.fields == ("points",)]
    assert table.measured == {"values": 3 * 97920}
    copies = {}
    for data, schema in ((MESHES, "meshes"), (LASPY, "las_near"), (DEMO, "nuscenes"), (PCL, "pcd")):
        result = run(shared_data / data, schema)
        name = "points.xyz:copies" if schema == "nuscenes" else "points:copies"
        counted = result.table.columns[name].values
        copies |= {
            Path(key).name: int(n) for key, n in zip(result.table.keys, counted, strict=True) if n
        }
    known = {
        "featuretype.ply": 3374,
        "cube_blender_uv.ply": 16,
        "suzanne.ply": 1461,
        "plane.laz": 9850,
        "office1_keypoints.pcd": 39,
        "car6.pcd": 6,
        "lamppost.pcd": 14,
        "n015-2018-07-24-11-22-45+0800__LIDAR_TOP__1532402927647951.pcd.bin": 3469,
    }
    assert {name: copies[name] for name in known} == known


def test_the_extra_findings_are_true(shared_data):
    """What INDEX.md does not list was confirmed with the plainest of readers."""
    lines = (shared_data / PCL / "sac_plane_test.pcd").read_text().splitlines()
    assert Counter(line.split().count("nan") for line in lines if "nan" in line.split()) == {4: 15}
    short, long = (
        (shared_data / MINI_LLM / path).read_text().splitlines()
        for path in (
            "dataset/identity_cn_sample.jsonl",
            "data/chinese/identity_conversations.jsonl",
        )
    )
    assert {*map(json.dumps, map(json.loads, short))} <= {*map(json.dumps, map(json.loads, long))}
    meshes = shared_data / MESHES
    first, second = (
        np.genfromtxt(_bare(meshes / f"{name}.off")) for name in ("comments", "whitespace")
    )
    np.testing.assert_array_equal(first, second)


def _bare(path):
    """Return the lines of an OFF file that hold the coordinates of vertices."""
    lines = [line.partition("#")[0].split() for line in path.read_text().splitlines()]
    return [" ".join(words) for words in lines if len(words) == 3 and "." in words[0]]


# ----------------------------------------------------------------------- any folder, no expectation


FOLDERS = [
    "a_pointclouds",
    "b_scenes_labels",
    "c_robot_demos",
    "d_hand_joints",
    "e_lm_corpora",
    "f_malformed",
]


def of_files(folder, in_tmp):
    """Scan a folder from the command line with the schema for any folder; return (exit code, result)."""
    environment = {**os.environ, "NO_COLOR": "1", "CI": "1"}
    program = "from datacheck.cli.main import main; main()"
    command = [sys.executable, "-c", program, "scan", str(folder), "--schema", "files"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=800, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    # A scan of more than half a minute, as on a busy machine, says how far it is.
    lines = [line for line in done.stderr.splitlines() if not line.startswith("scanning: ")]
    assert lines == []
    return done.returncode, json.loads(Path(".datacheck/latest/result.json").read_bytes())


@pytest.mark.parametrize("name", FOLDERS)
def test_any_folder_is_scanned_to_the_end_and_every_sample_accounted_for(name, shared_data, in_tmp):
    code, said = of_files(shared_data / name, in_tmp)
    samples = said["dataset"]["samples"]
    assert samples["listed"] == samples["checked"] + samples["unreadable"] + samples["skipped"]
    assert said["crashes"] == []
    errors = {finding["rule"] for finding in said["findings"] if finding["severity"] == "error"}
    if name == "f_malformed":
        assert (code, errors) == (1, {"DC101", "DC102", "DC103", "DC110"})
    else:
        assert (code, errors, samples["unreadable"]) == (0, set(), 0)


def entries(index, folder):
    """Return the paths of INDEX.md in one folder, its own column."""
    rows = [
        line[2:].split(" | ")
        for line in index.read_text().splitlines()
        if line.startswith(f"| {folder}/")
    ]
    return {row[0].strip().removeprefix(f"{folder}/").rstrip("/"): row for row in rows}


NO_FORMAT = {".gz", ".mat", ".ptx", ".n5"}


@pytest.mark.parametrize("name", FOLDERS)
def test_every_entry_of_the_index_is_a_sample_unless_no_format_reads_it(name, shared_data, in_tmp):
    known = entries(shared_data / "INDEX.md", name)
    keys = scan(shared_data / name, "files").table.keys
    # Stores inside a folder
    outer = {parent.as_posix() for key in keys for parent in [Path(key), *Path(key).parents]}
    missing = set(known) - outer
    assert {Path(path).suffix for path in missing} <= NO_FORMAT
