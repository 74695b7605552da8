"""Compares the spacing of clouds that rules use with SciPy's k-d tree: processor time and values.

Both take the median distance of 32 points of each cloud to the nearest other point. The start of
Python with and without SciPy is measured, too.

    python scripts/bench/spacing.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.spatial import cKDTree

from datacheck.model.sample import Column
from datacheck.rules.point_spacing import spacing

SIZES = ((2_000, 100), (100, 10_000), (30, 150_000), (10, 1_000_000))


def surface(rng: np.random.Generator, points: int) -> np.ndarray:
    """Return a cloud on the walls of a room: float32 (points, 3) [m]."""
    cloud = rng.uniform(-3, 3, (points, 3))
    cloud[np.arange(points), rng.integers(0, 3, points)] = 3.0
    return cloud.astype(np.float32)


def by_tree(clouds: list[np.ndarray], most: int = 32) -> list[float]:
    """Return the spacing of each cloud from a k-d tree, by up to `most` of its points."""
    medians = []
    for cloud in clouds:
        many = min(most, len(cloud))
        queries = cloud[(2 * np.arange(many) + 1) * len(cloud) // (2 * many)]
        nearest = cKDTree(cloud).query(queries, k=2)[0][:, 1]
        medians.append(float(np.sort(nearest)[(many - 1) // 2]))
    return medians


def _span(values: np.ndarray) -> str:
    return f"{np.median(values):.2f} ({values.min():.2f} .. {values.max():.2f})"


def processor_time(work: Callable[[], object], rounds: int) -> float:
    """Return the median processor time of a call in seconds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def import_time(statement: str, rounds: int) -> float:
    """Return the median processor time of a Python process that runs a statement, in seconds."""
    code = f"{statement}; import time; print(time.process_time())"
    run = [sys.executable, "-c", code]
    return statistics.median(float(subprocess.check_output(run)) for _ in range(rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="Rounds of each measurement.")
    rounds = parser.parse_args().rounds
    rng = np.random.default_rng(1)
    print(
        "| clouds | points each | datacheck [ms] | cKDTree [ms] | ratio "
        "| spacing against that of 4,000 points: datacheck | cKDTree |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for count, points in SIZES:
        clouds = [surface(rng, points) for _ in range(count)]
        column = Column(np.concatenate(clouds), np.full(count, points))
        every = np.ones(count, bool)
        ours = spacing(column, every)
        assert ours is not None
        exact = [by_tree([cloud], 4_000)[0] for cloud in clouds[:100]]
        near = ours.values[:100] / exact
        tree_near = np.array(by_tree(clouds[:100])) / exact
        mine = processor_time(partial(spacing, column, every), rounds)
        tree = processor_time(partial(by_tree, clouds), rounds)
        print(
            f"| {count:,} | {points:,} | {mine * 1e3:.1f} | {tree * 1e3:.1f} "
            f"| {tree / mine:.1f} | {_span(near)} | {_span(tree_near)} |"
        )
    numpy_only = import_time("import numpy", rounds)
    for name in ("scipy.spatial", "scipy.stats"):
        extra = import_time(f"import numpy, {name}", rounds) - numpy_only
        print(f"import {name}: {extra * 1e3:.0f} ms beside NumPy")


if __name__ == "__main__":
    main()
