"""Trains with Lightning on the data modules of docs/frameworks.md and writes down what each rank was served."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader, Subset

from datacheck.errors import UsageError
from datacheck.torch import CachedDataset, EvalSampler


class Model(lightning.LightningModule):
    """Learns nothing and writes down what it gets."""

    def __init__(self, out: Path):
        super().__init__()
        self.layer, self.out, self.seen = torch.nn.Linear(1, 1), out, []

    def training_step(self, batch, step):
        self.seen.append([self.current_epoch, step, batch["label"].tolist()])
        return self.layer(batch["label"].float()[:, None]).mean()

    def validation_step(self, batch, step):
        self.seen.append(batch["label"].tolist())

    def teardown(self, stage):
        (self.out / f"{self.out.name}-{self.global_rank}.json").write_text(json.dumps(self.seen))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)


class Evaluated(lightning.LightningDataModule):
    """What is left of a cache without one sample, on ranks that know their part when the loader is made."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def val_dataloader(self):
        data = Subset(CachedDataset(self.path), range(15))
        return DataLoader(data, 3, sampler=EvalSampler(data))


class Indexed(lightning.LightningDataModule):
    """A sampler of single indices."""

    def __init__(self, path, batch_size):
        super().__init__()
        self.path, self.batch_size = path, batch_size

    def train_dataloader(self):
        data = CachedDataset(self.path)
        return DataLoader(data, self.batch_size, sampler=data.sampler(self.batch_size).sampler)


def trainer(epochs, **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"enable_checkpointing": False} | options
    return lightning.Trainer(accelerator="cpu", max_epochs=epochs, **quiet, **options)


DDP = {"devices": 2, "strategy": "ddp"}


def two_ranks(kinds, flag, path, out):
    """Each kind of loader on two ranks; and the one that needs the flag, without it."""
    for name, kind in kinds.items():
        (out / name).mkdir(exist_ok=True)
        trainer(2, **DDP, **(flag if name == "workers" else {})).fit(
            Model(out / name), kind(path, 2)
        )
    (out / "evaluated").mkdir(exist_ok=True)
    trainer(1, **DDP).validate(Model(out / "evaluated"), Evaluated(path))
    try:
        trainer(1, **DDP).fit(Model(out), kinds["workers"](path, 2))
    except UsageError as error:
        sys.stdout.write(f"refused: {error}\n")


def resumed(kinds, path, out):
    """Each kind of loader without a break, with a checkpoint behind each batch; then from some of them on."""
    for name, kind in kinds.items():
        folder = out / name
        folder.mkdir()
        kept = lightning.pytorch.callbacks.ModelCheckpoint(
            folder, "{step}", every_n_train_steps=1, save_top_k=-1
        )
        whole = trainer(3, devices=1, callbacks=[kept], enable_checkpointing=True)
        whole.fit(Model(folder), kind(path, 2))
        ended = folder / "ended.ckpt"
        whole.save_checkpoint(ended)
        for at in [*sys.argv[4:], "ended"]:
            (folder / at).mkdir()
            file = ended if at == "ended" else folder / f"step={at}.ckpt"
            trainer(4, devices=1).fit(
                Model(folder / at), kind(path, 2), ckpt_path=file, weights_only=True
            )


def resumed_by_two_ranks(kinds, flag, path, out):
    """Each kind of loader, from a checkpoint of one rank on, with half the batch size."""
    for name, kind in kinds.items():
        file, folder = out / name / "step=11.ckpt", out / name / "two"
        folder.mkdir(exist_ok=True)
        trainer(4, **DDP, **flag).fit(
            Model(folder), kind(path, 1), ckpt_path=file, weights_only=True
        )


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[3])
    sys.executable = os.environ["STARTS_RANKS"]  # Lightning starts the other rank with it
    import snippet_0
    import snippet_1

    modules = {"cached": snippet_0.Clouds, "workers": snippet_1.Clouds}
    cache, folder = sys.argv[2], Path(sys.argv[3])
    if sys.argv[1] == "ranks":
        two_ranks(modules | {"indexed": Indexed}, snippet_1.trainer, cache, folder)
    elif sys.argv[1] == "resume":
        resumed(modules, cache, folder)
    else:
        resumed_by_two_ranks(modules, snippet_1.trainer, cache, folder)
