"""robomimic demonstrations: one HDF5 file per task, with next observations and split masks.

Layout::

    {task}/ph/low_dim_v141.hdf5
        /data                         attrs env_args, total
        /data/demo_0/{actions, states, rewards, dones, obs/..., next_obs/...}   attrs num_samples
        /mask/{train,valid}           names of demos
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from datacheck.testing.synth.draw import Array, generator, lognormal
from datacheck.testing.synth.libero import demo, write_demo

TASKS = ("lift", "can", "square", "transport", "tool_hang")
_WIDTH = 32  # of the flattened simulator state


@dataclass(frozen=True)
class RobomimicSize:
    """Size of the dataset: tasks, demonstrations per task, their mean number of steps."""

    tasks: int = 2
    demos: int = 10
    steps: int = 100


REAL = RobomimicSize(tasks=5, demos=200, steps=130)


def write(folder: Path, seed: int, size: RobomimicSize) -> None:
    """Write a clean dataset."""
    for task in TASKS[: size.tasks]:
        task_folder = folder / task / "ph"
        task_folder.mkdir(parents=True, exist_ok=True)
        with h5py.File(task_folder / "low_dim_v141.hdf5", "w") as file:
            _write_task(file, task, seed, size)


def _write_task(file: h5py.File, task: str, seed: int, size: RobomimicSize) -> None:
    data = file.create_group("data")
    total = 0
    for number in range(size.demos):
        rng = generator(seed, "robomimic", task, number)
        record = _record(demo(rng, lognormal(rng, size.steps, 0.2, 40, 800), _WIDTH, 0))
        write_demo(data, f"demo_{number}", record)
        total += len(record["actions"])
    data.attrs["total"] = total
    data.attrs["env_args"] = json.dumps(
        {"env_name": task, "type": 1, "env_kwargs": {"control_freq": 20}}
    )
    names = [f"demo_{i}" for i in range(size.demos)]
    cut = max(1, size.demos * 9 // 10)
    file["mask/train"], file["mask/valid"] = np.array(names[:cut], "S"), np.array(names[cut:], "S")


def _record(demonstration: dict[str, Array]) -> dict[str, Array]:
    """Rename a LIBERO demonstration to robomimic's fields; obs[t] is the state before action[t]."""
    states = demonstration["states"]
    robot = demonstration["robot_states"]
    observations = {
        "robot0_joint_pos": states[:, 1:8],
        "robot0_gripper_qpos": robot[:, :2],
        "robot0_eef_pos": robot[:, 2:5],
        "robot0_eef_quat": robot[:, 5:9],
        "object": states[:, 10:24],
    }
    next_observations = {
        name: np.concatenate([value[1:], value[-1:]]) for name, value in observations.items()
    }
    kept = {name: demonstration[name] for name in ("actions", "states", "rewards", "dones")}
    observed = {f"obs/{name}": value for name, value in observations.items()}
    return (
        kept | observed | {f"next_obs/{name}": value for name, value in next_observations.items()}
    )
