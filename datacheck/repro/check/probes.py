"""What shows only when it is tried: the same computation three times, and two workers of a loader that are asked."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from datacheck.digest import digest_array, digest_value
from datacheck.repro.environment.switches import rng
from datacheck.repro.runs.batch import digest_batch

_TIMES = 3
_SUM = 3_000_000
_ASKED = 4  # samples
_PATIENCE = 60.0  # seconds for a batch of a probed loader


# ------------------------------------------------------------------------------------------ kernels


def kernels(*, batch: int = 32) -> dict[str, Any]:
    """Compute a few things three times each and count the different results.

    Args:
        batch: samples at once, on a GPU: at small batches some kernels are deterministic that are not at large ones.

    Returns:
        By name: results (how many were different), threads where that is what was changed; or missing: why not.

    Notes:
        Under the switches as they are. Draws from no global generator. On a GPU where PyTorch can use one: convolution,
        scatter and attention, forward and backward. On the CPU: index_put and a sum with one and with all threads.
    """
    import torch  # noqa: PLC0415  the one door

    found = {}
    if torch.cuda.is_available():
        found = {f"{name} on the GPU": said for name, said in on_device(torch, "cuda", batch).items()}
    found["index_put(accumulate=True) on the CPU"] = _three(lambda: _index_put(torch))
    return found | {f"sum of {_SUM // 1_000_000} million numbers": _sums(torch)}


def on_device(torch: Any, device: str, batch: int) -> dict[str, Any]:
    """Compute what is forward and backward, three times each, on one device."""
    made = {"convolution": _convolution, "scatter_add": _scatter, "attention": _attention}
    return {name: _three(partial(make, torch, device, batch)) for name, make in made.items()}


def _three(make: Callable[[], Any]) -> dict[str, Any]:
    """Return how many different results came; the operations raise where determinism is asked for and not to be had."""
    results = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of warn_only: what is looked at is what came
        for _ in range(_TIMES):
            try:
                results.add(digest_value([digest_array(part.detach().cpu().numpy()) for part in make()]))
            except RuntimeError as error:
                said = str(error).partition("\n")[0]
                if "deterministic" in said:
                    return {"results": 0, "refused": said}
                return {"missing": said}
    return {"results": len(results)}


def _numbers(torch: Any, *shape: int, device: str = "cpu") -> Any:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).to(device)


def _convolution(torch: Any, device: str, batch: int) -> tuple[Any, ...]:
    image = _numbers(torch, batch, 64, 56, 56, device=device).requires_grad_()
    weight = _numbers(torch, 64, 64, 3, 3, device=device).requires_grad_()
    made = torch.nn.functional.conv2d(image, weight, padding=1)
    return (made, *torch.autograd.grad(made.pow(2).sum(), (image, weight)))


def _scatter(torch: Any, device: str, batch: int) -> tuple[Any, ...]:
    rows = batch * 4096
    values = _numbers(torch, rows, 16, device=device)
    places = torch.randint(0, 512, (rows, 1), generator=torch.Generator().manual_seed(1)).to(device).expand(-1, 16)
    table = torch.zeros(512, 16, device=device).requires_grad_()
    made = table.scatter_add(0, places, values)
    return (made, *torch.autograd.grad(made.gather(0, places).pow(2).sum(), (table,)))  # gather adds on its way back


def _attention(torch: Any, device: str, batch: int) -> tuple[Any, ...]:
    parts = [_numbers(torch, batch, 8, 1024, 64, device=device).bfloat16().requires_grad_() for _ in range(3)]
    made = torch.nn.functional.scaled_dot_product_attention(*parts)
    return tuple(part.float() for part in (made, *torch.autograd.grad(made.float().pow(2).sum(), parts)))


def _index_put(torch: Any) -> tuple[Any, ...]:
    values = _numbers(torch, 400_000)
    places = torch.randint(0, 300, (len(values),), generator=torch.Generator().manual_seed(1))
    return (torch.zeros(300).index_put((places,), values, accumulate=True),)


def _sums(torch: Any) -> dict[str, Any]:
    threads = torch.get_num_threads()
    values = _numbers(torch, _SUM)
    found = set()
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            found.add(float(values.sum()))
    finally:
        torch.set_num_threads(threads)
    return {"results": len(found), "threads": threads}


# ------------------------------------------------------------------------------------------ loaders


class Asked:
    """A dataset as a worker of a probed loader sees it: answers with what came, from which seeds, in which epoch."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return digest, opaque (types of which nothing else is known), drew, worker, seeds and epoch."""
        import torch  # noqa: PLC0415  the worker has it

        before = _states()
        digest, _ = digest_batch(self.dataset[index])
        drew = [name for name, state in _states().items() if state != before.get(name, state)]
        worker = torch.utils.data.get_worker_info()
        return {
            "digest": digest.text(), "opaque": sorted(digest.opaque), "drew": drew,
            "worker": -1 if worker is None else worker.id, "seeds": before, "epoch": epoch_of(self.dataset),
        }  # fmt: skip


def _states() -> dict[str, str]:
    return {name: said["digest"] for name, said in rng().items()}


def probe_loader(loader: Any) -> dict[str, Any]:
    """Ask two workers of a loader for their epoch and their seeds, and a few samples of one worker and of two.

    Returns:
        asked, by_workers (how many samples differ between one worker and two), opaque (types of values in them of which
        nothing else is compared), drew (the global generators that the samples were made with), same_seeds (generators
        that two workers have alike), epoch ([of the dataset here, of it in the workers] after `set_epoch`); or missing:
        why nobody could be asked.

    Notes:
        The loader itself is not iterated; loaders over the same dataset are, with its worker_init_fn, start method and
        persistent_workers. An iterable dataset is not asked.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of more workers than CPUs
            return _probed(loader)
    except Exception as error:  # noqa: BLE001  whatever a user's dataset raises
        said = str(error).strip().rpartition("\n")[2]  # of a worker's: PyTorch puts its traceback before it
        return {"missing": said if said.startswith(type(error).__name__) else f"{type(error).__name__}: {said}"}


def _probed(loader: Any) -> dict[str, Any]:
    dataset = loader.dataset
    items = list(range(min(_ASKED, len(dataset))))
    if not hasattr(type(dataset), "__getitem__") or not items:
        return {"missing": "the dataset has no indices"}
    one, two = (list(_loader(loader, items, count)) for count in (1, 2))
    said: dict[str, Any] = {
        "asked": len(items),
        "by_workers": sum(a["digest"] != b["digest"] for a, b in zip(one, two, strict=True)),
        "opaque": sorted({kind for answer in [*one, *two] for kind in answer["opaque"]}),
        "drew": sorted({name for answer in two for name in answer["drew"]}),
        "same_seeds": _same_seeds(two),
    }
    return said | _epoch(loader, items)


def _loader(loader: Any, items: list[int], workers: int) -> Any:
    import torch  # noqa: PLC0415  the one door

    return torch.utils.data.DataLoader(
        Asked(loader.dataset), batch_size=None, sampler=items, num_workers=workers, collate_fn=_as_it_is,
        worker_init_fn=loader.worker_init_fn, multiprocessing_context=loader.multiprocessing_context,
        persistent_workers=loader.persistent_workers and loader.num_workers > 0, timeout=_PATIENCE,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip


def _as_it_is(said: Any) -> Any:
    return said


def _same_seeds(answers: list[dict[str, Any]]) -> list[str]:
    first = {answer["worker"]: answer["seeds"] for answer in reversed(answers)}
    if len(first) < 2:
        return []
    a, b = first[0], first[1]
    return [name for name in a if a[name] == b[name]]


def _epoch(loader: Any, items: list[int]) -> dict[str, Any]:
    """Tell whether a new epoch reaches workers, where the dataset has one."""
    dataset, before = _with_epoch(loader.dataset), epoch_of(loader.dataset)
    if before is None or not callable(getattr(dataset, "set_epoch", None)):
        return {}
    passes = _loader(loader, items, 2)
    list(passes)
    try:
        dataset.set_epoch(before + 1)
        there = sorted({answer["epoch"] for answer in passes})
        return {"epoch": [epoch_of(dataset), there[0] if len(there) == 1 else there]}
    finally:
        dataset.set_epoch(before)


def _with_epoch(dataset: Any) -> Any:
    """Return the dataset that has the epoch: this one, or the one that it is a part of (a `Subset`)."""
    for _ in range(4):
        if callable(getattr(dataset, "set_epoch", None)) or not hasattr(dataset, "dataset"):
            break
        dataset = dataset.dataset
    return dataset


def epoch_of(dataset: Any) -> int | None:
    """Return the epoch that a dataset says it is in, None where it says none."""
    for name in ("epoch", "_epoch", "current_epoch"):
        value = getattr(_with_epoch(dataset), name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def loader_said(loader: Any) -> dict[str, Any]:
    """Return what a `DataLoader` is set to."""
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    return {
        "dataset": type(loader.dataset).__name__, "workers": loader.num_workers,
        "shuffles": type(sampler).__name__ in {"RandomSampler", "WeightedRandomSampler", "SubsetRandomSampler"},
        "generator": loader.generator is not None or getattr(sampler, "generator", None) is not None,
        "worker_init_fn": loader.worker_init_fn is not None, "persistent_workers": bool(loader.persistent_workers),
    }  # fmt: skip
