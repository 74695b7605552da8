"""Faults of demonstrations."""

from __future__ import annotations

import json
from collections.abc import Callable

import h5py
import numpy as np

from datacheck.testing.faults.base import Fault, Planted, Site, names, truncate
from datacheck.testing.synth.draw import Array

Demo = dict[str, Array]
SHORT = 50


def _demos(site: Site) -> list[str]:
    demos = []
    for path in names(site, "*/*.hdf5"):
        if path not in site.taken:
            with h5py.File(site.folder / path) as file:
                demos += [f"{path}:/data/{name}" for name in file["data"]]
    return sorted(demos)


def _read(group: h5py.Group) -> Demo:
    arrays: Demo = {}
    group.visititems(
        lambda name, item: (
            arrays.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
        )
    )
    return arrays


def _replace(group: h5py.Group, demo: Demo) -> None:
    for name in sorted(_read(group)):
        del group[name]
    for name, value in demo.items():
        group.create_dataset(name, data=value)


def _edit(
    name: str, code: str, what: str, change: Callable[[Demo], None], *, keep_count: bool = False
) -> Fault:
    def plant(site: Site) -> list[Planted]:
        key = site.pick(_demos(site))[0]
        path, _, inner = key.partition(":")
        with h5py.File(site.folder / path, "r+") as file:
            demo = _read(file[inner])
            change(demo)
            _replace(file[inner], demo)
            if not keep_count:
                _recount(file, inner, len(demo["actions"]))
        return [Planted((key,), code, what)]

    return Fault(name, "libero", code, plant)


def _recount(file: h5py.File, inner: str, steps: int) -> None:
    file["data"].attrs["total"] = (
        int(file["data"].attrs["total"]) + steps - int(file[inner].attrs["num_samples"])
    )
    file[inner].attrs["num_samples"] = steps


def _short(demo: Demo) -> None:
    for name in demo:
        demo[name] = demo[name][:SHORT]


def _six_numbers(demo: Demo) -> None:
    demo["actions"] = demo["actions"][:, :6].copy()


def _no_position(demo: Demo) -> None:
    del demo["obs/ee_pos"]


def _idle(demo: Demo) -> None:
    """Stop all motion for seven tenths of the demo; the gripper command stays as it is."""
    steps = len(demo["actions"])
    start = steps // 5
    stop = steps - steps // 10
    demo["actions"][start:stop, :6] = 0.0
    for name in demo:
        if name.startswith("obs/") or name in {"states", "robot_states"}:
            demo[name][start:stop] = demo[name][start]


def _early_mark(demo: Demo) -> None:
    demo["dones"][len(demo["dones"]) // 2] = 1


def _stale_states(demo: Demo) -> None:
    """Freeze the simulator's state for 1.5 s; the arm moves on."""
    start = len(demo["states"]) // 4
    demo["states"][start : start + 31] = demo["states"][start]


def _teleport(demo: Demo) -> None:
    demo["obs/ee_pos"][len(demo["obs/ee_pos"]) // 2 :] += [0.0, 0.3, 0.0]


def _degrees(demo: Demo) -> None:
    demo["obs/joint_states"] = np.rad2deg(demo["obs/joint_states"])


def _other_gripper(demo: Demo) -> None:
    demo["actions"][:, 6] = -demo["actions"][:, 6]


def _nan_action(demo: Demo) -> None:
    demo["actions"][len(demo["actions"]) // 2, 1] = np.nan


def _minus_one(demo: Demo) -> None:
    demo["obs/ee_pos"][10:25] = -1.0


def _one_row_less(demo: Demo) -> None:
    demo["obs/joint_states"] = demo["obs/joint_states"][:-1]


def _millimetres(demo: Demo) -> None:
    demo["obs/ee_pos"] = demo["obs/ee_pos"] * 1000


def _beyond(demo: Demo) -> None:
    demo["obs/joint_states"][:, 3] -= 1.0


def _jump(demo: Demo) -> None:
    half = len(demo["actions"]) // 2
    demo["obs/joint_states"][half:, 6] += 0.5


def _wrapped(demo: Demo) -> None:
    """Wrap the orientation in the middle: the same rotations, other numbers."""
    half = len(demo["actions"]) // 2
    ori = demo["obs/ee_ori"][half:]
    angle = np.sqrt(np.einsum("ij,ij->i", ori, ori))[:, None]
    demo["obs/ee_ori"][half:] = ori * (1 - 2 * np.pi / angle)


def _other_convention(site: Site) -> list[Planted]:
    key = site.pick(_demos(site))[0]
    path, _, inner = key.partition(":")
    with h5py.File(site.folder / path, "r+") as file:
        file[inner].attrs["macros_image_convention"] = "opencv"
    return [Planted((key,), "DC309", "images that say they are upright")]


def _truncated(site: Site) -> list[Planted]:
    path = site.pick(
        [p for p in names(site, "*/*.hdf5") if not any(k.startswith(f"{p}:") for k in site.taken)]
    )[0]
    truncate(site.folder / path)
    return [Planted((path,), "DC101", "half of a task's file is missing")]


def _wrong_total(site: Site) -> list[Planted]:
    path = site.pick(
        [p for p in names(site, "*/*.hdf5") if not any(k.startswith(f"{p}:") for k in site.taken)]
    )[0]
    with h5py.File(site.folder / path, "r+") as file:
        file["data"].attrs["num_demos"] = len(file["data"]) + 1
        keys = sorted(f"{path}:/data/{name}" for name in file["data"])
    site.taken.update(keys)
    return [Planted(tuple(keys), "DC111", "a file states one demo more than it holds")]


def _no_words(site: Site) -> list[Planted]:
    path = site.pick(
        [p for p in names(site, "*/*.hdf5") if not any(k.startswith(f"{p}:") for k in site.taken)]
    )[0]
    with h5py.File(site.folder / path, "r+") as file:
        problem = json.loads(file["data"].attrs["problem_info"])
        del problem["language_instruction"]
        file["data"].attrs["problem_info"] = json.dumps(problem)
        keys = sorted(f"{path}:/data/{name}" for name in file["data"])
    site.taken.update(keys)
    return [Planted(tuple(keys), "DC121", "a task without an instruction")]


def _duplicate(site: Site) -> list[Planted]:
    key = site.pick(_demos(site))[0]
    path, _, inner = key.partition(":")
    with h5py.File(site.folder / path, "r+") as file:
        copy = f"/data/demo_{len(file['data'])}"
        file.copy(inner, copy)
        file["data"].attrs["num_demos"] = len(file["data"])
        file["data"].attrs["total"] = int(file["data"].attrs["total"]) + int(
            file[copy].attrs["num_samples"]
        )
    first, second = sorted((key, f"{path}:{copy}"))
    site.taken.add(f"{path}:{copy}")
    return [Planted((second,), "DC803", "one demo stands in a file twice", (first,))]


def _dead_action(site: Site) -> list[Planted]:
    for path in [p for p in names(site, "*/*.hdf5") if p not in site.taken]:
        with h5py.File(site.folder / path, "r+") as file:
            for name in file["data"]:
                actions = file["data"][name]["actions"]
                if actions.shape[1] > 3:
                    actions[:, 3] = 0.0
    return [Planted((), "DC223", "the fourth action never changes, in any demo")]


FAULTS = (
    Fault("truncated-file", "libero", "DC101", _truncated),
    Fault("dead-action", "libero", "DC223", _dead_action),
    Fault("wrong-num-demos", "libero", "DC111", _wrong_total),
    Fault("no-instruction", "libero", "DC121", _no_words),
    _edit("short-demo", "DC501", f"a demo of {SHORT} steps", _short),
    _edit("six-actions", "DC122", "actions of 6 numbers", _six_numbers),
    _edit("no-ee-pos", "DC121", "obs/ee_pos is missing", _no_position),
    _edit("idle-demo", "DC504", "nothing moves for 70 % of a demo", _idle),
    _edit("early-mark", "DC512", "a demo is done in the middle as well", _early_mark),
    _edit("stale-states", "DC506", "the same simulator state for 1.5 s", _stale_states),
    _edit("teleport", "DC505", "the hand jumps by 0.3 m", _teleport),
    _edit("joints-in-degrees", "DC202", "joint angles in degrees", _degrees),
    _edit("gripper-flipped", "DC207", "the gripper command is flipped", _other_gripper),
    _edit("nan-action", "DC221", "one action is NaN", _nan_action),
    _edit("minus-one-positions", "DC222", "15 positions are -1 -1 -1", _minus_one),
    _edit("positions-in-mm", "DC201", "hand positions in millimetres", _millimetres),
    _edit("beyond-the-limit", "DC603", "joint 4 a radian too low", _beyond),
    _edit("joint-jump", "DC604", "joint 7 jumps by half a radian", _jump),
    _edit("wrapped-orientation", "DC607", "orientation wraps in mid demo", _wrapped),
    _edit("one-row-less", "DC123", "joint_states has a step less", _one_row_less),
    Fault("other-image-convention", "libero", "DC309", _other_convention),
    Fault("duplicate-demo", "libero", "DC803", _duplicate),
)
