"""Robot demonstrations in HDF5 (LIBERO, robomimic, ALOHA as RDT reads it), and faults of LIBERO's.

Layout of LIBERO, a file per task and a group per demo::

    {suite}/{task}_demo.hdf5
        /data                         attrs env_name, problem_info, num_demos, total, tag, ...
        /data/demo_0/{actions, states, robot_states, rewards, dones, obs/...}   attrs num_samples,
        init_state, ...

As in the released files, obs[t] is the result of action[t], while states[t] is the state before
action[t].

Layout of robomimic, with next observations and split masks::

    {task}/ph/low_dim_v141.hdf5
        /data                         attrs env_args, total
        /data/demo_0/{actions, states, rewards, dones, obs/..., next_obs/...}   attrs num_samples
        /mask/{train,valid}           names of demos

Layout of ALOHA, a file per episode of a two-armed robot::

    {task}/episode_{0}.hdf5     action (T, 14), observations/{qpos,qvel} (T, 14); no images
    {task}/expanded_instruction_gpt-4-turbo.json
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from datacheck.testing.draw import Array, curves, generator, lognormal
from datacheck.testing.fault import Fault, Planted, Site, names, truncate

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


LIBERO_REAL = LiberoSize(suites=tuple(SUITES), tasks=10, demos=50, image=128)


def write_libero(folder: Path, seed: int, size: LiberoSize) -> None:
    """Write a clean dataset of LIBERO."""
    for suite in size.suites:
        (folder / suite).mkdir(parents=True, exist_ok=True)
        for number in range(size.tasks):
            task = TASKS[number % len(TASKS)] + ("" if number < len(TASKS) else f"_{number}")
            with h5py.File(folder / suite / f"{task}_demo.hdf5", "w", track_order=False) as file:
                _write_libero_task(file, suite, task, seed, size)


def _write_libero_task(file: h5py.File, suite: str, task: str, seed: int, size: LiberoSize) -> None:
    mean, longest, width = SUITES[suite]
    data = file.create_group("data")
    total = 0
    for number in range(size.demos):
        rng = generator(seed, suite, task, number)
        steps = lognormal(rng, 0.97 * mean, 0.22, 72 if suite != "libero_10" else 150, longest)
        record = _pick_and_place(rng, steps, width, size.image)
        _write_demo(data, f"demo_{number}", record)
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


def _write_demo(data: h5py.Group, name: str, record: dict[str, Array]) -> None:
    """Write one demonstration with its attributes."""
    group = data.create_group(name)
    for field, value in record.items():
        group.create_dataset(field, data=value)
    group.attrs["num_samples"] = len(record["actions"])
    group.attrs["init_state"] = record["states"][0]
    group.attrs["model_file"] = '<mujoco model="base"><worldbody/></mujoco>'


def _pick_and_place(
    rng: np.random.Generator, steps: int, width: int, image: int
) -> dict[str, Array]:
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


_ROBOMIMIC_TASKS = ("lift", "can", "square", "transport", "tool_hang")
_ROBOMIMIC_WIDTH = 32  # of the flattened simulator state


@dataclass(frozen=True)
class RobomimicSize:
    """Size of the dataset: tasks, demonstrations per task, their mean number of steps."""

    tasks: int = 2
    demos: int = 10
    steps: int = 100


ROBOMIMIC_REAL = RobomimicSize(tasks=5, demos=200, steps=130)


def write_robomimic(folder: Path, seed: int, size: RobomimicSize) -> None:
    """Write a clean dataset of robomimic."""
    for task in _ROBOMIMIC_TASKS[: size.tasks]:
        task_folder = folder / task / "ph"
        task_folder.mkdir(parents=True, exist_ok=True)
        with h5py.File(task_folder / "low_dim_v141.hdf5", "w") as file:
            _write_robomimic_task(file, task, seed, size)


def _write_robomimic_task(file: h5py.File, task: str, seed: int, size: RobomimicSize) -> None:
    data = file.create_group("data")
    total = 0
    for number in range(size.demos):
        rng = generator(seed, "robomimic", task, number)
        record = _record(
            _pick_and_place(rng, lognormal(rng, size.steps, 0.2, 40, 800), _ROBOMIMIC_WIDTH, 0)
        )
        _write_demo(data, f"demo_{number}", record)
        total += len(record["actions"])
    data.attrs["total"] = total
    data.attrs["env_args"] = json.dumps(
        {"env_name": task, "type": 1, "env_kwargs": {"control_freq": 20}}
    )
    demos = [f"demo_{i}" for i in range(size.demos)]
    cut = max(1, size.demos * 9 // 10)
    file["mask/train"], file["mask/valid"] = np.array(demos[:cut], "S"), np.array(demos[cut:], "S")


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


_ALOHA_GRIPPERS = [6, 13]


@dataclass(frozen=True)
class AlohaSize:
    """Size of the dataset: tasks, episodes per task, their median number of steps."""

    tasks: int = 2
    episodes: int = 8
    steps: int = 300


ALOHA_REAL = AlohaSize(tasks=30, episodes=50, steps=500)


def write_aloha(folder: Path, seed: int, size: AlohaSize) -> None:
    """Write a clean dataset of ALOHA."""
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
            joints[:, _ALOHA_GRIPPERS] = 2.4 + 2.3 * curves(rng, steps + 1, 2)
            with h5py.File(task_folder / f"episode_{number}.hdf5", "w") as file:
                file["action"], file["observations/qpos"] = joints[1:], joints[:-1]
                file["observations/qvel"] = 50 * np.diff(joints, axis=0)
                file.attrs["sim"] = False


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
