"""Runs steps of a script in a process of its own with one switch turned, and writes their digests.

A script passes its values to `Recorder` itself; here they are observed from outside: batches where
a DataLoader returns them, losses where `backward` is called, gradients and weights in hooks of the
optimizers. See `datacheck.repro.inner`.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datacheck.repro import switches, tensors
from datacheck.repro.inner import ImportHook, ScriptObserver, run
from datacheck.repro.tensors import RandomStates, digest_batch
from datacheck.runtime import fsops


class TraceObserver(ScriptObserver):
    """Writes a trace as `Recorder` does, with a line for each step of an optimizer.

    Args:
        request: as for `ScriptObserver`, with trace (the file for lines), set (switches by name).
    """

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(request)
        self._random = RandomStates()
        # The file closes with the process.
        self._trace = Path(request["trace"]).open("ab", buffering=0)  # noqa: SIM115
        self._line: dict[str, Any] = {}
        self._inputs: list[str] = []
        self._losses: list[str] = []
        self._count = 0
        self._begun = False
        self._first: Any = None
        self._optimizers: list[weakref.ref[Any]] = []

    def write(self, *, probe: bool) -> None:
        """Write how the script ended."""
        del probe
        fsops.write_file(Path(self.request["out"]), json.dumps(self.seen).encode(), sync=False)

    def watch_torch(self) -> None:
        """Turn the switches and install hooks as soon as the script has imported PyTorch."""
        sys.meta_path.insert(0, ImportHook("torch", self._attach))

    def _attach(self, torch: Any) -> None:
        hooks = sys.modules["torch.optim.optimizer"]
        hooks.register_optimizer_step_pre_hook(self._before)
        hooks.register_optimizer_step_post_hook(self._after)
        torch.optim.Optimizer.__init__ = self._optimizer_made(torch.optim.Optimizer.__init__)
        self._first = torch.nn.modules.module.register_module_forward_pre_hook(self._forward)
        loader = torch.utils.data.DataLoader
        loader.__init__ = self._made(loader.__init__)
        loader.__iter__ = self._begins(loader.__iter__, torch)
        # The base class of all of a DataLoader's iterators.
        batches = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter  # noqa: SLF001
        batches.__next__ = self._given(batches.__next__)
        torch.Tensor.backward = self._scored(torch.Tensor.backward)
        self._set(torch)

    def _forward(self, *_: object) -> None:
        """Turn the switches again at the first call of a module: a trainer sets its own earlier."""
        self._first.remove()
        self._set(sys.modules["torch"])

    def _set(self, torch: Any) -> None:
        for name, value in self.request["set"].items():
            if name in switches.TORCH_SWITCHES:
                switches.apply(torch, name, value)

    # ------------------------------------------------------------------------------------- wrappers

    def _made(self, make: Any) -> Any:
        count = self.request["set"].get(switches.WORKERS)
        signature = inspect.signature(make)

        @functools.wraps(make)
        def made(loader: Any, *arguments: Any, **options: Any) -> None:
            if count is not None:
                bound = signature.bind(loader, *arguments, **options)
                options = {k: v for k, v in bound.arguments.items() if k != "self"}
                switches.with_workers(options, count)
                arguments = ()
            make(loader, *arguments, **options)

        return made

    def _optimizer_made(self, make: Any) -> Any:
        @functools.wraps(make)
        def made(optimizer: Any, *arguments: Any, **options: Any) -> None:
            make(optimizer, *arguments, **options)
            self._optimizers.append(weakref.ref(optimizer))

        return made

    def _begins(self, begin: Any, torch: Any) -> Any:
        @functools.wraps(begin)
        def begins(loader: Any) -> Any:
            self.loader(loader)
            self._set(torch)
            return begin(loader)

        return begins

    def _given(self, give: Any) -> Any:
        @functools.wraps(give)
        def given(batches: Any) -> Any:
            batch = give(batches)
            self._inputs.append(digest_batch(batch)[0].text())
            return batch

        return given

    def _scored(self, backward: Any) -> Any:
        @functools.wraps(backward)
        def scored(loss: Any, *arguments: Any, **options: Any) -> Any:
            if loss.numel() == 1:
                self._losses.append(float(loss.detach()).hex())
            return backward(loss, *arguments, **options)

        return scored

    # --------------------------------------------------------------------------------------- a step

    def _before(
        self, optimizer: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> None:
        if not self._begun:
            self._begun = True
            switch_values = switches.values(sys.modules["torch"])
            switch_values[switches.WORKERS] = [
                getattr(loader, "num_workers", 0) for loader in self.loaders
            ]
            self._put(
                {
                    "kind": "start",
                    "version": 1,
                    "held": switch_values,
                    "weights": self._weights(optimizer),
                }
            )
        # A closure computes the gradients later.
        if not any(map(callable, arguments)) and keywords.get("closure") is None:
            self._gradients(optimizer)

    def _gradients(self, optimizer: Any) -> None:
        named_gradients = tensors.gradients_of(optimizer)
        self._line = {
            "grads": tensors.digest_tensors(named_gradients),
            "grad_norm": tensors.norm([gradient for _, gradient in named_gradients]).hex(),
            "lr": [float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
        }

    def _after(self, optimizer: Any, *_: object) -> None:
        if not self._line:
            self._gradients(optimizer)
        line, self._line = self._line, {}
        line["params"] = self._weights(optimizer)
        line["optimizer"] = " ".join(map(tensors.digest_state, self._all(optimizer)))
        line["random"] = self._random.digests()
        for name, entries in (("input", self._inputs), ("loss", self._losses)):
            if entries:
                line[name] = " ".join(entries)
                entries.clear()
        self._put({"kind": "step", "step": self._count} | line)
        self._count += 1
        self.step()

    def _weights(self, optimizer: Any) -> str:
        """Return the digest of the parameters of all optimizers.

        What one optimizer steps with may be trained by another one.
        """
        weights = [
            parameter for peer in self._all(optimizer) for parameter in tensors.parameters_of(peer)
        ]
        return tensors.digest_tensors((str(i), parameter) for i, parameter in enumerate(weights))

    def _all(self, optimizer: Any) -> list[Any]:
        optimizers = [
            existing for reference in self._optimizers if (existing := reference()) is not None
        ]
        # An unpickled optimizer was not seen in `__init__`.
        return (
            optimizers
            if any(existing is optimizer for existing in optimizers)
            else [*optimizers, optimizer]
        )

    def _put(self, line: dict[str, Any]) -> None:
        self._trace.write(json.dumps(line).encode() + b"\n")


def main() -> None:
    """Run the request; the arguments are those of `datacheck.repro.inner.main`."""
    run(TraceObserver(json.loads(sys.argv[1])), sys.argv[2:])
