"""Loaders that misbehave, each in one way."""

import itertools
import os
import random
import signal
import sys
import threading
import time
from collections import namedtuple

import numpy as np


class Plain:
    """Ten samples that depend on their index and on nothing else."""

    count = 10

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.sample(index)

    def sample(self, index):
        return {
            "x": np.random.default_rng(index).normal(size=(6, 3)).astype(np.float32),
            "number": index,
        }


class Dying(Plain):
    """Index 3 does what the class is told to do."""

    def __init__(self, act):
        self.act = act

    def sample(self, index):
        if index == 3:
            self.act()
        return super().sample(index)


def _raise():
    raise ValueError("no such\nframe")


def _stop():
    raise KeyboardInterrupt


def _recurse(depth=0):
    return _recurse(depth + 1)


def raising():
    return Dying(_raise)


def leaving():
    return Dying(lambda: os._exit(9))


def exiting():
    return Dying(lambda: sys.exit("bye"))


def interrupted():
    return Dying(_stop)


def killed():
    return Dying(lambda: os.kill(os.getpid(), signal.SIGSEGV))


def hanging():
    return Dying(lambda: time.sleep(60))


def greedy():
    return Dying(lambda: np.zeros(1 << 40))


def recursing():
    return Dying(_recurse)


class _SilentError(Exception):
    def __str__(self):
        raise ValueError("no words")


def _fail_silently():
    raise _SilentError


def wordless():
    return Dying(_fail_silently)


def surrogates():
    return Dying(lambda: (_ for _ in ()).throw(ValueError("\udc80")))


class Forking(Plain):
    """Starts processes and threads that nobody waits for."""

    def sample(self, index):
        if os.fork() == 0:
            time.sleep(120)
            os._exit(0)
        threading.Thread(target=time.sleep, args=(120,)).start()
        return super().sample(index)


class Noisy(Plain):
    """Prints, reads standard input, and closes both."""

    def sample(self, index):
        print("index", index)  # noqa: T201
        os.write(1, b"noise")
        assert sys.stdin.read() == ""
        return super().sample(index)


# --------------------------------------------------------------------------------------- no dataset

number = 3


def failing():
    raise FileNotFoundError("data/list.txt")


def gone():
    os._exit(5)


def nothing():
    return None


class NoLength:
    def __getitem__(self, index):
        return index


class Empty(Plain):
    count = 0


class TooLong(Plain):
    count = 1 << 62


class BadLength(Plain):
    def __len__(self):
        raise TypeError("unsized")


# ------------------------------------------------------------------------------------------ values

Pair = namedtuple("Pair", "left right")


class Values(Plain):
    """Everything that may leave a loader."""

    count = 2

    def sample(self, index):
        import torch
        from PIL import Image

        return {
            "tensor": torch.full((2, 3), 0.5, requires_grad=True),
            "half": torch.full((2,), 1.5, dtype=torch.bfloat16),
            "image": Image.new("RGB", (4, 2), (255, 0, 7)),
            "nested": {"deep": {"flag": True}, 7: np.float64(1.5)},
            "pair": Pair(np.arange(3), "right"),
            "list": [1, 2, 3],
            "ragged": [[1, 2], [3]],
            "words": ["a", "b"],
            "text": "word",
            "bytes": b"word",
            "none": None,
            "big": np.arange(3, dtype=">i4")[::-1],
            "chat": [{"role": "user", "content": "hi"}],
            "tensors": [torch.zeros(2), torch.ones(3)],
        }


class Refused(Plain):
    """One kind of value at each index that is not taken."""

    count = 13

    def sample(self, index):
        import torch

        return [
            {"a": object()},
            {"a": {1, 2}},
            {"a": np.array([object()])},
            {"a": np.zeros(2, complex)},
            {"a": {(1, 2): 3}},
            {"a": b"\xff"},
            {"a": np.datetime64("2026-01-01")},
            {"a": torch.zeros(2).to_sparse()},
            {"a/b": 1, "a": {"b": 2}},
            {"a": 10**40},
            {"t\udc80": 1},
            {"a": "\ud800"},
            {"a": [{"b": "\ud800"}]},
        ][index]


class Rows(Plain):
    """One array of six columns, nothing else."""

    def sample(self, index):
        return super().sample(index)["x"].repeat(2, axis=1)


class Twins(Plain):
    """Two samples have one name."""

    def sample(self, index):
        return super().sample(index) | {"name": f"scene{index // 2}"}


# -------------------------------------------------------------------------------------- determinism


class Unseeded(Plain):
    def sample(self, index):
        return super().sample(index) | {"noise": np.random.default_rng().normal(size=4)}


class OwnGenerator(Plain):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def sample(self, index):
        return super().sample(index) | {"noise": self.rng.normal(size=4)}


class BuiltAtRandom(Plain):
    def __init__(self):
        self.scale = np.random.uniform(1, 2)  # noqa: NPY002

    def sample(self, index):
        sample = super().sample(index)
        return sample | {"x": sample["x"] * self.scale}


class SetOrder(Plain):
    def __init__(self):
        self.labels = {
            name: i
            for i, name in enumerate({"cup", "mug", "bowl", "lamp", "shoe", "kettle", "wrench"})
        }

    def sample(self, index):
        return super().sample(index) | {"label": self.labels["lamp"]}


class OfProcess(Plain):
    """What a worker gives is not what the main process gives."""

    def __init__(self):
        self.home = os.getpid()

    def sample(self, index):
        return super().sample(index) | {"main": os.getpid() == self.home}


class Augmented(Plain):
    def sample(self, index):
        sample = super().sample(index)
        return sample | {"x": sample["x"] + np.random.normal(size=3)}  # noqa: NPY002


class FailsInWorkers(OfProcess):
    def sample(self, index):
        if os.getpid() != self.home and index == 4:
            os._exit(2)
        return Plain.sample(self, index)


# ---------------------------------------------------------------------------------------- the index


class Constant(Plain):
    def sample(self, index):
        return super().sample(0)


class Next(Plain):
    def __init__(self):
        self.items = itertools.cycle(range(self.count))

    def sample(self, index):
        return super().sample(next(self.items))


class Drawn(Plain):
    count = 40

    def sample(self, index):
        return super().sample(random.randrange(self.count))


class Wrapped(Plain):
    def __getitem__(self, index):
        return self.sample(index % self.count)


class Endless(Plain):
    def __getitem__(self, index):
        return self.sample(index) if index < self.count else self[index]


class LastGood(Plain):
    """After an exception the sample before is served once more."""

    def sample(self, index):
        return self[index - 1] if index in {4, 5} else super().sample(index)


class Wrapper:
    """The first eight of another dataset, backwards."""

    def __init__(self, inner):
        self.parts = [inner]

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if not 0 <= index < 8:
            raise IndexError(index)
        return self.parts[0][7 - index]


def wrapped_last_good():
    return Wrapper(LastGood())


class Slices(Plain):
    """Asks itself for others while it makes a sample, and rightly so."""

    def __getitem__(self, index):
        if index == 9:
            return {
                name: value * 0 + self[3][name] + value
                for name, value in super().__getitem__(9).items()
            }
        return super().__getitem__(index)


def torch_dataset():
    import torch
    from torch.utils.data import Dataset

    class Torch(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            if index >= 12:
                raise IndexError(index)
            return torch.full((4,), float(index)), index % 3

    return Torch()


def torch_random():
    import torch

    base = type(torch_dataset())

    class Random(base):
        def __getitem__(self, index):
            values, label = super().__getitem__(index)
            return values + torch.rand(4), label

    return Random()
