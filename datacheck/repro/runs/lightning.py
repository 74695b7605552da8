"""`Recorder` as a callback of Lightning."""

from __future__ import annotations

import os
from typing import Any

from datacheck.errors import MissingDependencyError
from datacheck.repro.runs.record import Recorder
from datacheck.repro.runs.watch import Watch

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning import Callback
    except ModuleNotFoundError as error:
        _MSG = "neither lightning nor pytorch_lightning is installed: pip install lightning"
        raise MissingDependencyError(_MSG) from error


class LightningRecorder(Callback):  # type: ignore[misc]  # Lightning is untyped here
    """Records what a Trainer of Lightning trains: ``Trainer(callbacks=[LightningRecorder("runs")])``.

    Args:
        folder: where runs lie.
        options: of `Recorder`, but for model, optimizer, loader and scaler, which the trainer says; a `config` of None
            is that of ``save_hyperparameters``.

    Notes:
        Gradients are those before Lightning clips them. An evaluation is written at the end of each validation, with
        how many different samples this rank saw; that before the training is left out.
    """

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self._folder, self._options = folder, options
        self._names: set[str] = set()  # metrics that a validation gave
        self._others: set[str] = set()
        self._watch: Watch | None = None
        self.recorder: Recorder | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Look at each loader of the training when it is made: the first batches are fetched before it starts."""
        del pl_module
        process = trainer.strategy.process_dataloader

        def processed(loader: Any) -> Any:
            loader = process(loader)
            if trainer.training:
                self._watch = Watch(loader)
                if self.recorder is not None:
                    self.recorder.watch(self._watch)
            return loader

        trainer.strategy.process_dataloader = processed

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to record."""
        given = dict(self._options)
        if given.get("config") is None:
            given["config"] = dict(getattr(pl_module, "hparams", {}))
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self.recorder = Recorder(
            self._folder, model=pl_module, optimizer=list(trainer.optimizers), loader=self._watch, scaler=scaler,
            **{"first_step": trainer.fit_loop.epoch_loop.total_batch_idx + 1} | given,
        )  # fmt: skip
        self.recorder.__enter__()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Digest the batch before the module has it."""
        del trainer, pl_module, batch_idx
        if self.recorder is not None:
            self.recorder.input(batch)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Digest the gradients."""
        del trainer, pl_module
        if self.recorder is not None:
            self.recorder.gradients(optimizer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write the step."""
        del pl_module, batch, batch_idx
        if self.recorder is not None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self.recorder.step(loss=loss, epoch=trainer.current_epoch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Remember which metrics are of the training."""
        del pl_module
        self._others = set(trainer.callback_metrics) - self._names

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the metrics."""
        del pl_module
        if self.recorder is None or trainer.sanity_checking:
            return
        values = {name: value for name, value in trainer.callback_metrics.items() if name not in self._others}
        self._names |= set(values)
        seen, of = _samples(trainer.val_dataloaders)
        self.recorder.evaluation("val", values, seen=seen, of=of)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the recording."""
        self._end(trainer, pl_module, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the recording with what ended the training."""
        self._end(trainer, pl_module, type(exception))

    def _end(self, trainer: Any, pl_module: Any, kind: type[BaseException] | None) -> None:
        del pl_module
        vars(trainer.strategy).pop("process_dataloader", None)
        if self.recorder is not None:
            self.recorder.__exit__(kind, None, None)
            self.recorder = None


def _samples(loaders: Any) -> tuple[int | None, int | None]:
    """Return how many samples of a validation this rank sees, and how many there are; None where they do not say."""
    if loaders is None:
        return None, None
    seen = of = 0
    for loader in loaders if isinstance(loaders, list | tuple) else [loaders]:
        sampler: Any = getattr(loader, "sampler", None)
        dataset: Any = getattr(loader, "dataset", None)
        try:
            of += len(dataset)
            seen += min(len(sampler), len(dataset))
        except TypeError:
            return None, None
    return seen, of
