"""Trainings with Lightning and Transformers, which take seconds to import: of several workers of pytest one does."""

import lightning as L  # noqa: N812  its own name for it
import torch
from torch.utils.data import DataLoader
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

from datacheck.repro import LightningRecorder, TrainerRecorder
from tests.repro.lines import dataset

__all__ = ["L", "LightningRecorder", "Module", "TrainerRecorder", "fit", "teach"]


class Module(L.LightningModule):
    """Learns a line; may be fed another batch at one step."""

    def __init__(self, rate=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.rate, momentum=0.9)


def fit(callback, rate=0.1, **more):
    torch.manual_seed(0)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=2, callbacks=[callback], log_every_n_steps=1, **quiet, **more
    )
    loader = DataLoader(dataset(), 4, shuffle=True)
    trainer.fit(Module(rate), loader, DataLoader(dataset(), 4))


class Config(PretrainedConfig):
    model_type = "line"
    width = 3


class Line(PreTrainedModel):
    """Learns a line."""

    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(3, 1)
        self.post_init()

    def forward(self, x=None, labels=None):
        said = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(said, labels), "logits": said}


def teach(callbacks, folder, rate=0.1, judged=None, **more):
    torch.manual_seed(0)
    quiet = {
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "use_cpu": True,
        "logging_strategy": "no",
    }
    args = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        learning_rate=rate,
        eval_strategy="epoch",
        **quiet,
        **more,
    )
    rows = [{"x": x, "labels": y} for x, y in dataset()]
    sets = {name: rows[:count] for name, count in judged.items()} if judged else rows
    Trainer(
        model=Line(Config()), args=args, train_dataset=rows, eval_dataset=sets, callbacks=callbacks
    ).train()
