"""`Recorder` as a callback of the transformers Trainer."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from datacheck.repro.record import Recorder

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
        model = given["model"]
        options = dict(self._options)
        if options.get("name") is not None and self._tries > 1:
            options["name"] = f"{options['name']}-{self._tries}"
        if options.get("config") is None:
            arguments = {name: value for name, value in args.to_dict().items() if name not in _OWN}
            config: Any = getattr(model, "config", None)
            options["config"] = {
                "arguments": arguments,
                "model": config.to_dict() if hasattr(config, "to_dict") else None,
            }
        loader = given.get("train_dataloader")
        first, epoch, epoch_batches = _resume_position(args, state, loader)
        self._epochs, self._epoch = itertools.count(epoch), None
        self._later = loader if epoch_batches and not args.ignore_data_skip else None
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

    def _before(self, model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self.recorder is not None and model.training:
            self._flush()
            self.recorder.input(
                [list(arguments), {k: v for k, v in keywords.items() if k != "num_items_in_batch"}]
            )
            self._open = True

    def _after(self, model: Any, arguments: tuple[Any, ...], output: Any) -> None:
        del arguments
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
            named_metrics = metrics or {}
            values = {
                k: v
                for k, v in named_metrics.items()
                if isinstance(v, int | float) and not k.endswith(_TIMING_METRICS)
            }
            values.pop("epoch", None)
            seen_count, total = _sample_counts(given.get("eval_dataloader"))
            self.recorder.evaluation(
                _metric_prefix(named_metrics), values, seen=seen_count, of=total
            )

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
    accumulation_steps = args.gradient_accumulation_steps
    try:
        batches = len(loader)
    except (TypeError, NotImplementedError):
        return state.global_step * accumulation_steps, 0, 0
    epochs, updates = divmod(state.global_step, max(-(-batches // accumulation_steps), 1))
    return epochs * batches + updates * accumulation_steps, epochs, updates * accumulation_steps


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
        total = len(loader.dataset)
        batches = len(loader)
    except (AttributeError, TypeError, NotImplementedError):
        return None, None
    return (min(batches * size, total) if isinstance(size, int) else None), total
