"""Runs a user's script in a process of its own, observes it, and captures the process."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from datacheck.repro.captures import capture
from datacheck.repro.checks import WORKSPACE, kernels, loader_settings, probe_loader
from datacheck.runtime import fsops


def child_command(module: str) -> list[str]:
    """Return the interpreter's arguments that start a module of `datacheck.repro`.

    No import searches the working folder.
    """
    run = f"from datacheck.repro.{module} import main; main()"
    return ["-c", f"import sys; sys.path[: not sys.flags.safe_path] = []; {run}"]


_LOADERS = 4  # limit of loaders that are observed
_SHOWN = 5  # limit of generators without a seed
# Samples of a kernel probe: if no loader has a batch size, and at most.
_BATCH = 32
_BATCH_MOST = 128


class ScriptObserver:
    """Records observations of a script while it runs.

    Args:
        request: out (the file of the result), data, steps (0: to the end), seconds, probe.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.seen: dict[str, Any] = {
            "ran": False,
            "stopped": "",
            "seeded": {},
            "generators": [],
            "loaders": [],
        }
        self.loaders: list[Any] = []
        self._steps = 0
        self._lock = threading.Lock()
        self._done = False
        self._pid = os.getpid()

    def end(self, stopped: str, code: int = 0, *, probe: bool = True) -> None:
        """Write the result, end the process."""
        # A forked worker reports nothing, and must not wait for a lock of this process.
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._done:
                return
            self._done = True
            self.seen |= {"stopped": stopped, "steps": self._steps, "code": code}
            try:
                self.write(probe=probe and self.request["probe"] and "torch" in sys.modules)
            # In the middle of a user's script: the process must end
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
                code = code or 1
        for child in multiprocessing.active_children():
            child.terminate()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)

    def write(self, *, probe: bool) -> None:
        """Write the capture, then the probes, which start workers and use a GPU."""
        if "workspace_at_start" in self.seen:
            self.seen["workspace_late"] = self.seen["workspace_at_start"] != os.environ.get(
                WORKSPACE
            )
        self.seen["loaders"] = [loader_settings(loader) for loader in self.loaders]
        document = {"capture": capture(data=self.request["data"]), "seen": self.seen}
        fsops.write_file(Path(self.request["out"]), json.dumps(document).encode())
        if probe:
            for settings, loader in zip(self.seen["loaders"], self.loaders, strict=True):
                settings["probe"] = probe_loader(loader)
            self.seen["kernels"] = _kernels(self.loaders)
            fsops.write_file(Path(self.request["out"]), json.dumps(document).encode())

    def loader(self, loader: Any) -> None:
        """Remember a loader that is iterated."""
        if (
            not self._done
            and len(self.loaders) < _LOADERS
            and not any(loader is other_loader for other_loader in self.loaders)
        ):
            self.loaders.append(loader)

    def step(self) -> None:
        """Count a step of an optimizer; end the process after the last requested one."""
        self._steps += 1
        if self._steps == self.request["steps"]:
            self.end(f"after {self._steps} step{'s' if self._steps > 1 else ''} of an optimizer")

    def watch_seeds(self) -> None:
        """Observe who seeds Python's and NumPy's global generators: their states do not tell."""
        self.seen["seeded"] = {"random": False, "numpy": False}
        for name, module, names in (
            ("random", random, ("seed", "setstate")),
            ("numpy", np.random, ("seed", "set_state")),
        ):
            for function in names:
                setattr(module, function, self._counted(name, getattr(module, function)))
        default_rng = np.random.default_rng
        installed = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")})

        def watched(seed: Any = None) -> Any:
            caller = traceback.extract_stack(limit=2)[0]
            place = f"{Path(caller.filename).name}:{caller.lineno}"
            places = self.seen["generators"]
            if (
                seed is None
                and not caller.filename.startswith(installed)
                and place not in places
                and len(places) < _SHOWN
            ):
                places.append(place)
            return default_rng(seed)

        np.random.default_rng = watched

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def seed(*args: Any, **options: Any) -> Any:
            seed_arguments = [*args, *options.values()]
            self.seen["seeded"][name] = bool(seed_arguments) and seed_arguments[0] is not None
            return function(*args, **options)

        return seed

    def watch_torch(self) -> None:
        """Install hooks in PyTorch as soon as the script has imported it."""
        sys.meta_path.insert(0, ImportHook("torch", self._hook))

    def _hook(self, torch: Any) -> None:
        optimizer = sys.modules["torch.optim.optimizer"]
        optimizer.register_optimizer_step_post_hook(lambda *_: self.step())
        loader = torch.utils.data.DataLoader
        iterate = torch.utils.data.DataLoader.__iter__
        watch = self

        def watched(self: Any) -> Any:
            watch.loader(self)
            return iterate(self)

        loader.__iter__ = watched
        at_start = getattr(torch.cuda, "_lazy_call", None)  # the only hook at the start of CUDA
        if torch.version.cuda and at_start is not None and not torch.cuda.is_initialized():
            at_start(self._cuda_starts)

    def _cuda_starts(self) -> None:
        self.seen["workspace_at_start"] = os.environ.get(WORKSPACE)


class ImportHook(MetaPathFinder):
    """Finds one module as Python would, and calls `then` with it after its import."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return the module's own spec, with a loader that calls `then`."""
        if name != self.name:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: Any) -> None:
                execute(module)
                # Removed only on execution: a mere search for the spec must not use the hook up.
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self.then(module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def _kernels(loaders: list[Any]) -> dict[str, Any]:
    """Run the kernel probes at the largest batch size of the training."""
    sizes = [
        size for loader in loaders if isinstance(size := getattr(loader, "batch_size", None), int)
    ]
    try:
        return kernels(batch=min(max(sizes, default=_BATCH), _BATCH_MOST))
    except Exception as error:  # noqa: BLE001  for instance a GPU without free memory
        return {"kernels": {"missing": str(error).partition("\n")[0]}}


def main() -> None:
    """Run the request; argv is [request as JSON, script or -m module, its arguments].

    Without a script, judge the environment.
    """
    request = json.loads(sys.argv[1])
    words = sys.argv[2:]
    watch = ScriptObserver(request)
    if not words:
        _judge_environment(watch)
    run(watch, words)


def run(watch: ScriptObserver, words: list[str]) -> None:
    """Run a script or -m module with its arguments, observed; the process ends with it."""
    watch.seen["ran"] = True
    watch.watch_seeds()
    watch.watch_torch()
    if seconds := watch.request["seconds"]:
        end_arguments = [f"after {seconds:g} s"]
        # The script goes on meanwhile.
        timer = threading.Timer(seconds, watch.end, end_arguments, {"probe": False})
        timer.daemon = True
        timer.start()
    try:
        text, module = _main(words)
        # It stays there: the script is also judged after its end.
        sys.modules["__main__"] = module
        exec(text, module.__dict__)
    except SystemExit as error:
        watch.end("at its end", _code(error))
    except BaseException as error:  # noqa: BLE001  the script's own error, shown as Python would
        script_traceback = error.__traceback__.tb_next if error.__traceback__ is not None else None
        traceback.print_exception(type(error), error, script_traceback)
        watch.end("where it raised", 1)
    watch.end("at its end")


def _main(words: list[str]) -> tuple[CodeType, ModuleType]:
    """Return the code of a script, or of -m and a module, and its ``__main__`` module."""
    module = ModuleType("__main__")
    if words[0] != "-m":
        sys.argv = words
        _prepend_path(Path(words[0]).resolve().parent)
        module.__file__ = str(Path(words[0]).absolute())
        with io.open_code(module.__file__) as file:
            return compile(file.read(), module.__file__, "exec"), module
    _prepend_path(Path.cwd())
    spec = find_spec(words[1])
    if spec is not None and spec.submodule_search_locations is not None:
        spec = find_spec(f"{words[1]}.__main__")
    loader: Any = getattr(spec, "loader", None)
    text = loader.get_code(spec.name) if spec is not None and hasattr(loader, "get_code") else None
    if spec is None or text is None:
        msg = f"No module named {words[1]}"
        raise ModuleNotFoundError(msg)
    sys.argv = [spec.origin or words[1], *words[2:]]
    module.__spec__, module.__package__, module.__loader__ = spec, spec.parent, spec.loader
    module.__file__ = spec.origin
    return text, module


def _prepend_path(folder: Path) -> None:
    """Make imports search a folder first, as Python does for a script there."""
    if not sys.flags.safe_path:
        sys.path.insert(0, str(folder))


def _judge_environment(watch: ScriptObserver) -> None:
    """Judge the state in which a script would start in this environment."""
    # PyTorch is imported if it is installed.
    from datacheck.plugins import is_installed, resolve  # noqa: PLC0415

    if is_installed("torch"):
        resolve("torch")
    loader_path = watch.request.get("loader")
    if loader_path:
        _prepend_path(Path.cwd())
        watch.loader(resolve(loader_path)())
    watch.end("before any script")


def _code(error: SystemExit) -> int:
    return error.code if isinstance(error.code, int) else int(error.code is not None)
