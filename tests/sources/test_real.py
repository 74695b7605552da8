"""Files that nobody here wrote: how many samples they hold was counted with the usual reader of each format."""

import pytest

from datacheck.sources import Unread, list_files, open_source, plan_work
from tests.sources.schemas import schema


@pytest.mark.parametrize(
    ("folder", "samples", "fields", "count", "rows"),
    [
        (
            "c_robot_demos",
            {"files": "**/annotated_dataset.hdf5", "each": "/data/demo_*"},
            {"actions": {}},
            10,
            2163,
        ),
        (
            "c_robot_demos",
            {"files": "**/v1.0.1_lift_panda_demo.hdf5", "each": "/data/demo_*"},
            {"actions": {}},
            1,
            412,
        ),
        (
            "c_robot_demos",
            {"files": "**/maze2d-umaze-v1.hdf5", "each": "row"},
            {"actions": {}},
            10_000,
            None,
        ),
        (
            "c_robot_demos",
            {"files": "**/pusht_cchi_v7_replay.zarr", "each": "ends:meta/episode_ends"},
            {"action": {"at": "data/action"}},
            206,
            25_650,
        ),
        (
            "d_hand_joints",
            {"files": "**/rhd_test.npy", "each": "row"},
            {"joints": {}},
            2728,
            2728 * 21,
        ),
        (
            "d_hand_joints",
            {"files": "**/stb_test.npy", "each": "row"},
            {"joints": {}},
            3000,
            3000 * 21,
        ),
        (
            "e_lm_corpora",
            {"files": "**/c4_demo.jsonl", "each": "line"},
            {"text": {"role": "text"}},
            300,
            None,
        ),
        (
            "e_lm_corpora",
            {"files": "**/alpaca_en_demo.json", "each": "line"},
            {"output": {"role": "text"}},
            999,
            None,
        ),
        (
            "e_lm_corpora",
            {"files": "**/000.json.gz", "each": "line"},
            {"text": {"role": "text"}},
            10,
            None,
        ),
        (
            "e_lm_corpora",
            {"files": "**/v1_sft_demo.jsonl", "each": "line"},
            {"messages": {"role": "chat"}},
            500,
            None,
        ),
        ("a_pointclouds", "**/{name:bunny}.pcd", {"points": {}}, 1, 397),
        (
            "b_scenes_labels",
            "**/velodyne/*.bin",
            {"points": {"shape": ["P", 4], "dtype": "float32"}},
            1,
            50,
        ),
    ],
)
def test_real_files_hold_the_samples_that_were_counted(
    shared_data, folder, samples, fields, count, rows
):
    root = shared_data / folder
    spec = schema(samples, fields)
    work = plan_work(spec, list_files(root))
    blocks = list(open_source(spec, root).read_all(work.items, lambda _: None))
    assert not [part for part in blocks if isinstance(part, Unread)]
    assert sum(map(len, blocks)) == count
    (name,) = fields
    if rows is not None:
        assert sum(int(block.fields[name].lengths.sum()) for block in blocks) == rows


def test_every_malformed_file_is_read_or_refused_in_one_sentence(shared_data):
    root = shared_data / "f_malformed"
    spec = schema("**/*.{kind:npy|npz|json|jsonl|ply|pcd|txt}", {"*": {}})
    work = plan_work(spec, list_files(root))
    parts = list(open_source(spec, root).read_all(work.items, lambda _: None))
    refused = [part for part in parts if isinstance(part, Unread)]
    assert len(refused) + sum(len(part) for part in parts if not isinstance(part, Unread)) == len(
        work.items
    )
    assert len(refused) > 50
    assert not [part for part in refused if not part.reason or "Traceback" in part.reason]
