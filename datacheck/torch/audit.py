"""A user's own dataset in an expendable child: built, read, asked again (`scan.loader`).

The child imports the user's module, and PyTorch only if that module does. Whatever the dataset does (raise, hang, take
all memory, end the process) happens here; what leaves is named values, digests and sentences.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.child import end_with_parent
from datacheck.torch.factory import Beat, Opened, Task, error_said, opened_here, seed_all, where_raised
from datacheck.torch.served import RefusedError, digests, named


def _states() -> dict[str, Any]:
    states: dict[str, Any] = {"random": random.getstate()}
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    states["numpy.random"] = (name, keys.tobytes() if isinstance(keys, np.ndarray) else keys, *rest)
    if (torch := sys.modules.get("torch")) is not None:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


# ------------------------------------------------------------------------------------------ asking


def _ask(opened: Opened, index: int, whole: Sequence[str]) -> dict[str, Any]:
    """Return the answer to an index: values, digests, instead (an index that it asked itself for); or error, where."""
    opened.detours.clear()
    try:
        sample = opened.dataset[index]
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001  an index that raises is an unreadable sample
        return {"error": error_said(error), "where": where_raised(error), "kind": type(error).__name__}
    try:
        values = named(sample, whole)
    except RefusedError as error:
        return {"error": str(error), "where": "", "kind": "refused"}
    found = digests(values)
    return {"values": values, "digests": found, "instead": _instead(opened, sample, found, whole)}


def _instead(opened: Opened, sample: Any, found: dict[str, int], whole: Sequence[str]) -> list[Any] | None:
    """Return [index, whether of a dataset inside this one] of the sample that was passed on as the one asked for."""
    for detour in opened.detours[::-1]:  # the outermost call came to its end last
        if detour.sample is sample or _same(detour.sample, found, whole):
            return [detour.index, detour.inner]
    return None


def _same(answer: Any, found: dict[str, int], whole: Sequence[str]) -> bool:
    try:
        return digests(named(answer, whole)) == found
    except RefusedError:
        return False


def read(task: Task, beat: Beat) -> list[dict[str, Any]]:
    """Return what the dataset says to each index of `items` (see `_ask`), asked in this order."""
    opened = opened_here(task)
    answers = []
    for place, index in enumerate(task["items"]):
        beat(place)
        answers.append({"index": index} | _ask(opened, index, task["whole"]))
    return answers


def look(task: Task, beat: Beat) -> list[dict[str, Any]]:
    """Ask for each index of `items` and say only what came.

    Args:
        task: reseed: seed the global generators before each index (from this number and the index), None: never;
            twice: ask twice, the second answer counts; workers: in so many worker processes, 0: in this one; start:
            their start method; keep: indices whose values are wanted, too.
        beat: called before each index, or after each answer of the workers.

    Returns:
        Per index, in the order asked: index, digests or error; values where they are wanted; drew: names of the global
        generators that were used.
    """
    opened = opened_here(task)
    asked = Asked(opened.dataset, opened.length, task["whole"], task["reseed"], task["twice"], frozenset(task["keep"]))
    if not task["workers"]:
        return list(_one_by_one(asked, task["items"], beat))
    return list(_by_workers(asked, task, beat))


def _one_by_one(asked: Asked, items: Sequence[int], beat: Beat) -> Iterator[dict[str, Any]]:
    for place, index in enumerate(items):
        beat(place)
        yield asked[index]


@dataclass(eq=False)
class Asked:
    """The dataset as `look` asks it; what a worker process is given."""

    dataset: Any
    length: int
    whole: Sequence[str]
    reseed: int | None
    twice: bool
    keep: frozenset[int]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return index, drew, digests or error, and values where they are wanted."""
        opened = Opened(self.dataset, self.length)
        for _ in range(2 if self.twice else 1):
            if self.reseed is not None:
                seed_all(self.reseed * 1_000_003 + index)
            before = _states()
            said = _ask(opened, index, self.whole)
        drew = [name for name, state in _states().items() if state != before.get(name, state)]
        if "error" in said:
            return {"index": index, "drew": drew, "error": said["error"]}
        kept = {"values": said["values"]} if index in self.keep else {}
        return {"index": index, "drew": drew, "digests": said["digests"], **kept}


def _by_workers(asked: Asked, task: Task, beat: Beat) -> Iterator[dict[str, Any]]:
    torch = sys.modules.get("torch")
    answers = _pool(asked, task) if torch is None else _data_loader(asked, task)
    for place, said in enumerate(answers):
        beat(min(place + 1, len(task["items"]) - 1))
        yield said


def _data_loader(asked: Asked, task: Task) -> Iterator[dict[str, Any]]:
    from torch.utils.data import DataLoader  # noqa: PLC0415  the user's module has imported it already

    yield from DataLoader(
        asked, batch_size=None, sampler=task["items"], num_workers=task["workers"], collate_fn=_as_it_is,
        multiprocessing_context=task["start"], worker_init_fn=_in_worker,
    )  # fmt: skip


def _as_it_is(said: Any) -> Any:
    return said


def _in_worker(number: int) -> None:
    del number
    end_with_parent()


def _pool(asked: Asked, task: Task) -> Iterator[dict[str, Any]]:
    """Ask in plain worker processes, each its share of the indices, as a DataLoader of PyTorch would."""
    import multiprocessing  # noqa: PLC0415  for this one look only

    context, count, items = multiprocessing.get_context(task["start"]), task["workers"], task["items"]
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    shares = [items[number::count] for number in range(count)]
    workers = [
        context.Process(target=_work, args=(asked, share, sender), daemon=True)
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
    for worker in workers:  # all has been said; a thread of the user's could keep it alive
        worker.kill()
        worker.join()


def _work(asked: Asked, share: Sequence[int], sender: Any) -> None:
    _in_worker(0)
    for index in share:
        sender.send(asked[index])


# ------------------------------------------------------------------------------------------ the index


def probe(task: Task, beat: Beat) -> dict[str, Any]:
    """Ask for each index of `items` a few times, others in between, without seeding anything.

    Returns:
        asked: [index, digests] of every answer; calls of one index are not next to one another.
    """
    opened = opened_here(task)
    items: list[int] = task["items"]
    found = []
    for _ in range(int(task["rounds"])):
        for place, index in enumerate(items):
            beat(place)
            said = _ask(opened, index, task["whole"])
            if "digests" in said:
                found.append([index, said["digests"]])
    return {"asked": found}


def beyond(task: Task, beat: Beat) -> dict[str, Any]:
    """Ask for the first index that does not exist; return kind and error, or the digests of what was served."""
    opened = opened_here(task)
    beat(0)
    said = _ask(opened, opened.length, task["whole"])
    return {name: said[name] for name in ("digests", "error", "kind") if name in said}
