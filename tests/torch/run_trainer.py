"""Trains with the Trainer of transformers as docs/frameworks.md says, on the ranks of the environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from transformers import TrainingArguments

from datacheck.torch import CachedDataset


class Model(torch.nn.Module):
    """Learns nothing and writes down what it gets."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []

    def forward(self, **batch):
        assert sorted(batch) == ["label", "weight"]  # no column is removed, none renamed
        self.seen.append(batch["label"].tolist())
        return {"loss": self.layer(batch["label"].float()[:, None]).mean()}


def train(kind, callbacks, path, folder, resume=None):
    quiet = {"report_to": [], "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}
    args = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=2,
        save_strategy="steps",
        save_steps=1,
        **quiet,
    )
    model = Model()
    kind(model=model, args=args, train_dataset=CachedDataset(path), callbacks=callbacks).train(
        resume
    )
    return model.seen


def main(path, folder):
    import snippet_4
    import snippet_5

    said = {}
    kinds = {
        "cached": (snippet_4.CachedTrainer, []),
        "workers": (snippet_5.WorkersTrainer, snippet_5.callbacks),
    }
    for name, (kind, callbacks) in kinds.items():
        whole = train(kind, callbacks, path, folder / name)
        rests = [
            train(kind, callbacks, path, folder / "rest", str(folder / name / f"checkpoint-{at}"))
            for at in (4, 6)
        ]
        said[name] = [whole, *rests]
    (folder / f"{folder.name}-{os.environ['RANK']}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[3])
    main(sys.argv[2], Path(sys.argv[3]))
    torch.distributed.destroy_process_group()  # else threads of gloo may abort the process when Python ends
