"""Thresholds were set on real numbers, and stay so: what is ordinary in the real datasets is no error.

ScanNet: 1,513 scenes, colour means 0.055 to 0.914 and deviations 0.063 to 0.361 of full scale,
9,237 to 552,614 points. MANO: the bones of the mean hand. LIBERO: mean and longest demonstrations
of the four suites.
"""

import numpy as np
import pytest

from datacheck.model.finding import Severity
from datacheck.schema.load import load_schema
from datacheck.testing.ho3d import articulated, placed
from tests.trials.base import sample
from tests.trials.memory import scan_pieces


def errors(found):
    return [(f.id, f.message) for f in found.findings if f.severity is Severity.ERROR]


def scene(rng, key, points=9237, mean=0.45, deviation=0.28):
    """A room of 5 x 4 x 2.6 m with 12 instances of a class that counts, floor and walls of none."""
    xyz = rng.uniform([0, 0, 0], [5, 4, 2.6], (points, 3))
    flat = rng.uniform(size=points) < 0.4
    xyz[flat, 2] = 0
    colour = np.clip(rng.normal(mean, deviation, (points, 3)), 0, 1) * 255
    normal = rng.normal(size=(points, 3))
    instance = np.where(flat, -1, rng.integers(0, 12, points))
    semantic = np.where(flat, 2, 5)
    fields = {
        "xyz": xyz,
        "rgb": colour,
        "normal": normal / np.linalg.norm(normal, axis=1, keepdims=True),
        "segment": np.arange(points) % 400,
        "semantic": semantic,
        "instance": instance,
    }
    return sample(
        key,
        {name: values.astype(np.float32) for name, values in fields.items()},
        split="train",
        split_key=f"{key[5:9]}",
    )


@pytest.mark.parametrize("mean", [0.055, 0.2, 0.476, 0.7, 0.914])
def test_real_colour_means_and_point_counts_of_scannet_are_no_error(mean):
    rng = np.random.default_rng(int(1000 * mean))
    scenes = [
        scene(rng, f"scene{i:04d}_00", points, mean, deviation)
        for i, (points, deviation) in enumerate(
            [(9237, 0.063), (9237, 0.361), (29_995, 0.2), (45_155, 0.28)]
        )
    ]
    assert errors(scan_pieces(load_schema("scannet"), scenes)) == []


def test_the_mean_hand_and_hands_15_percent_off_are_no_error():
    rng = np.random.default_rng(5)
    frames = []
    for subject, scale in enumerate([0.85, 1.0, 1.15]):
        turn = np.cumsum(rng.normal(0, 0.02, (40, 3)), axis=0)
        joints = placed(rng, articulated(rng, 40, scale), turn)
        shape = rng.normal(0, 0.8, 10)
        matrix = np.array([[614.6, 0, 320.3], [0, 614.1, 241.7], [0, 0, 1]])
        for i, hand in enumerate(joints):
            pose = rng.normal(0, 0.2, 48)
            fields = {
                "handJoints3D": hand,
                "handPose": pose,
                "handBeta": shape,
                "handTrans": hand[0],
                "camMat": matrix,
            }
            key = f"train/S{subject}/meta/{i:04d}.pkl"
            frames.append(
                sample(key, fields, split="train", group=f"S{subject}", split_key=f"S{subject}")
            )
    found = scan_pieces(load_schema("ho3d"), frames)
    assert errors(found) == []
    assert next(v for v in found.verdicts if v.code == "DC601").verdict == "pass"


@pytest.mark.parametrize(("mean", "longest"), [(123, 193), (148, 254), (122, 270), (276, 517)])
def test_stock_libero_lengths_are_no_error(mean, longest):
    """The share of lost starts is a warning in three of the four suites, and is meant to be."""
    rng = np.random.default_rng(mean)
    lengths = np.clip(rng.normal(mean, 0.15 * mean, 30).astype(int), 70, longest)
    demos = []
    for i, steps in enumerate(lengths):
        moving = np.cumsum(rng.normal(0, 0.02, (steps, 7)), axis=0)
        gripper = np.sign(rng.normal(size=(steps, 1)))
        fields = {
            "actions": np.hstack([np.clip(rng.normal(0, 0.3, (steps, 6)), -1, 1), gripper]),
            "obs/ee_pos": [0.4, 0.0, 0.9] + 0.2 * np.tanh(moving[:, :3]),
            "obs/ee_ori": [3.0, 0.1, 0.1] + 0.05 * np.tanh(moving[:, 3:6]),
            "obs/joint_states": [0.0, -0.2, 0.0, -2.0, 0.0, 2.0, 0.8] + 0.3 * np.tanh(moving),
            "obs/gripper_states": np.array([0.02, -0.02]) + 0.01 * np.tanh(moving[:, :1]) * [1, -1],
            "states": rng.normal(size=(steps, 79)),
            "instruction": "put the bowl on the plate",
        }
        key = f"t_demo.hdf5:/data/demo_{i}"
        known = {"attrs/num_samples": np.asarray(steps), "split_key": "t_demo.hdf5"}
        demos.append(sample(key, fields, group="t_demo.hdf5", **known))
    found = scan_pieces(load_schema("libero"), demos)
    assert errors(found) == []
    usable = np.maximum(0, lengths - 63).sum() / lengths.sum()
    warned = any(f.code == "DC501" and f.severity is Severity.WARNING for f in found.findings)
    assert warned == (usable < 0.8)
