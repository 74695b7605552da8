"""`Recorder` as a callback of Lightning and of the transformers Trainer."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
from transformers import TrainerCallback

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
        given = dict(self._options)
        if given.get("config") is None:
            given["config"] = dict(getattr(pl_module, "hparams", {}))
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self.recorder = Recorder(
            self._folder,
            model=pl_module,
            optimizer=list(trainer.optimizers),
            loader=self._watch,
            scaler=scaler,
            **{"first_step": trainer.fit_loop.epoch_loop.total_batch_idx + 1} | given,
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
        for known, watch in self._judged:
            if not any(known is loader for loader in loaders):  # of an epoch with its own loaders
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
        given = None if watch is None else watch.take()
        self._seen.setdefault(dataloader_idx, []).append(None if given is None else given[1])

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
        known = [count for count in counts if count is not None]
        seen = sum(known) if len(known) == len(loaders) else None
        self.recorder.evaluation("val", values, seen=seen, of=_length(loaders))

    def _observer_of(self, loader: Any) -> SamplerObserver | None:
        return next((watch for known, watch in self._judged if known is loader), None)

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
        return [one for some in loaders for one in _flatten_loaders(some)]
    return [] if loaders is None else [loaders]


def _count_distinct(batches: list[Any]) -> int | None:
    """Return the number of different indices; None if there are no batches, or one is None."""
    known = [indices for indices in batches if indices is not None]
    return len(np.unique(np.concatenate(known))) if known and len(known) == len(batches) else None


def _length(loaders: list[Any]) -> int | None:
    """Return the total length of the loaders' datasets; None if one has no length."""
    try:
        return sum(len(loader.dataset) for loader in loaders) if loaders else None
    except (AttributeError, TypeError, NotImplementedError):
        return None


# The location of a run, which is not part of its configuration
_OWN = {"output_dir", "logging_dir", "run_name", "local_rank"}
_TIMING_METRICS = ("_runtime", "_per_second", "_time")
_UNSEEN_NOTE = (
    "no batch of the model was seen in training (nn.DataParallel calls copies of it): "
    "only updates are recorded"
)
_RESUMED_NOTE = (
    "the training goes on within an epoch, of which batches were drawn and left out: "
    "its indices are not known"
)


class TrainerRecorder(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Records the training of a transformers Trainer.

    Use it as ``Trainer(callbacks=[TrainerRecorder("runs")])``.

    Args:
        folder: the folder of runs.
        options: of `Recorder`, except model, optimizer and loader, which the trainer provides; a
            `config` of None is the training arguments and the configuration of the model.

    Notes:
        A step is one batch of the model in training. Its loss is the one that the model returns; if
        the trainer computes another one, the trace has none. Metrics of time are left out. Each set
        of an `eval_dataset` that is a dict is an evaluation of its own. A training that restarts
        after an exception (`auto_find_batch_size`) is a run of its own; its `name` ends in "-2",
        then "-3".
    """

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        self._folder, self._options = folder, options
        self._hooks: list[Any] = []
        self._open = False
        self._loss: Any = None
        self._tries = 1
        self._epochs = itertools.count()
        self._epoch: int | None = None
        # The loader, until the end of the epoch within which the training resumed.
        self._later: Any = None
        self.recorder: Recorder | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Begin the recording."""
        del control
        # An exception ended the training before: callbacks are not called for it.
        if self.recorder is not None:
            self._stop(Exception)
            self._tries += 1
        model, options = given["model"], dict(self._options)
        if options.get("name") is not None and self._tries > 1:
            options["name"] = f"{options['name']}-{self._tries}"
        if options.get("config") is None:
            said = {name: value for name, value in args.to_dict().items() if name not in _OWN}
            config: Any = getattr(model, "config", None)
            options["config"] = {
                "arguments": said,
                "model": config.to_dict() if hasattr(config, "to_dict") else None,
            }
        loader = given.get("train_dataloader")
        first, epoch, within = _resume_position(args, state, loader)
        self._epochs, self._epoch = itertools.count(epoch), None
        self._later = loader if within and not args.ignore_data_skip else None
        recorder = Recorder(
            self._folder,
            model=model,
            optimizer=given["optimizer"],
            loader=loader if self._later is None else None,
            **{"first_step": first} | options,
        )
        self.recorder = recorder.__enter__()
        if self._later is not None:
            recorder.note(_RESUMED_NOTE)
        self._hooks = [
            model.register_forward_pre_hook(_Hook(model, self._before), with_kwargs=True),
            model.register_forward_hook(_Hook(model, self._after)),
        ]

    def _before(self, model: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self.recorder is not None and model.training:
            self._flush()
            self.recorder.input(
                [list(given), {k: v for k, v in named.items() if k != "num_items_in_batch"}]
            )
            self._open = True

    def _after(self, model: Any, given: tuple[Any, ...], output: Any) -> None:
        del given
        if self._open and model.training:
            loss = output.get("loss") if hasattr(output, "get") else getattr(output, "loss", None)
            self._loss = None if loss is None else loss.detach()

    def _flush(self) -> None:
        if self._open and self.recorder is not None:
            self.recorder.step(loss=self._loss, epoch=self._epoch)
        self._open, self._loss = False, None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Count the epochs."""
        del args, state, control, given
        self._epoch = next(self._epochs)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Take indices from the next epoch on, if the training resumed within one."""
        del args, state, control, given
        if self._later is not None and self.recorder is not None:
            self.recorder.watch(self._later)
            self._later = None

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Write the step that ended."""
        del args, state, control, given
        if self.recorder is not None and not self._open:
            self.recorder.note(_UNSEEN_NOTE)
            self._open = True
        self._flush()

    on_substep_end = on_step_end

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **given: Any
    ) -> None:
        """Write the metrics."""
        del args, state, control
        if self.recorder is not None:
            found = metrics or {}
            values = {
                k: v
                for k, v in found.items()
                if isinstance(v, int | float) and not k.endswith(_TIMING_METRICS)
            }
            values.pop("epoch", None)
            seen, of = _sample_counts(given.get("eval_dataloader"))
            self.recorder.evaluation(_metric_prefix(found), values, seen=seen, of=of)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """End the recording."""
        del args, state, control, given
        self._flush()
        self._stop(None)

    def _stop(self, kind: type[BaseException] | None) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._open, self._loss = [], False, None
        if self.recorder is not None:
            self.recorder.__exit__(kind, None, None)
            self.recorder = None


class _Hook:
    """A hook of one module, inactive on copies (averaged weights, `nn.DataParallel` replicas).

    Args:
        model: the module; None: inactive, as after copying or pickling the hook.
        call: the method to call.
    """

    def __init__(self, model: Any = None, call: Any = None) -> None:
        self._held = None if call is None else (weakref.ref(model), weakref.WeakMethod(call))

    def __call__(self, module: Any, *given: Any) -> None:
        if (
            self._held is not None
            and self._held[0]() is module
            and (call := self._held[1]()) is not None
        ):
            call(module, *given)

    def __reduce__(self) -> tuple[type[_Hook], tuple[()]]:
        return _Hook, ()


def _resume_position(args: Any, state: Any, loader: Any) -> tuple[int, int, int]:
    """Return the position of a resumed training.

    Returns:
        Batches trained on before, whole epochs among them, and batches of the current epoch.

    Notes:
        Counted as the Trainer does: the last update of an epoch may have fewer batches.
    """
    each = args.gradient_accumulation_steps
    try:
        batches = len(loader)
    except (TypeError, NotImplementedError):
        return state.global_step * each, 0, 0
    epochs, updates = divmod(state.global_step, max(-(-batches // each), 1))
    return epochs * batches + updates * each, epochs, updates * each


def _metric_prefix(metrics: Mapping[str, Any]) -> str:
    """Return the common prefix of an evaluation's metrics: "eval", or "eval_" and a set's name."""
    return next(
        (name.removesuffix("_runtime") for name in metrics if name.endswith("_runtime")), "eval"
    )


def _sample_counts(loader: Any) -> tuple[int | None, int | None]:
    """Return how many samples of an evaluation this rank sees, and how many there are.

    None stands for an unknown number.

    Notes:
        The Trainer takes the samples in order, each once; `dataloader_drop_last` drops the last
        ones of an evaluation, too.
    """
    size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    try:
        of, batches = len(loader.dataset), len(loader)
    except (AttributeError, TypeError, NotImplementedError):
        return None, None
    return (min(batches * size, of) if isinstance(size, int) else None), of
