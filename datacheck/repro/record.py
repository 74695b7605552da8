"""Recorder: writes the environment, configuration and step digests of a run to a folder."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import enum
import json
import math
import os
import sys
import types
import warnings
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import StorageError, UsageError
from datacheck.plugins import require
from datacheck.repro import tensors
from datacheck.repro.process import credential, names_password, names_secret
from datacheck.repro.recorded import CONFIG, ENVIRONMENT, VERSION, trace_name
from datacheck.repro.sampler_observer import (
    Array,
    OrderDigest,
    SamplerObserver,
    as_indices,
    count_unique,
)
from datacheck.repro.tensors import RandomStates, digest_batch, hex_of, whole, whole_or_none
from datacheck.runtime.fsops import make_directory, write_file
from datacheck.runtime.hashing import canonical_json, digest64, digest_array, digest_bytes


def place() -> tuple[int, int]:
    """Return rank and world size."""
    distributed = require("torch", "torch").distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return (int(rank), int(world)) if rank.isdecimal() and world.isdecimal() else (0, 1)


def agreed_name(name: str | None, world: int) -> str:
    """Return the name of the run, the same on all ranks."""
    distributed = require("torch", "torch").distributed
    if name is not None:
        return name
    now = datetime.datetime.now(datetime.UTC)
    shared_name = [f"{now:%Y%m%d-%H%M%S}-{os.urandom(3).hex()}"]
    if world > 1:
        if not (distributed.is_available() and distributed.is_initialized()):
            msg = (
                f"{world} ranks and no process group: record behind init_process_group, or give "
                f"all the same name="
            )
            raise UsageError(msg)
        distributed.broadcast_object_list(shared_name, src=0)
    return shared_name[0]


_DEPTH = 64


def resolve_config(config: Any) -> Any:
    """Return a configuration as JSON values, the same for equal configurations.

    Args:
        config: a mapping (including OmegaConf's), dataclass or argparse.Namespace, or a value
            inside one.

    Notes:
        Paths, enumerations, NumPy numbers, dtypes and devices become texts or numbers, functions
        and classes their names, sets sorted lists, arrays digests; NaN and infinity {"float":
        "nan"}, whole numbers of 64 bits and more {"int": "0x..."}. Anything else becomes {"type":
        its type}: two such values look equal. Secrets are left out: texts under a name such as
        ``hub_token`` at any level, texts that look like a credential, and whole numbers under the
        name of a password.
    """
    return _plain(config, "", ())


# One return for each kind of value.
def _plain(value: Any, name: str, parent_ids: tuple[int, ...]) -> Any:  # noqa: PLR0911
    if _hidden(value, name):
        return {"secret": True}
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return _number(value) if isinstance(value, int | float) else value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        python_value = value.item()  # a longdouble returns itself
        is_plain = not isinstance(python_value, np.generic)
        return (
            _plain(python_value, name, parent_ids)
            if is_plain
            else {"type": _type(value), "text": str(value)}
        )
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return f"{value.__module__}.{value.__qualname__}"
    if id(value) in parent_ids or len(parent_ids) > _DEPTH:
        return {
            "type": _type(value),
            "within": "itself" if id(value) in parent_ids else "too many levels",
        }
    return _resolve_container(value, name, (*parent_ids, id(value)))


def _hidden(value: Any, name: str) -> bool:
    """Return whether a value is left out of the record.

    Texts and bytes by their name or look, whole numbers under the name of a password.
    """
    if isinstance(value, str | bytes | bytearray):
        return names_secret(name) or (isinstance(value, str) and credential(value))
    return (
        isinstance(value, int | np.integer) and not isinstance(value, bool) and names_password(name)
    )


def _resolve_container(value: Any, name: str, parent_ids: tuple[int, ...]) -> Any:
    if dataclasses.is_dataclass(value):
        value = {
            field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)
        }
    elif isinstance(value, argparse.Namespace | types.SimpleNamespace):
        value = vars(value)
    elif callable(getattr(value, "model_dump", None)):  # pydantic
        value = _dump_pydantic(value)
    if isinstance(value, Mapping):
        hidden = names_secret(name)
        return {
            str(key): _resolve_item(value, key, name if hidden else str(key), parent_ids)
            for key in value
        }
    if isinstance(value, Set):
        return sorted((_plain(item, name, parent_ids) for item in value), key=canonical_json)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_resolve_item(value, i, name, parent_ids) for i in range(len(value))]
    return _describe_value(value)


def _dump_pydantic(model: Any) -> Any:
    try:
        return model.model_dump()
    except Exception as error:
        # pydantic wraps it into an error of its own, sometimes without a cause.
        if "KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from error
        return {"type": _type(model), "unresolved": type(error).__name__}


def _resolve_item(container: Any, key: Any, name: str, parent_ids: tuple[int, ...]) -> Any:
    try:
        item = container[key]
    except Exception as error:  # noqa: BLE001  an interpolation of OmegaConf without a target
        return {"unresolved": type(error).__name__}
    return _plain(item, name, parent_ids)


def _describe_value(value: Any) -> Any:
    kind = _type(value)
    if kind in {"torch.dtype", "torch.device", "torch.Size"} or kind.startswith("numpy.dtype"):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return {"bytes": len(value), "digest": digest_bytes(value)}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return {"dtype": value.dtype.str, "shape": list(value.shape), "digest": digest_array(value)}
    return {"type": kind}


def _number(value: float) -> Any:
    if isinstance(value, int):
        # Most JSON readers lose digits of larger numbers.
        return value if value.bit_length() < 64 else {"int": hex(value)}
    return float(value) if math.isfinite(value) else {"float": str(float(value))}


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


_SIZE_MISMATCH_NOTE = (
    "batches have another number of samples than the sampler gave out for them: their indices are "
    "not written, and "
    "where batches were left out those of others are wrong"
)
_LINE = json.JSONEncoder(separators=(",", ":"))


class Recorder:
    """Records a training run in ``folder/name/``: environment, configuration, digests per step.

    Args:
        folder: the folder of runs.
        config: the configuration of the run: dict, dataclass, OmegaConf, argparse.Namespace
            (`resolve_config`).
        model: the module; its weights are digested at the start and every `every` steps.
        optimizer: one, or several. Gradients are read when its `step` is called, after unscaling
            and clipping.
        loader: the DataLoader or CachedLoader of the loop: its sampler tells the samples of a
            batch.
        scaler: a GradScaler, whose scale is written.
        data: files, folders or caches of the training data; their digests are part of the
            environment.
        name: of the run; None: the time and six random digits.
        every: the number of steps between digests of gradients, weights and the optimiser's state,
            1 or more: taken at the first update at or after each multiple of it.
        index_key: the key of the sample indices in a batch (``batch[index_key]``).
        first_step: number of the first step, for a run that resumes.

    Raises:
        UsageError: a value is out of range; the folder already holds this run; there are several
            ranks but no process group yet; the recorder is entered twice, or a step comes before
            it is entered.
        StorageError: the folder cannot be written.

    Notes:
        Recording draws from no random generator, changes no tensor, and copies tensors in main
        memory only if they are not contiguous. Tensors on a device are folded there to 8 bytes; the
        call waits for that. A line is one write, so a killed run loses at most its last line. A
        full disk ends the recording with a warning, not the training. Every rank writes its own
        file into the same folder; a fork of the process records nothing.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        config: Any = None,
        model: Any = None,
        optimizer: Any = None,
        loader: Any = None,
        scaler: Any = None,
        data: Sequence[str | os.PathLike[str]] = (),
        name: str | None = None,
        every: int = 50,
        index_key: Any = None,
        first_step: int = 0,
    ) -> None:
        every, first_step = whole("every", every, 1), whole("first_step", first_step)
        if name is not None and (not name or name != Path(name).name or name in {".", ".."}):
            msg = f"name={name!r} is no name of one folder"
            raise UsageError(msg)
        if isinstance(data, str | os.PathLike):
            data = [data]
        self._folder, self._name, self._data = Path(folder), name, list(data)
        self._config, self._model, self._scaler, self._random = (
            config,
            model,
            scaler,
            RandomStates(),
        )
        optimizers = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
        # Frameworks wrap the optimizer.
        self._optimizers = [
            getattr(wrapped, "optimizer", wrapped) for wrapped in optimizers if wrapped is not None
        ]
        for wrapped in self._optimizers:
            if not hasattr(wrapped, "register_step_pre_hook"):
                msg = (
                    f"{type(wrapped).__name__} has no register_step_pre_hook; an optimizer of "
                    f"torch.optim is wanted"
                )
                raise UsageError(msg)
        self._loader, self._every, self._index_key, self._step = (
            loader,
            every,
            index_key,
            first_step,
        )
        self.path: Path | None = None
        self._file: int | None = None
        self._process = 0
        self._hooks: list[Any] = []
        self._watch: SamplerObserver | None = None
        self._order: OrderDigest | None = None
        self._line: dict[str, Any] = {}  # what is known of the current step
        self._indices: Any = None
        # Whether the first batch had as many rows as indices; None: no batch yet
        self._by_rows: bool | None = None
        self._inputs: int | None = None
        # By optimiser: the last step with an update
        self._updated: dict[int, int] = {}
        self._made: set[int] = set()  # optimisers with an update in this step
        self._taken: set[int] = set()  # optimisers whose gradients of this update were read
        self._told: set[str] = set()  # notes already written
        self._due = False
        self._environment: dict[str, Any] | None = None  # on rank 0 only
        self._modules = 0  # loaded when the environment was captured
        self._first = self._step

    # -------------------------------------------------------------------------------- start and end

    def __enter__(self) -> Recorder:
        if self.path is not None:
            msg = (
                f"{self.path}: a Recorder records one run, and this one has begun it. Make "
                f"another for the next."
            )
            raise UsageError(msg)
        rank, world = place()
        path = self._folder / agreed_name(self._name, world)
        make_directory(path, sync=False)
        self._process = os.getpid()
        trace = path / trace_name(rank)
        try:
            self.path = path
            self._file = _open_trace(trace)
            self._begin(path, rank, world)
            return self  # noqa: TRY300  an interrupt may come here, too
        except BaseException:  # nothing was recorded, so the name can be used again
            if self._file is not None:
                trace.unlink(missing_ok=True)
            self._detach()
            self._close()
            self.path = None
            raise

    def _begin(self, path: Path, rank: int, world: int) -> None:
        if rank == 0:
            # It imports much, so it is loaded on demand.
            from datacheck.repro.captures import capture  # noqa: PLC0415

            self._environment = capture(data=self._data)
            self._modules = len(sys.modules)
            _write_json(path / ENVIRONMENT, self._environment)
            _write_json(path / CONFIG, {"version": VERSION, "config": resolve_config(self._config)})
        self._write({"kind": "start", "rank": rank, "world": world} | self._start_line())
        for optimizer in self._optimizers:
            # One statement each: an interrupt between two hooks leaves none that is not removed.
            self._hooks.append(optimizer.register_step_pre_hook(self._before))
            self._hooks.append(optimizer.register_step_post_hook(self._after))
        if self._loader is not None:
            self.watch(self._loader)

    def _start_line(self) -> dict[str, Any]:
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        return {
            "version": VERSION,
            "every": self._every,
            "first": self._step,
            "weights": tensors.digest_each(self._weights()),
            "optimizer": [tensors.digest_state(optimizer) for optimizer in self._optimizers],
            "hyper": [
                resolve_config({k: v for k, v in group.items() if k != "params"})
                for group in groups
            ],
            "kinds": [type(optimizer).__name__ for optimizer in self._optimizers],
        }

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._detach()
        try:
            self._close_epoch()
            self._write(
                {
                    "kind": "end",
                    "step": self._step,
                    "status": "done" if kind is None else kind.__name__,
                }
            )
        finally:
            self._close()
        # After the trace is closed: this takes a moment, in which an impatient Ctrl-C may come.
        self._update_environment(ended=True)

    def _detach(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._watch is not None:
            self._watch.close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                os.close(file)
            except OSError as error:  # a network disk may report an error only here
                self._stop_writing(error)

    def watch(self, loader: Any) -> None:
        """Take the indices of batches from the sampler of this loader, from its next pass on."""
        if self._watch is not None:
            self._watch.close()
        self._watch = loader if isinstance(loader, SamplerObserver) else SamplerObserver(loader)
        self._write({"kind": "loader", "unseen": self._watch.why} | self._watch.facts)

    # --------------------------------------------------------------------------------------- a step

    def input(self, batch: Any, indices: Any = None) -> None:
        """Digest a batch now, for a loop that changes it in place before `step`.

        Such a loop passes no batch to `step`.

        Args:
            batch: as the loader returned it: tensors, arrays, numbers, texts in any nesting.
            indices: of its samples, if neither `loader` nor `index_key` gives them.
        """
        sampled = self._watch.take() if self._watch is not None else None
        if sampled is not None:
            self._line["epoch"] = sampled[0]
        batch_indices = indices if self._index_key is None else batch[self._index_key]
        if batch_indices is not None:
            self._indices = as_indices(batch_indices)
        else:
            self._indices = None if sampled is None else self._matching_indices(batch, sampled[1])
        samples = _samples(batch) if self._indices is None else len(self._indices)
        digest, self._inputs = digest_batch(batch, samples)
        self._line["input"] = digest.text()
        for kind in sorted(digest.opaque):
            self.note(f"batches hold values of type {kind}, of which only the type is digested")
        self._line["samples"] = samples
        if self._indices is not None:
            self._line["indices"] = f"{digest64(self._indices.data):016x}"

    def _matching_indices(self, batch: Any, indices: Array | None) -> Array | None:
        """Return the indices that a sampler gave out if they can be those of the batch.

        Notes:
            If the first batch had one row per index, later batches must have as many rows as
            indices.
            Otherwise nothing is checked: not every kind of batch has a row for each sample.
        """
        if indices is None:
            return None
        count = len(indices)
        fits = any(
            tensors.shape_of(value)[:1] == (count,) for _, value in tensors.batch_leaves(batch)
        )
        if self._by_rows is None:
            # It may be one picture for each sample, so the equal length proves nothing.
            is_list = isinstance(batch, list | tuple) and len(batch) == count
            self._by_rows = fits and not is_list
        if not self._by_rows or fits:
            return indices
        self.note(_SIZE_MISMATCH_NOTE)
        return None

    def step(
        self, batch: Any = None, loss: Any = None, *, indices: Any = None, epoch: int | None = None
    ) -> None:
        """Write the line of a step, once for each batch, after `optimizer.step` if there was one.

        Args:
            batch: the training batch; None after a call of `input`.
            loss: the training loss, one number.
            indices: as in `input`.
            epoch: the epoch; None: the pass over `loader`, else the epoch of the step before.

        Raises:
            UsageError: the loss is not one number, the epoch is not a whole number.
        """
        self._check_entered()
        epoch = whole_or_none("epoch", epoch)
        if batch is not None:
            self.input(batch, indices)
        line, self._line = self._line, {}
        if epoch is None:
            epoch = line.get("epoch", 0 if self._order is None else self._order.epoch)
        line |= {"epoch": epoch, "updates": line.get("updates", 0)}
        if loss is not None:
            line["loss"] = hex_of(loss, "loss")
        line["random"] = self._random.digests()
        if self._scaler is not None:
            line["scale"] = float(self._scaler.get_scale()).hex()
        if self._due and line["updates"] if self._optimizers else self._step % self._every == 0:
            line["params"] = tensors.digest_tensors(self._weights())
            line["optimizer"] = " ".join(map(tensors.digest_state, self._optimizers))
            self._due = False
        if self._order is None or self._order.epoch != epoch:
            self._close_epoch()
            self._order = OrderDigest(epoch)
        self._order.add(self._indices, self._inputs)
        self._indices = self._inputs = None
        self._taken.clear()
        self._updated |= dict.fromkeys(self._made, self._step)
        self._made.clear()
        self._write({"kind": "step", "step": self._step} | line)
        self._step += 1
        if self._step == self._first + 1 or (
            "params" in line and len(sys.modules) != self._modules
        ):
            self._update_environment()

    def gradients(self, optimizer: Any) -> None:
        """Digest the gradients that `optimizer` is about to use.

        The optimizer's hooks call this themselves where they can.
        """
        optimizer = getattr(optimizer, "optimizer", optimizer)
        line = self._line
        named_gradients = tensors.gradients_of(optimizer)
        _append_digest(
            line, "grad_norm", tensors.norm([gradient for _, gradient in named_gradients]).hex()
        )
        rates = [
            resolve_config(float(group["lr"])) for group in optimizer.param_groups if "lr" in group
        ]
        line["lr"] = [*line.get("lr", []), *rates]
        before = self._updated.get(id(optimizer), self._first - 1)
        if self._step // self._every > before // self._every:
            _append_digest(line, "grads", tensors.digest_tensors(named_gradients))
            self._due = True
        self._taken.add(id(optimizer))

    def _before(
        self, optimizer: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> None:
        # A closure computes the gradients later; a framework may have called `gradients` itself.
        if (
            not any(map(callable, arguments))
            and keywords.get("closure") is None
            and id(optimizer) not in self._taken
        ):
            self.gradients(optimizer)

    def _after(self, optimizer: Any, *_: object) -> None:
        if id(optimizer) not in self._taken:
            self.gradients(optimizer)
        self._taken.discard(id(optimizer))
        self._made.add(id(optimizer))
        self._line["updates"] = self._line.get("updates", 0) + 1

    def note(self, said: str) -> None:
        """Write once that something could not be observed or digested.

        Args:
            said: one sentence; `repro diff` prints it as a warning.
        """
        if said not in self._told:
            self._told.add(said)
            self._write({"kind": "note", "said": said})

    # ---------------------------------------------------------------------------------- evaluations

    def evaluation(
        self, name: str, values: Mapping[str, Any], *, seen: Any = None, of: int | None = None
    ) -> None:
        """Write the metrics of an evaluation.

        Args:
            name: of the evaluation ("val").
            values: numbers by name.
            seen: how many different samples were evaluated, or their indices.
            of: how many samples there are.

        Raises:
            UsageError: a value is not one number, `of` is not a whole number, `seen` is neither a
                whole number nor indices.
        """
        line = {str(name): hex_of(value, str(name)) for name, value in values.items()}
        count = {"seen": count_unique(seen), "of": whole_or_none("of", of)}
        epoch = None if self._order is None else self._order.epoch
        self._write(
            {"kind": "eval", "name": str(name), "step": self._step, "epoch": epoch, "values": line}
            | count
        )
        if len(sys.modules) != self._modules:
            self._update_environment()

    # -------------------------------------------------------------------------------------- writing

    def _weights(self) -> list[tuple[str, Any]]:
        if self._model is not None:
            return tensors.named_weights(self._model)
        parameters = [
            parameter
            for optimizer in self._optimizers
            for parameter in tensors.parameters_of(optimizer)
        ]
        return [(str(i), parameter) for i, parameter in enumerate(parameters)]

    def _update_environment(self, *, ended: bool = False) -> None:
        """Add packages and libraries loaded since the capture: many are imported on first use."""
        if self._environment is None or self.path is None or not self._in_own_process:
            return
        from datacheck.repro.captures import extend_capture  # noqa: PLC0415  as in `_begin`

        self._modules = len(sys.modules)
        if extend_capture(self._environment, ended=ended):
            try:
                _write_json(self.path / ENVIRONMENT, self._environment)
            except (OSError, StorageError) as error:
                warnings.warn(
                    f"{self.path / ENVIRONMENT}: {error}; what was loaded later is missing",
                    stacklevel=3,
                )

    def _close_epoch(self) -> None:
        if self._order is not None:
            self._write({"kind": "epoch"} | self._order.line())
            self._order = None

    @property
    def _in_own_process(self) -> bool:
        """Whether this is the recorded process: a fork has its files but records nothing."""
        return os.getpid() == self._process

    def _check_entered(self) -> None:
        if self.path is None:
            msg = (
                "nothing is recorded yet: write the training into `with Recorder(...) as recorder:`"
            )
            raise UsageError(msg)

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None or not self._in_own_process:
            return
        unwritten = _LINE.encode(line).encode() + b"\n"
        try:
            while unwritten:
                unwritten = unwritten[os.write(self._file, unwritten) :]
        except OSError as error:
            self._stop_writing(error)
            self._close()

    def _stop_writing(self, error: OSError) -> None:
        reason = (error.strerror or str(error)).lower()
        warnings.warn(
            f"{self.path}: {reason}; nothing is recorded from step {self._step} on", stacklevel=4
        )


def _open_trace(trace: Path) -> int:
    try:
        return os.open(
            trace, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
    except FileExistsError:
        msg = f"{trace}: a run is recorded there already. Give another name, or none."
        raise UsageError(msg) from None
    except OSError as error:
        msg = (
            f"{trace}: {(error.strerror or str(error)).lower()}. Choose another folder for the "
            f"runs."
        )
        raise UsageError(msg) from error


def _samples(batch: Any) -> int | None:
    """Return the first axis of the first tensor or array that has one."""
    shapes = (tensors.shape_of(value) for _, value in tensors.batch_leaves(batch))
    return next((shape[0] for shape in shapes if shape), None)


def _append_digest(line: dict[str, Any], name: str, digest: str) -> None:
    line[name] = f"{line[name]} {digest}" if name in line else digest


def _write_json(path: Path, value: Any) -> None:
    write_file(
        path, json.dumps(value, sort_keys=True, indent=1).encode() + b"\n", sync=False, mode=0o644
    )
