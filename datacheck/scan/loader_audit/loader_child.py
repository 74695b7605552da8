"""The child's side of an audit: build a user's dataset in this process and read it.

The process has known conditions (seeds, the order of directory listings, memory), and each function
here is called from `loader_process`. PyTorch is used only where the user's own code has imported it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.model.named_values import RefusedError, digest_values, named_values
from datacheck.plugins import import_failure, resolve
from datacheck.workers.child import end_with_parent, limit_memory

Beat = Callable[[int], None]
Task = dict[str, Any]

_SEED_MASK = 2**32 - 1
_DETOURS = 8  # redirects that are remembered for one sample
_LONGEST = 1_000_000_000
_INNER = 16  # datasets that are watched, the outer one included
_LIBRARY = tuple(
    sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


@dataclass(frozen=True, eq=False)
class Redirect:
    """A ``__getitem__`` that called itself with another index, and the sample that it got.

    Args:
        index: the other index.
        sample: the sample at that index.
        inner: whether it was a dataset inside the user's, not the user's own.
    """

    index: int
    sample: Any
    inner: bool


@dataclass(eq=False)
class OpenedDataset:
    """The dataset of this process.

    Args:
        dataset, length: the factory's dataset and its length.
        detours: redirects of the dataset, or of one inside it, while a sample is made; the
            outermost last.
        running: (object, index) of the calls in progress.
    """

    dataset: Any
    length: int
    detours: list[Redirect] = field(default_factory=list)
    running: list[tuple[int, Any]] = field(default_factory=list)


_OPENED: dict[str, OpenedDataset] = {}


def open_dataset(task: Task, beat: Beat) -> dict[str, Any]:
    """Build the dataset.

    Args:
        task: factory (``module:function``), memory_b, and conditions that samples may depend on:
            seed (of the global generators), listing ("reversed": directories list their names in
            reverse).
        beat: not called: building is one step.

    Returns:
        length; torch: whether PyTorch is in use.

    Raises:
        UsageError: the factory does not exist, it raises, or its result is not a map-style dataset.
    """
    del beat
    opened = opened_dataset(task)
    return {"length": opened.length, "torch": "torch" in sys.modules}


def opened_dataset(task: Task) -> OpenedDataset:
    """Return the dataset of this process, built on the first call; see `open_dataset`."""
    if "dataset" not in _OPENED:
        name = str(task["factory"])
        if task.get("listing") == "reversed":
            _reverse_listings()
        factory = _import_name(name)
        limit_memory(int(task["memory_b"]), mapped=False)
        seed_all(int(task["seed"]))
        _OPENED["dataset"] = _build_dataset(name, factory)
        seed_all(int(task["seed"]))
    return _OPENED["dataset"]


def _import_name(name: str) -> Any:
    try:
        factory = resolve(name)
    except UsageError as error:
        cause = error.__cause__ or error
        error_place = where_raised(error.__cause__) if error.__cause__ is not None else ""
        hint = (
            " It is imported from the working folder or PYTHONPATH."
            if "No module named" in str(error)
            else ""
        )
        msg = f"--loader {import_failure(name, cause)}{f' ({error_place})' if error_place else ''}{hint}"
        raise UsageError(msg) from error
    if not callable(factory):
        msg = (
            f"--loader {name}: is {_a(factory)}, not a function that returns a dataset. Write "
            f"def make(): return ..."
        )
        raise UsageError(msg)
    return factory


def _build_dataset(name: str, factory: Any) -> OpenedDataset:
    try:
        dataset = factory()
    except MemoryError:
        raise
    except BaseException as error:
        msg = (
            f"--loader {name}: raises {_error_with_place(error)}. Call it without arguments to "
            f"see the whole traceback."
        )
        raise UsageError(msg) from error
    if not hasattr(type(dataset), "__getitem__") or not hasattr(type(dataset), "__len__"):
        lacks = "__len__" if hasattr(type(dataset), "__getitem__") else "__getitem__"
        msg = (
            f"--loader {name}: returns {_a(dataset)} without {lacks}. A map-style dataset has "
            f"__len__ and __getitem__."
        )
        raise UsageError(msg)
    try:
        length = len(dataset)
    except MemoryError:
        raise
    except BaseException as error:
        msg = f"--loader {name}: len() of what it returns raises {_error_with_place(error)}."
        raise UsageError(msg) from error
    if length == 0:
        msg = (
            f"--loader {name}: its dataset is empty (len 0). Check the paths that it reads, "
            f"relative to {Path.cwd()}."
        )
        raise UsageError(msg)
    if length > _LONGEST:
        msg = (
            f"--loader {name}: its dataset says that it has {length:,} samples; at most "
            f"{_LONGEST:,} are read."
        )
        raise UsageError(msg)
    opened = OpenedDataset(dataset, length)
    _watch_getitem(opened)
    return opened


def _a(value: Any) -> str:
    return f"an object of type {type(value).__qualname__}"


def _watch_getitem(opened: OpenedDataset) -> None:
    """Record redirects: calls of ``__getitem__`` that call it again with another index.

    Covers the user's dataset and the datasets that it wraps.
    """
    objects = _datasets(opened.dataset)
    own_ids = {id(dataset) for dataset in objects}
    for kind in {type(dataset) for dataset in objects}:
        # A built-in type cannot be patched; it does not redirect either.
        with contextlib.suppress(AttributeError, TypeError):
            kind.__getitem__ = _watched_getitem(kind.__getitem__, own_ids, opened)


def _watched_getitem(
    original: Callable[[Any, Any], Any], own_ids: set[int], opened: OpenedDataset
) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def watched(self: Any, index: Any) -> Any:
        object_id = id(self)
        if object_id not in own_ids:
            return original(self, index)
        outer_indices = [
            outer_index for owner_id, outer_index in opened.running if owner_id == object_id
        ]
        opened.running.append((object_id, index))
        try:
            sample = original(self, index)
        finally:
            opened.running.pop()
        if (
            outer_indices
            and len(opened.detours) < _DETOURS
            and _is_redirect(index, outer_indices[-1], len(self))
        ):
            opened.detours.append(
                Redirect(int(index) % len(self), sample, self is not opened.dataset)
            )
        return sample

    return watched


def _is_redirect(index: Any, outer_index: Any, length: int) -> bool:
    both_integers = isinstance(index, int | np.integer) and isinstance(
        outer_index, int | np.integer
    )
    return both_integers and length > 0 and index % length != outer_index % length


def _datasets(dataset: Any) -> list[Any]:
    """Return the dataset and the datasets that it wraps.

    They are found in attributes: Subset.dataset, ConcatDataset.datasets, a user's own.
    """
    datasets = [dataset]
    for outer in datasets:
        inner: list[Any] = []
        for value in getattr(outer, "__dict__", {}).values():
            inner += value[:_INNER] if isinstance(value, list | tuple) else [value]
        datasets += [
            v for v in inner if _is_dataset(v) and not any(v is listed for listed in datasets)
        ][: _INNER - len(datasets)]
    return datasets


def _is_dataset(value: Any) -> bool:
    kind = type(value)
    utils = sys.modules.get("torch.utils.data")
    if utils is not None and isinstance(value, utils.Dataset):
        return hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    user_code = file is not None and not str(file).startswith(_LIBRARY)
    return user_code and hasattr(kind, "__getitem__") and hasattr(kind, "__len__")


def _reverse_listings() -> None:
    """Make directories list their names in another order, as another copy of the folder may."""
    list_names, scan = os.listdir, os.scandir

    class Reversed:
        def __init__(self, path: Any = ".") -> None:
            with scan(path) as entries:
                self._entries = iter(list(entries)[::-1])

        def __iter__(self) -> Iterator[Any]:
            return self._entries

        def __next__(self) -> Any:
            return next(self._entries)

        def __enter__(self) -> Reversed:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def close(self) -> None:
            self._entries = iter(())

    def reversed_names(path: Any = ".") -> list[Any]:
        return list_names(path)[::-1]

    os.listdir = reversed_names
    # os.walk, glob and pathlib use these two.
    os.scandir = Reversed  # type: ignore[assignment]


def seed_all(seed: int) -> None:
    """Seed the global generators of Python, NumPy and, if it is imported, PyTorch."""
    random.seed(seed)
    np.random.seed(seed & _SEED_MASK)  # noqa: NPY002  the global generator is the one under test
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)


def error_text(error: BaseException) -> str:
    """Return type and message of an error on one line."""
    try:
        words = " ".join(str(error).split())[:200].encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001  a user's __str__ may raise
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _error_with_place(error: BaseException) -> str:
    place = where_raised(error)
    return error_text(error) + (f" ({place})" if place else "")


def where_raised(error: BaseException | None) -> str:
    """Return the line of the user's code that raised: ``loaders.py:31 in __getitem__``."""
    if error is None:
        return ""
    own_folder = str(Path(__file__).parents[2])  # of datacheck
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith((own_folder, "<"))
    ]
    user_frames = [f for f in frames if not f.filename.startswith(_LIBRARY)] or frames
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    return (
        f"{Path(user_frames[-1].filename).name}:{user_frames[-1].lineno} in {user_frames[-1].name}"
        if user_frames
        else ""
    )


def _states() -> dict[str, Any]:
    states: dict[str, Any] = {"random": random.getstate()}
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    states["numpy.random"] = (name, keys.tobytes() if isinstance(keys, np.ndarray) else keys, *rest)
    if (torch := sys.modules.get("torch")) is not None:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


# ----------------------------------------------------------------------------------------- reading


def _read_index(opened: OpenedDataset, index: int, whole_names: Sequence[str]) -> dict[str, Any]:
    """Return the result of one index: values, digests, instead; or error, where, kind.

    "instead" is the redirect that supplied the sample, see `_redirect_of`.
    """
    opened.detours.clear()
    try:
        sample = opened.dataset[index]
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001  an index that raises is an unreadable sample
        return {
            "error": error_text(error),
            "where": where_raised(error),
            "kind": type(error).__name__,
        }
    try:
        values = named_values(sample, whole_names)
    except RefusedError as error:
        return {"error": str(error), "where": "", "kind": "refused"}
    digests = digest_values(values)
    return {
        "values": values,
        "digests": digests,
        "instead": _redirect_of(opened, sample, digests, whole_names),
    }


def _redirect_of(
    opened: OpenedDataset, sample: Any, digests: dict[str, int], whole_names: Sequence[str]
) -> list[Any] | None:
    """Return [index, inner] of the redirect whose sample was returned for this one, or None."""
    for detour in opened.detours[::-1]:  # the outermost call ends last
        if detour.sample is sample or _same_digests(detour.sample, digests, whole_names):
            return [detour.index, detour.inner]
    return None


def _same_digests(answer: Any, digests: dict[str, int], whole_names: Sequence[str]) -> bool:
    try:
        return digest_values(named_values(answer, whole_names)) == digests
    except RefusedError:
        return False


def read(task: Task, beat: Beat) -> list[dict[str, Any]]:
    """Return the result of each index of `items`, read in this order (see `_read_index`)."""
    opened = opened_dataset(task)
    answers = []
    for place, index in enumerate(task["items"]):
        beat(place)
        answers.append({"index": index} | _read_index(opened, index, task["whole"]))
    return answers


def read_pass(task: Task, beat: Beat) -> list[dict[str, Any]]:
    """Read each index of `items` and return digests.

    Args:
        task: reseed: seed the global generators before each index (from this number and the
            index), None: never; twice: read twice, the second result counts; workers: number of
            worker processes, 0: read in this process; start: their start method; keep: indices
            whose values are returned, too.
        beat: called before each index, or after each result of the workers.

    Returns:
        Per index, in the order of `items`: index, digests or error; values for the indices in
        `keep`; drew: names of the global generators that were used.
    """
    opened = opened_dataset(task)
    request = AuditRequest(
        opened.dataset,
        opened.length,
        task["whole"],
        task["reseed"],
        task["twice"],
        frozenset(task["keep"]),
    )
    if not task["workers"]:
        return list(_read_in_process(request, task["items"], beat))
    return list(_read_in_workers(request, task, beat))


def _read_in_process(
    request: AuditRequest, items: Sequence[int], beat: Beat
) -> Iterator[dict[str, Any]]:
    for place, index in enumerate(items):
        beat(place)
        yield request[index]


@dataclass(eq=False)
class AuditRequest:
    """The dataset as `read_pass` reads it; sent to worker processes."""

    dataset: Any
    length: int
    whole: Sequence[str]
    reseed: int | None
    twice: bool
    keep: frozenset[int]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return index, drew, digests or error, and values for the indices in `keep`."""
        opened = OpenedDataset(self.dataset, self.length)
        for _ in range(2 if self.twice else 1):
            if self.reseed is not None:
                seed_all(self.reseed * 1_000_003 + index)
            before = _states()
            result = _read_index(opened, index, self.whole)
        drew = [name for name, state in _states().items() if state != before.get(name, state)]
        if "error" in result:
            return {"index": index, "drew": drew, "error": result["error"]}
        kept_values = {"values": result["values"]} if index in self.keep else {}
        return {"index": index, "drew": drew, "digests": result["digests"], **kept_values}


def _read_in_workers(request: AuditRequest, task: Task, beat: Beat) -> Iterator[dict[str, Any]]:
    torch = sys.modules.get("torch")
    answers = (
        _read_by_processes(request, task) if torch is None else _read_by_dataloader(request, task)
    )
    for place, result in enumerate(answers):
        beat(min(place + 1, len(task["items"]) - 1))
        yield result


def _read_by_dataloader(request: AuditRequest, task: Task) -> Iterator[dict[str, Any]]:
    # The user's module has imported it already.
    from torch.utils.data import DataLoader  # noqa: PLC0415

    yield from DataLoader(
        request,
        batch_size=None,
        sampler=task["items"],
        num_workers=task["workers"],
        collate_fn=_identity,
        multiprocessing_context=task["start"],
        worker_init_fn=_init_worker,
    )


def _identity(value: Any) -> Any:
    return value


def _init_worker(number: int) -> None:
    del number
    end_with_parent()


def _read_by_processes(request: AuditRequest, task: Task) -> Iterator[dict[str, Any]]:
    """Read in plain worker processes, each with a share of the indices, as a DataLoader does."""
    import multiprocessing  # noqa: PLC0415  needed here only

    context = multiprocessing.get_context(task["start"])
    count = task["workers"]
    items = task["items"]
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    shares = [items[number::count] for number in range(count)]
    workers = [
        context.Process(target=_serve_share, args=(request, share, sender), daemon=True)
        for share, (_, sender) in zip(shares, pipes, strict=True)
    ]
    for worker in workers:
        worker.start()
    for _, sender in pipes:
        sender.close()
    for place, index in enumerate(items):
        try:
            yield pipes[place % count][0].recv()
        except EOFError as error:
            msg = f"a worker process ended at index {index}"
            raise RuntimeError(msg) from error
    # All results are in; a thread of the user's code could keep a worker alive.
    for worker in workers:
        worker.kill()
        worker.join()


def _serve_share(request: AuditRequest, share: Sequence[int], sender: Any) -> None:
    _init_worker(0)
    for index in share:
        sender.send(request[index])


# ------------------------------------------------------------------------------------- index probes


def probe(task: Task, beat: Beat) -> dict[str, Any]:
    """Read each index of `items` several times, others in between, without seeding anything.

    Returns:
        probed: [index, digests] of every result; reads of one index are never consecutive.
    """
    opened = opened_dataset(task)
    items: list[int] = task["items"]
    results = []
    for _ in range(int(task["rounds"])):
        for place, index in enumerate(items):
            beat(place)
            result = _read_index(opened, index, task["whole"])
            if "digests" in result:
                results.append([index, result["digests"]])
    return {"probed": results}


def read_past_end(task: Task, beat: Beat) -> dict[str, Any]:
    """Read the first index out of range; return kind and error, or the digests of a sample."""
    opened = opened_dataset(task)
    beat(0)
    result = _read_index(opened, opened.length, task["whole"])
    return {name: result[name] for name in ("digests", "error", "kind") if name in result}
