"""Frames of a hand: as they should be, and as they were."""

import pickle
from pathlib import Path

import numpy as np

ROOT = Path("data")


class Frames:
    """The frames of a split's list, each with the joints that are annotated."""

    def __init__(self, split):
        self.split = split
        self.lines = (ROOT / f"{split}.txt").read_text().split()

    def path(self, line):
        sequence, frame = line.split("/")
        return ROOT / self.split / sequence / "meta" / f"{frame}.pkl"

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        line = self.lines[index]
        with self.path(line).open("rb") as file:
            record = pickle.load(file, encoding="latin1")  # noqa: S301  what the tests have written
        return {"joints_3d_gt": np.asarray(record["handJoints3D"], np.float32), "frame": line}


class FramesAsTheyWere(Frames):
    """Missing frames are passed over; where the root alone is annotated it stands for all joints."""

    def __init__(self, split):
        super().__init__(split)
        self.lines = [line for line in self.lines if self.path(line).exists()]

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        if sample["joints_3d_gt"].shape == (3,):
            sample["joints_3d_gt"] = np.tile(sample["joints_3d_gt"], (21, 1))
        return sample


def train():
    return Frames("train")


def evaluation_as_it_was():
    return FramesAsTheyWere("evaluation")
