"""A small real training run, recorded."""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # noqa: F401  an optimizer does
from torch.utils.data import DataLoader, Dataset

from datacheck.repro import Recorder


class Files(Dataset):
    """One sample per file of eight float32; may be noisy, and may know its epoch."""

    def __init__(self, folder, asked):
        names = os.listdir(folder)
        if asked.get("listed") == "reversed":  # as another file system gives them
            names = sorted(names, reverse=True)
        self.paths = [
            Path(folder) / name for name in (names if asked.get("listed") else sorted(names))
        ]
        self.noise, self.epochs = asked.get("noise", False), asked.get("epochs", "none")
        self.epoch = torch.zeros(1).share_memory_() if self.epochs == "shared" else torch.zeros(1)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        x = torch.from_numpy(np.fromfile(self.paths[i], np.float32))
        if self.noise:
            x = x + torch.rand(8)
        if self.epochs != "none":
            x = x + self.epoch
        return x[:7], x[7:]


def loader_of(asked):
    data = Files(asked["data"], asked)
    workers = (
        {"num_workers": asked["workers"], "persistent_workers": True}
        if asked.get("workers")
        else {}
    )
    return data, DataLoader(data, 20, shuffle=asked.get("shuffle", True), **workers)


def optimizer_of(model, asked):
    optimizer = torch.optim.SGD(
        model.parameters(), lr=asked.get("lr", 0.01), momentum=asked.get("momentum", 0.9)
    )
    if "buffer" in asked:
        for parameter in model.parameters():
            optimizer.state[parameter]["momentum_buffer"] = torch.full_like(
                parameter, asked["buffer"]
            )
    return optimizer


def train(asked):
    data, loader = loader_of(asked)
    model = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = optimizer_of(model, asked)
    step = 0
    with Recorder(
        asked["runs"],
        name=asked["name"],
        config={"lr": asked.get("lr", 0.01)},
        model=model,
        optimizer=optimizer,
        loader=loader,
        data=[asked["data"]],
        every=asked.get("every", 10),
    ) as recorder:
        for epoch in range(asked.get("passes", 2)):
            data.epoch.fill_(epoch)
            for x, y in loader:
                if step == asked.get("nudge"):
                    x = x * (1 + 1e-6)
                loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                if step == asked.get("forget"):
                    optimizer.state[model[0].weight]["momentum_buffer"].zero_()
                optimizer.step()
                recorder.step((x, y), loss)
                step += 1
            recorder.evaluation("train", {"loss": loss}, seen=len(data), of=len(data))


def main(asked):
    """Train as asked, in this process."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(asked.get("seed", 0))
    torch.set_num_threads(asked.get("threads", 1))
    for name in asked.get("imports", []):
        __import__(name)
    for path in asked.get("libraries", []):
        ctypes.CDLL(path)
    train(asked)


if __name__ == "__main__":  # asked on standard input, so that no command line differs
    main(json.load(sys.stdin))
