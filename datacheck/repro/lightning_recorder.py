"""`Recorder` as a callback of Lightning."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from datacheck.errors import MissingDependencyError
from datacheck.repro.record import Recorder
from datacheck.repro.sampler_observer import SamplerObserver

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning import Callback
    except ModuleNotFoundError as error:
        _MSG = "neither lightning nor pytorch_lightning is installed: pip install lightning"
        raise MissingDependencyError(_MSG) from error


class LightningRecorder(Callback):  # type: ignore[misc]  # Lightning is untyped here
    """Records the training of a Lightning Trainer.

    Use it as ``Trainer(callbacks=[LightningRecorder("runs")])``.

    Args:
        folder: the folder of runs.
        options: of `Recorder`, except model, optimizer, loader and scaler, which the trainer
            provides; a `config` of None is that of ``save_hyperparameters``.

    Notes:
        Gradients are recorded before Lightning clips them. Each validation writes an evaluation at
        its end, with the number of different samples that this rank saw: counted from the indices
        of the loaders, None if they cannot be observed. The sanity check before the training is
        left out.
    """

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self._folder, self._options = folder, options
        self._names: set[str] = set()  # metrics of validations
        self._others: set[str] = set()
        self._watch: SamplerObserver | None = None
        self._judged: list[tuple[Any, SamplerObserver]] = []  # loaders of validations
        # Indices of this validation, by the position of their loader
        self._seen: dict[int, list[Any]] = {}
        self.recorder: Recorder | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Observe each loader when it is made: batches are fetched before the training starts."""
        del pl_module
        process = trainer.strategy.process_dataloader

        def processed(loader: Any) -> Any:
            loader = process(loader)
            if trainer.training:
                if self._watch is not None:  # possibly of the same loader
                    self._watch.close()
                self._watch = SamplerObserver(loader)
                if self.recorder is not None:
                    self.recorder.watch(self._watch)
            elif self._observer_of(loader) is None:
                self._judged.append((loader, SamplerObserver(loader)))
            return loader

        trainer.strategy.process_dataloader = processed

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the recording."""
        options = dict(self._options)
        if options.get("config") is None:
            options["config"] = dict(getattr(pl_module, "hparams", {}))
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self.recorder = Recorder(
            self._folder,
            model=pl_module,
            optimizer=list(trainer.optimizers),
            loader=self._watch,
            scaler=scaler,
            **{"first_step": trainer.fit_loop.epoch_loop.total_batch_idx + 1} | options,
        )
        self.recorder.__enter__()

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Digest the batch before the module gets it."""
        del trainer, pl_module, batch_idx
        if self.recorder is not None:
            self.recorder.input(batch)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Digest the gradients."""
        del trainer, pl_module
        if self.recorder is not None:
            self.recorder.gradients(optimizer)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write the step."""
        del pl_module, batch, batch_idx
        if self.recorder is not None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self.recorder.step(loss=loss, epoch=trainer.current_epoch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Note the metrics of the training, to tell them from those of the validation."""
        del pl_module
        self._others = set(trainer.callback_metrics) - self._names
        self._seen = {}
        loaders = _flatten_loaders(trainer.val_dataloaders)
        for judged_loader, watch in self._judged:
            if not any(
                judged_loader is loader for loader in loaders
            ):  # of an epoch with its own loaders
                watch.close()
        self._judged = [
            pair for pair in self._judged if any(pair[0] is loader for loader in loaders)
        ]

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Take the indices of the batch."""
        del pl_module, batch, batch_idx
        loaders = _flatten_loaders(trainer.val_dataloaders)
        watch = (
            self._observer_of(loaders[dataloader_idx]) if dataloader_idx < len(loaders) else None
        )
        sampled = None if watch is None else watch.take()
        self._seen.setdefault(dataloader_idx, []).append(None if sampled is None else sampled[1])

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the metrics."""
        del pl_module
        if self.recorder is None or trainer.sanity_checking:
            return
        values = {
            name: value
            for name, value in trainer.callback_metrics.items()
            if name not in self._others
        }
        self._names |= set(values)
        loaders = _flatten_loaders(trainer.val_dataloaders)
        counts = [_count_distinct(self._seen.get(place, [])) for place in range(len(loaders))]
        known_counts = [count for count in counts if count is not None]
        seen = sum(known_counts) if len(known_counts) == len(loaders) else None
        self.recorder.evaluation("val", values, seen=seen, of=_length(loaders))

    def _observer_of(self, loader: Any) -> SamplerObserver | None:
        return next(
            (watch for judged_loader, watch in self._judged if judged_loader is loader), None
        )

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the recording."""
        self._end(trainer, pl_module, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the recording with the exception that ended the training."""
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


def _flatten_loaders(loaders: Any) -> list[Any]:
    """Return loaders as a list, in the order in which Lightning numbers them."""
    if isinstance(loaders, dict):
        loaders = list(loaders.values())
    if isinstance(loaders, list | tuple):
        return [loader for nested in loaders for loader in _flatten_loaders(nested)]
    return [] if loaders is None else [loaders]


def _count_distinct(batches: list[Any]) -> int | None:
    """Return the number of different indices; None if there are no batches, or one is None."""
    known_batches = [indices for indices in batches if indices is not None]
    return (
        len(np.unique(np.concatenate(known_batches)))
        if known_batches and len(known_batches) == len(batches)
        else None
    )


def _length(loaders: list[Any]) -> int | None:
    """Return the total length of the loaders' datasets; None if one has no length."""
    try:
        return sum(len(loader.dataset) for loader in loaders) if loaders else None
    except (AttributeError, TypeError, NotImplementedError):
        return None
