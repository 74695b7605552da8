"""What recording costs a training step.

    python scripts/bench/recorder.py [--blocks 20] [--every 50] [--step-ms 50] [--threads N]

A perceptron of 1.6 million weights is trained with AdamW from a DataLoader on the processor; the
batch is made as large as a step of the wanted time needs. Two trainings, one with a Recorder, take
turns step by step, so that what else runs on the machine meets both. What counts is how much longer
a step takes, with the batch that it is given: the median over pairs of steps, those of which every
K-th digests weights apart from the others, weighed as often as they come; nine of ten drawings from
these pairs (with replacement) lie between the two figures beside it. Below stands the time within
the recorder's own calls and hooks; it is more than what a step takes longer where the optimiser
finds gradients near that were read for their norm. What is done once, at the start and behind the
first step, is told apart. Parts are timed one by one too. Ends with 1 where recording takes more
than 3 % of a step.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from datacheck.repro import Recorder, tensors
from datacheck.repro.tensors import RandomStates, digest_batch

LIMIT = 0.03
# How far from the wanted time a step may be; the machine's speed changes by more while one waits
NEAR, TRIES = (0.1, 4)
WIDTH = 512


class Timed(Recorder):
    """Counts the time within its calls; those within one another count once."""

    spent = 0.0
    depth = 0

    def _in(self, call, *given, **named):
        self.depth += 1
        start = time.perf_counter()
        try:
            return call(*given, **named)
        finally:
            self.depth -= 1
            if not self.depth:
                self.spent += time.perf_counter() - start

    def step(self, *given, **named):
        return self._in(super().step, *given, **named)

    def _before(self, *given):
        return self._in(super()._before, *given)

    def _after(self, *given):
        return self._in(super()._after, *given)


def parts():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, 10),
    )
    return model, torch.optim.AdamW(model.parameters())


class Training:
    """A training that goes on when it is asked to, recorded or not."""

    def __init__(self, loader, model, optimizer, recorder=None):
        self.model, self.optimizer, self.recorder = model, optimizer, recorder
        self.loader, self.batches = loader, iter(loader)

    def steps(self, count):
        """Return the seconds of each of so many steps: until the batch is there, and from then on."""
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            try:
                x, y = next(self.batches)
            except StopIteration:
                self.batches = iter(self.loader)
                x, y = next(self.batches)
            start = time.perf_counter()
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.recorder is not None:
                self.recorder.step((x, y), loss)
            times.append((start - begun, time.perf_counter() - start))
        return times


def loader_of(size, count=20):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(size * count, WIDTH, generator=generator)
    y = torch.randint(10, (size * count,), generator=generator)
    return DataLoader(TensorDataset(x, y), size, shuffle=True, drop_last=True)


def fitting(step_ms):
    """Return the batch size whose step takes about so long."""
    size = 64
    for _ in range(6):
        took = np.median(Training(loader_of(size, 2), *parts()).steps(40), axis=0)[1] * 1e3
        size = resized(size, step_ms, took)
    return size


def resized(size, step_ms, took):
    """Return the batch size whose step takes the wanted time where that of `size` took so long [ms]."""
    return max(8, min(16_384, round(size * step_ms / took)))


def one_by_one(size):
    """Print what each part takes alone [ms]."""
    model, optimizer = parts()
    x, y = next(iter(loader_of(size, 2)))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    jobs = {
        "input": lambda: digest_batch((x, y), size),
        "gradient norm": lambda: tensors.norm([p.grad for p in model.parameters()]),
        "random states": RandomStates().digests,
        "gradients (every K)": lambda: tensors.digest_tensors(tensors.gradients_of(optimizer)),
        "weights (every K)": lambda: tensors.digest_tensors(tensors.named_weights(model)),
        "optimiser (every K)": lambda: tensors.digest_state(optimizer),
    }
    for name, job in jobs.items():
        times = []
        for _ in range(20):
            start = time.perf_counter()
            job()
            times.append(time.perf_counter() - start)
        print(f"  {name:<22}{statistics.median(times) * 1e3:8.3f} ms")


def measured(size, given, folder):
    """Return seconds: of each plain and each recorded step, in blocks of K; of the recorder's own calls, and its start.

    Shapes:
        plain, recorded: (blocks, K, 2): of loading, of the step
        own: (blocks), the mean over the steps of each
    """
    loader, found = loader_of(size), defaultdict(list)
    plain = Training(loader_of(size), *parts())  # the sampler of the other is watched
    plain.steps(given.every)
    begun = time.perf_counter()
    model, optimizer = parts()
    with Timed(
        folder, name="run", model=model, optimizer=optimizer, loader=loader, every=given.every
    ) as recorder:
        found["start"].append(time.perf_counter() - begun)
        recorded = Training(loader, model, optimizer, recorder)
        recorded.steps(1)
        found["start"].append(recorder.spent)
        recorded.steps(given.every - 1)
        for _ in range(given.blocks):
            before = recorder.spent
            pairs = [plain.steps(1) + recorded.steps(1) for _ in range(given.every)]
            found["own"].append((recorder.spent - before) / given.every)
            for name, times in zip(("plain", "recorded"), zip(*pairs, strict=True), strict=True):
                found[name].append(times)
    return found


def longer(plain, recorded):
    """Return how much longer a recorded step takes, between which nine of ten drawings say so, and a plain one [s].

    Notes:
        A block begins with its step that digests weights. Medians leave out what comes once in an
        epoch.
    """
    more = (np.array(recorded) - np.array(plain)).sum(axis=2)
    rng = np.random.default_rng(0)
    drawn = [_weighed(more[rng.integers(0, len(more), len(more))]) for _ in range(1000)]
    return _weighed(more), np.quantile(drawn, [0.05, 0.95]), np.median(np.array(plain)[:, :, 1])


def _weighed(more):
    count = more.shape[1]
    return (np.median(more[:, 1:]) * (count - 1) + np.median(more[:, 0])) / count


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=50.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    given = parser.parse_args()
    if given.every < 2:
        parser.error(
            "--every: 2 or more, of a block one step digests weights and the others do not"
        )
    torch.set_num_threads(given.threads)
    size = fitting(given.step_ms)
    model, _ = parts()
    count = sum(p.numel() for p in model.parameters())
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, {given.threads} "
        f"threads"
    )
    print(
        f"{count / 1e6:.1f} M weights, batches of {size} ({size * WIDTH * 4 / 1e6:.2f} MB), K = "
        f"{given.every}"
    )
    one_by_one(size)
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as folder:
            found = measured(size, given, folder)
            octets = (Path(folder) / "run/trace-00000.jsonl").stat().st_size / (
                given.every * (given.blocks + 1)
            )
        more, between, plain = longer(found["plain"], found["recorded"])
        if abs(plain * 1e3 / given.step_ms - 1) <= NEAR:
            break
        print(
            f"a step takes {plain * 1e3:.1f} ms by now, recorded {more * 1e3:.2f} ms more: again, "
            f"with another batch"
        )
        size = resized(size, given.step_ms, plain * 1e3)
    own = statistics.median(found["own"])
    low, high = np.quantile(np.array(found["plain"])[:, :, 1], [0.05, 0.95]) * 1e3
    print(
        f"a step takes {plain * 1e3:.2f} ms (nine of ten {low:.1f} to {high:.1f}), recorded "
        f"{more * 1e3:.2f} ms more"
    )
    begun, looked = (f"{seconds * 1e3:.0f} ms" for seconds in found["start"])
    print(f"once: {begun} at the start, {looked} within the first step")
    least, most = between / plain
    print(
        f"recording takes {more / plain:.2%} of a step ({least:.2%} to {most:.2%}; limit "
        f"{LIMIT:.0%})"
    )
    print(f"its own calls take {own * 1e3:.2f} ms, {own / plain:.2%}")
    print(f"{octets:.0f} B are written a step")
    return 1 if more / plain > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
