"""`Recorder` as a callback of the Trainer of transformers."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from datacheck.repro.runs.record import Recorder

_OWN = {"output_dir", "logging_dir", "run_name", "local_rank"}  # where a run lies, not what it is
_TIMES = ("_runtime", "_per_second", "_time")
_UNSEEN = "no batch of the model was seen in training (nn.DataParallel calls copies of it): only updates are recorded"
_WITHIN = "the training goes on within an epoch, of which batches were drawn and left out: its indices are not known"


class TrainerRecorder(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Records what a Trainer of transformers trains: ``Trainer(callbacks=[TrainerRecorder("runs")])``.

    Args:
        folder: where runs lie.
        options: of `Recorder`, but for model, optimizer and loader, which the trainer says; a `config` of None is the
            training arguments and the configuration of the model.

    Notes:
        A step is one batch of the model in training. Its loss is what the model returns; where the trainer computes
        another one, there is none in the trace. Metrics of time are left out. Each set of an `eval_dataset` that is a
        dict is an evaluation of its own. A training that begins again after an exception (`auto_find_batch_size`) is
        a run of its own, whose `name` has "-2" behind it, then "-3".
    """

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        self._folder, self._options = folder, options
        self._hooks: list[Any] = []
        self._open = False
        self._loss: Any = None
        self._tries = 1
        self._epochs = itertools.count()
        self._epoch: int | None = None
        self._later: Any = None  # the loader, while the epoch goes on within which the training began
        self.recorder: Recorder | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Begin to record."""
        del control
        if self.recorder is not None:  # an exception ended that training, of which no callback is told
            self._stop(Exception)
            self._tries += 1
        model, options = given["model"], dict(self._options)
        if options.get("name") is not None and self._tries > 1:
            options["name"] = f"{options['name']}-{self._tries}"
        if options.get("config") is None:
            said = {name: value for name, value in args.to_dict().items() if name not in _OWN}
            config: Any = getattr(model, "config", None)
            options["config"] = {"arguments": said, "model": config.to_dict() if hasattr(config, "to_dict") else None}
        loader = given.get("train_dataloader")
        first, epoch, within = _begun(args, state, loader)
        self._epochs, self._epoch = itertools.count(epoch), None
        self._later = loader if within and not args.ignore_data_skip else None
        recorder = Recorder(
            self._folder, model=model, optimizer=given["optimizer"], loader=loader if self._later is None else None,
            **{"first_step": first} | options,
        )  # fmt: skip
        self.recorder = recorder.__enter__()
        if self._later is not None:
            recorder.note(_WITHIN)
        self._hooks = [
            model.register_forward_pre_hook(_Hook(model, self._before), with_kwargs=True),
            model.register_forward_hook(_Hook(model, self._after)),
        ]

    def _before(self, model: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self.recorder is not None and model.training:
            self._flush()
            self.recorder.input([list(given), {k: v for k, v in named.items() if k != "num_items_in_batch"}])
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
        """Take indices from the next epoch on, where the training began within one."""
        del args, state, control, given
        if self._later is not None and self.recorder is not None:
            self.recorder.watch(self._later)
            self._later = None

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Write the step that ended."""
        del args, state, control, given
        if self.recorder is not None and not self._open:
            self.recorder.note(_UNSEEN)
            self._open = True
        self._flush()

    on_substep_end = on_step_end

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **given: Any) -> None:
        """Write the metrics."""
        del args, state, control
        if self.recorder is not None:
            found = metrics or {}
            values = {k: v for k, v in found.items() if isinstance(v, int | float) and not k.endswith(_TIMES)}
            values.pop("epoch", None)
            seen, of = _samples(given.get("eval_dataloader"))
            self.recorder.evaluation(_name(found), values, seen=seen, of=of)

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
    """A hook of one module; of its copies (averages of weights, replicas of `nn.DataParallel`) it is none.

    Args:
        model: the module; None: of no module, as where the hook itself was copied or pickled with one.
        call: the method that is called.
    """

    def __init__(self, model: Any = None, call: Any = None) -> None:
        self._held = None if call is None else (weakref.ref(model), weakref.WeakMethod(call))

    def __call__(self, module: Any, *given: Any) -> None:
        if self._held is not None and self._held[0]() is module and (call := self._held[1]()) is not None:
            call(module, *given)

    def __reduce__(self) -> tuple[type[_Hook], tuple[()]]:
        return _Hook, ()


def _begun(args: Any, state: Any, loader: Any) -> tuple[int, int, int]:
    """Return how many batches, and whole epochs, were trained on before, and how many batches of the one that goes on.

    Notes:
        As the Trainer counts them: an update that an epoch ends has fewer batches.
    """
    each = args.gradient_accumulation_steps
    try:
        batches = len(loader)
    except (TypeError, NotImplementedError):
        return state.global_step * each, 0, 0
    epochs, updates = divmod(state.global_step, max(-(-batches // each), 1))
    return epochs * batches + updates * each, epochs, updates * each


def _name(metrics: Mapping[str, Any]) -> str:
    """Return what all metrics of an evaluation begin with: "eval", or "eval_" and the name of one of several sets."""
    return next((name.removesuffix("_runtime") for name in metrics if name.endswith("_runtime")), "eval")


def _samples(loader: Any) -> tuple[int | None, int | None]:
    """Return how many samples of an evaluation this rank sees, and how many there are; None where it is not said.

    Notes:
        The Trainer takes the samples in order, each once; with `dataloader_drop_last` it leaves out the last ones of
        an evaluation, too.
    """
    size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    try:
        of, batches = len(loader.dataset), len(loader)
    except (AttributeError, TypeError, NotImplementedError):
        return None, None
    return (min(batches * size, of) if isinstance(size, int) else None), of
