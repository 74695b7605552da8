"""`Recorder` as a callback of Lightning."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

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
        how many different samples this rank saw: those of the indices that the loaders gave out, None where these
        cannot be seen. That before the training is left out.
    """

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self._folder, self._options = folder, options
        self._names: set[str] = set()  # metrics that a validation gave
        self._others: set[str] = set()
        self._watch: Watch | None = None
        self._judged: list[tuple[Any, Watch]] = []  # loaders of validations
        self._seen: dict[int, list[Any]] = {}  # indices of this validation, by the place of their loader
        self.recorder: Recorder | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Look at each loader when it is made: the first batches are fetched before the training starts."""
        del pl_module
        process = trainer.strategy.process_dataloader

        def processed(loader: Any) -> Any:
            loader = process(loader)
            if trainer.training:
                if self._watch is not None:  # perhaps of this very loader
                    self._watch.close()
                self._watch = Watch(loader)
                if self.recorder is not None:
                    self.recorder.watch(self._watch)
            elif self._watch_of(loader) is None:
                self._judged.append((loader, Watch(loader)))
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
        self._seen = {}
        loaders = _flat(trainer.val_dataloaders)
        for known, watch in self._judged:
            if not any(known is loader for loader in loaders):  # of an epoch that had its own
                watch.close()
        self._judged = [pair for pair in self._judged if any(pair[0] is loader for loader in loaders)]

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Take the indices of the batch."""
        del pl_module, batch, batch_idx
        loaders = _flat(trainer.val_dataloaders)
        watch = self._watch_of(loaders[dataloader_idx]) if dataloader_idx < len(loaders) else None
        given = None if watch is None else watch.take()
        self._seen.setdefault(dataloader_idx, []).append(None if given is None else given[1])

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the metrics."""
        del pl_module
        if self.recorder is None or trainer.sanity_checking:
            return
        values = {name: value for name, value in trainer.callback_metrics.items() if name not in self._others}
        self._names |= set(values)
        loaders = _flat(trainer.val_dataloaders)
        counts = [_count_distinct(self._seen.get(place, [])) for place in range(len(loaders))]
        known = [count for count in counts if count is not None]
        seen = sum(known) if len(known) == len(loaders) else None
        self.recorder.evaluation("val", values, seen=seen, of=_length(loaders))

    def _watch_of(self, loader: Any) -> Watch | None:
        return next((watch for known, watch in self._judged if known is loader), None)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the recording."""
        self._end(trainer, pl_module, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the recording with what ended the training."""
        self._end(trainer, pl_module, type(exception))

    def _end(self, trainer: Any, pl_module: Any, kind: type[BaseException] | None) -> None:
        del pl_module
        vars(trainer.strategy).pop("process_dataloader", None)
        for _, watch in self._judged:
            watch.close()
        self._judged = []
        if self.recorder is not None:
            self.recorder.__exit__(kind, None, None)
            self.recorder = None


def _flat(loaders: Any) -> list[Any]:
    """Return loaders as a list, in the order in which Lightning numbers them."""
    if isinstance(loaders, dict):
        loaders = list(loaders.values())
    if isinstance(loaders, list | tuple):
        return [one for some in loaders for one in _flat(some)]
    return [] if loaders is None else [loaders]


def _count_distinct(batches: list[Any]) -> int | None:
    """Return how many different indices there are in batches; None where those of one were not seen, or none came."""
    known = [indices for indices in batches if indices is not None]
    return len(np.unique(np.concatenate(known))) if known and len(known) == len(batches) else None


def _length(loaders: list[Any]) -> int | None:
    """Return how many samples the datasets of loaders have; None where they do not say."""
    try:
        return sum(len(loader.dataset) for loader in loaders) if loaders else None
    except (AttributeError, TypeError, NotImplementedError):
        return None
