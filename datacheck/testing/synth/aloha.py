"""ALOHA episodes as RDT reads them: one HDF5 file per episode of a two-armed robot.

Layout::

    {task}/episode_{0}.hdf5     action (T, 14), observations/{qpos,qvel} (T, 14); no images
    {task}/expanded_instruction_gpt-4-turbo.json
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from datacheck.testing.synth.draw import curves, generator, lognormal
from datacheck.testing.synth.libero import TASKS

_GRIPPERS = [6, 13]


@dataclass(frozen=True)
class AlohaSize:
    """Size of the dataset: tasks, episodes per task, their median number of steps."""

    tasks: int = 2
    episodes: int = 8
    steps: int = 300


REAL = AlohaSize(tasks=30, episodes=50, steps=500)


def write(folder: Path, seed: int, size: AlohaSize) -> None:
    """Write a clean dataset."""
    for task in TASKS[: size.tasks]:
        task_folder = folder / task
        task_folder.mkdir(parents=True, exist_ok=True)
        words = task.replace("_", " ")
        instructions = {
            "instruction": words,
            "simplified_instruction": words,
            "expanded_instruction": [words],
        }
        (task_folder / "expanded_instruction_gpt-4-turbo.json").write_text(
            json.dumps(instructions), encoding="utf-8"
        )
        for number in range(size.episodes):
            rng = generator(seed, "aloha", task, number)
            steps = lognormal(rng, size.steps, 0.2, 140, 2000)
            joints = 0.6 * curves(rng, steps + 1, 14) + 0.2 * rng.standard_normal(14)
            joints[:, _GRIPPERS] = 2.4 + 2.3 * curves(rng, steps + 1, 2)
            with h5py.File(task_folder / f"episode_{number}.hdf5", "w") as file:
                file["action"], file["observations/qpos"] = joints[1:], joints[:-1]
                file["observations/qvel"] = 50 * np.diff(joints, axis=0)
                file.attrs["sim"] = False
