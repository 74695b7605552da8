"""LIBERO demonstrations: one HDF5 file per task, one group per demo.

Layout::

    {suite}/{task}_demo.hdf5
        /data                         attrs env_name, problem_info, num_demos, total, tag, ...
        /data/demo_0/{actions, states, robot_states, rewards, dones, obs/...}   attrs num_samples,
        init_state, ...

As in the released files, obs[t] is the result of action[t], while states[t] is the state before
action[t].
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from datacheck.testing.synth.draw import Array, curves, generator, lognormal

_THINGS = (
    "bowl",
    "cream_cheese",
    "wine_bottle",
    "plate",
    "ketchup",
    "moka_pot",
    "mug",
    "butter",
    "salad_dressing",
)
_PLACES = (
    "on_the_plate",
    "in_the_basket",
    "on_the_stove",
    "in_the_drawer",
    "on_the_cabinet",
    "on_the_rack",
)
TASKS = tuple(f"pick_up_the_{a}_and_place_it_{b}" for a in _THINGS for b in _PLACES)
SUITES = {  # mean steps, longest, width of the flattened simulator state
    "libero_spatial": (122, 193, 92),
    "libero_object": (147, 254, 110),
    "libero_goal": (121, 270, 79),
    "libero_10": (276, 517, 77),
}
_HOME = np.array([0.0, -0.161, 0.0, -2.4446, 0.0, 2.2268, 0.7854])  # home pose of the Panda arm
# How the seven joints follow the hand's three directions near the home pose, rad per metre.
_FOLLOW = np.array(
    [
        [0.1, 1.7, 0.2],
        [1.1, 0.2, -1.0],
        [0.2, 0.6, 0.1],
        [1.5, -0.1, 0.6],
        [-0.2, 0.4, 0.1],
        [0.6, -0.2, 1.5],
        [0.1, 1.2, -0.2],
    ]
)


@dataclass(frozen=True)
class LiberoSize:
    """Size of the dataset.

    Args:
        suites: names of suites.
        tasks: files per suite; `demos`: demonstrations per file.
        image: side of the two camera images in pixels, 0 for none (128 in the released files).
    """

    suites: tuple[str, ...] = ("libero_spatial",)
    tasks: int = 6
    demos: int = 8
    image: int = 16


REAL = LiberoSize(suites=tuple(SUITES), tasks=10, demos=50, image=128)


def write(folder: Path, seed: int, size: LiberoSize) -> None:
    """Write a clean dataset."""
    for suite in size.suites:
        (folder / suite).mkdir(parents=True, exist_ok=True)
        for number in range(size.tasks):
            task = TASKS[number % len(TASKS)] + ("" if number < len(TASKS) else f"_{number}")
            with h5py.File(folder / suite / f"{task}_demo.hdf5", "w", track_order=False) as file:
                _write_task(file, suite, task, seed, size)


def _write_task(file: h5py.File, suite: str, task: str, seed: int, size: LiberoSize) -> None:
    mean, longest, width = SUITES[suite]
    data = file.create_group("data")
    total = 0
    for number in range(size.demos):
        rng = generator(seed, suite, task, number)
        steps = lognormal(rng, 0.97 * mean, 0.22, 72 if suite != "libero_10" else 150, longest)
        record = demo(rng, steps, width, size.image)
        write_demo(data, f"demo_{number}", record)
        total += steps
    words = task.replace("_", " ")
    problem = {
        "problem_name": "libero_tabletop_manipulation",
        "domain_name": "robosuite",
        "language_instruction": words,
    }
    data.attrs.update(
        env_name="Libero_Tabletop_Manipulation",
        problem_info=json.dumps(problem),
        macros_image_convention="opengl",
        bddl_file_name=f"bddl_files/{suite}/{task}.bddl",
        bddl_file_content=f"(define (problem {task}))",
        env_args=json.dumps({"type": 1, "env_kwargs": {"control_freq": 20}}),
        num_demos=size.demos,
        total=total,
        tag="libero-v1",
    )


def write_demo(data: h5py.Group, name: str, record: dict[str, Array]) -> None:
    """Write one demonstration with its attributes."""
    group = data.create_group(name)
    for field, value in record.items():
        group.create_dataset(field, data=value)
    group.attrs["num_samples"] = len(record["actions"])
    group.attrs["init_state"] = record["states"][0]
    group.attrs["model_file"] = '<mujoco model="base"><worldbody/></mujoco>'


def demo(rng: np.random.Generator, steps: int, width: int, image: int) -> dict[str, Array]:
    """Return one pick-and-place at 20 steps a second.

    Shapes:
        actions: float64 (steps, 7): position delta / 0.05 m, rotation delta / 0.5 rad, gripper -1
            open, +1 close
        obs/ee_pos: float64 (steps, 3) [m], robot base; obs/ee_ori: float64 (steps, 3) axis-angle
        [rad]
        obs/joint_states: float64 (steps, 7) [rad]; obs/gripper_states: float64 (steps, 2) [m],
        opposite signs
        states: float64 (steps, width): time, joints, fingers, objects
        obs/*_rgb: uint8 (steps, image, image, 3)
    """
    move = 0.75 * curves(rng, steps, 3, cycles=2.0)
    twist = 0.12 * curves(rng, steps, 3, cycles=2.0)
    grip = np.full(steps, -1.0)
    grip[int(rng.uniform(0.3, 0.45) * steps) : int(rng.uniform(0.8, 0.95) * steps)] = 1.0
    delta = 0.3 * 0.05 * move  # the controller reaches a third of the commanded motion in one step
    path = np.concatenate([[np.zeros(3)], np.cumsum(delta, axis=0)])
    positions = np.array([-0.05, 0.0, 1.05]) + 0.03 * rng.standard_normal(3) + path
    turn = np.concatenate([[np.zeros(3)], np.cumsum(0.05 * twist, axis=0)])
    ori = np.array([3.12, 0.02, -0.05]) + 0.01 * rng.standard_normal(3) + turn
    joints = _HOME + 0.02 * rng.standard_normal(7) + path @ _FOLLOW.T + turn @ (0.3 * np.eye(3, 7))
    opening = _follow(0.04 * (grip < 0))
    fingers = np.stack([opening, -opening], axis=1) + 1e-5 * rng.standard_normal((steps + 1, 2))
    things = rng.uniform(-0.3, 0.3, width - 10) + 0.002 * curves(rng, steps + 1, width - 10)
    clock = 0.05 * np.arange(steps + 1)[:, None] + 5 * 0.05
    state = np.concatenate([clock, joints, fingers, things], axis=1)
    quaternion = np.concatenate([ori / 2 * 0.6, np.cos(ori[:, :1] / 2)], axis=1)
    quaternion /= np.sqrt(np.einsum("ij,ij->i", quaternion, quaternion))[:, None]
    final_step = np.zeros(steps, np.uint8)
    final_step[-1:] = 1
    record = {
        "actions": np.concatenate([move, twist, grip[:, None]], axis=1),
        "states": state[:-1],
        "robot_states": np.concatenate([fingers, positions, quaternion], axis=1)[:-1],
        "rewards": final_step,
        "dones": final_step.copy(),
        "obs/ee_pos": positions[1:],
        "obs/ee_ori": ori[1:],
        "obs/ee_states": np.concatenate([positions, ori], axis=1)[1:],
        "obs/gripper_states": fingers[1:],
        "obs/joint_states": joints[1:],
    }
    if image:
        for name in ("agentview_rgb", "eye_in_hand_rgb"):
            record[f"obs/{name}"] = _film(rng, positions[1:], image)
    return record


def _follow(wanted: Array) -> Array:
    """Return float64 (steps + 1): a first-order lag behind `wanted`, from its first value."""
    out = np.empty(len(wanted) + 1)
    out[0] = wanted[0]
    for t, value in enumerate(wanted.tolist()):
        out[t + 1] = out[t] + 0.35 * (value - out[t])
    return out


def _film(rng: np.random.Generator, positions: Array, side: int) -> Array:
    """Return uint8 (steps, side, side, 3): a bright spot follows the hand; still background."""
    ground = rng.integers(40, 140, (side, side, 3))
    axis = np.linspace(-0.6, 0.6, side)
    squared_distances = (axis[None, :, None] - positions[:, 0, None, None]) ** 2 + (
        axis[None, None, :] - positions[:, 1, None, None]
    ) ** 2
    spot = 110 * np.exp(-squared_distances / 0.02)
    film: Array = np.clip(
        ground[None] + spot[..., None] + rng.integers(0, 6, (len(positions), 1, 1, 1)), 0, 255
    ).astype(np.uint8)
    return film
