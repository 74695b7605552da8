"""Trains with Accelerate as docs/frameworks.md says, on the ranks of the environment; writes down what came."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from datacheck.errors import UsageError
from datacheck.torch import CachedDataset, EvalSampler


class Model(torch.nn.Module):
    """Learns nothing, writes down what it gets, and fails after some batches."""

    def __init__(self, fails_after=None):
        super().__init__()
        self.layer, self.seen, self.fails_after = torch.nn.Linear(1, 1), [], fails_after

    def forward(self, batch):
        if len(self.seen) == self.fails_after:
            raise KeyboardInterrupt
        self.seen.append(batch["label"].tolist())
        return self.layer(batch["label"].float()[:, None]).mean()


def train(folder, path, *, fails_after=None, resume=False):
    model = Model(fails_after)
    names = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), 0.0),
        "path": path,
        "batch_size": 2,
    }
    names |= {"epochs": 2, "resume": resume, "folder": folder / "state"}
    try:
        exec((folder / "snippet_2.py").read_text(), names)
    except KeyboardInterrupt:
        assert fails_after
    return model.seen


def main(path, folder):
    said = {"whole": train(folder, path)}
    for at in (1, 4, 6):  # of four batches an epoch
        said[f"{at}"] = [train(folder, path, fails_after=at), train(folder, path, resume=True)]
    accelerator = Accelerator()
    names = {"path": path, "batch_size": 2, "accelerator": accelerator, "epoch": 1, "step": 3}
    exec((folder / "snippet_3.py").read_text(), names)
    said["rest"] = [batch["label"].tolist() for batch in names["rest"]]
    said["prepared"] = [batch["label"].tolist() for batch in names["loader"]]
    data = CachedDataset(path)
    batches = data.sampler(2)
    samplers = (
        {"batch_sampler": batches},
        {"sampler": batches.sampler},
        {"sampler": EvalSampler(data)},
    )
    for wrong in samplers:
        try:
            list(accelerator.prepare(DataLoader(data, **wrong)))
        except UsageError as error:
            said.setdefault("refused", []).append(str(error))
    (folder / f"{folder.name}-{accelerator.process_index}.json").write_text(json.dumps(said))
    accelerator.end_training()  # else threads of gloo may abort the process when Python ends


if __name__ == "__main__":
    main(sys.argv[2], Path(sys.argv[3]))
