"""Windows over demonstrations: as they should be, and as they were."""

import random
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import h5py
import numpy as np

ROOT = Path("data")
LENGTH = 32


class Windows:
    """Every step of every demonstration starts a window; behind the end the last step is repeated."""

    def __init__(self):
        self.demos = [
            (path, name, len(group["actions"]))
            for path in sorted(ROOT.rglob("*.hdf5"))
            for name, group in sorted(_demos(path).items())
        ]
        self.ends = list(accumulate(self.starts(steps) for _, _, steps in self.demos))
        self.open = {}

    def starts(self, steps):
        return steps

    def __len__(self):
        return self.ends[-1]

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(index)
        demo = bisect_right(self.ends, index)
        return self.window(demo, index - (self.ends[demo - 1] if demo else 0))

    def window(self, demo, start):
        path, name, steps = self.demos[demo]
        if path not in self.open:
            self.open[path] = h5py.File(path, "r")
        group = self.open[path]["data"][name]
        rows = np.minimum(np.arange(start, start + LENGTH), steps - 1)
        return {
            "actions": group["actions"][:].astype(np.float32)[rows],
            "state": group["obs/joint_states"][:].astype(np.float32)[rows],
        }


def _demos(path):
    with h5py.File(path, "r") as file:
        return {
            name: {"actions": np.empty(group["actions"].shape)}
            for name, group in file["data"].items()
        }


class Inside(Windows):
    """Only windows that end within the demonstration."""

    def starts(self, steps):
        return max(0, steps - LENGTH + 1)


class WindowsAsTheyWere(Inside):
    """And the index is not used."""

    def __getitem__(self, index):
        return super().__getitem__(random.randrange(len(self)))


class WholeDemos(Windows):
    """A sample is a demonstration; those that are shorter than a window are left out."""

    def __init__(self):
        super().__init__()
        self.demos = [demo for demo in self.demos if demo[2] >= LENGTH]

    def __len__(self):
        return len(self.demos)

    def __getitem__(self, index):
        path, name, _ = self.demos[index]
        with h5py.File(path, "r") as file:
            return {"actions": file["data"][name]["actions"][:].astype(np.float32)}
