"""Checks for sources of nondeterminism: packages, libraries, loaders, kernels; and `pin`."""

from __future__ import annotations

import os
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.repro.hardware import unowned
from datacheck.repro.process import rng
from datacheck.repro.tensors import digest_batch
from datacheck.runtime.hashing import digest_array, digest_value

PROFILES = ("fast", "same-machine", "strict")  # each includes the one before it
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
REDUCED = (  # attributes of torch.backends.cuda.matmul; an old PyTorch has some of them
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
# Printed by `repro check` and executed by `pin`
DETERMINISTIC = "torch.use_deterministic_algorithms(True)"
NO_BENCHMARK = "torch.backends.cudnn.benchmark = False"
FILLED = "torch.utils.deterministic.fill_uninitialized_memory = True"
NO_TF32 = 'torch.set_float32_matmul_precision("highest"); torch.backends.cudnn.allow_tf32 = False'


@dataclass(frozen=True)
class CheckRow:
    """The result of one check.

    Args:
        name, value: the setting, and its value.
        state: "risk"; "note" (a risk in a stricter profile, or a fact to know); "ok"; "unknown" (it
            could not be determined).
        why: why it matters; for "ok" why it does not, or "".
        shell: the line that fixes it before Python starts, "" if there is none.
        python: the line that fixes it in the script, "" if there is none.
        do: what to do if no single line fixes it.
    """

    name: str
    value: str
    state: str
    why: str = ""
    shell: str = ""
    python: str = ""
    do: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the row as a JSON value."""
        return asdict(self)


@dataclass(frozen=True)
class RiskContext:
    """The input of the checks: a capture, observations of the run, and the profile's level."""

    capture: Mapping[str, Any]
    seen: Mapping[str, Any]
    level: int

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a section, empty if it could not be captured."""
        contents: Mapping[str, Any] = self.capture.get(name, {})
        return {} if isinstance(contents.get("missing"), str) else contents

    @property
    def env(self) -> Mapping[str, str]:
        """Environment variables of the process."""
        variables: Mapping[str, str] = self.section("process").get("env", {})
        return variables

    @property
    def torch(self) -> Mapping[str, Any]:
        """Switches of PyTorch, empty if it is not loaded."""
        return self.section("torch")

    @property
    def gpu(self) -> bool:
        """Whether PyTorch can compute on a GPU in this process."""
        gpu = self.section("gpu")
        built = bool(gpu.get("cuda") or gpu.get("hip"))
        return (
            bool(self.torch)
            and built
            and bool(gpu.get("devices"))
            and self.env.get("CUDA_VISIBLE_DEVICES") not in {"", "-1"}
        )

    @property
    def deterministic(self) -> bool:
        """Whether operations without a deterministic kernel raise."""
        on = bool(self.torch.get("are_deterministic_algorithms_enabled"))
        return on and not self.torch.get("is_deterministic_algorithms_warn_only_enabled")

    def row(
        self,
        name: str,
        value: Any,
        bad: bool | None,  # noqa: FBT001
        since: str,
        why: str,
        **mend: str,
    ) -> CheckRow:
        """Return the row of a setting.

        Args:
            bad: whether the setting is a risk; None: unknown.
            since: the first profile in which it is a risk.
        """
        value_text = value if isinstance(value, str) else str(value)
        if bad is None:
            return CheckRow(name, value_text, "unknown", why, **mend)
        if not bad:
            return CheckRow(name, value_text, "ok")
        return CheckRow(
            name, value_text, "risk" if self.level >= PROFILES.index(since) else "note", why, **mend
        )


def level_of(profile: str) -> int:
    """Return the position of a profile in `PROFILES`.

    Raises:
        UsageError: the profile does not exist.
    """
    if profile not in PROFILES:
        msg = f"no profile is called {profile!r}; there are {', '.join(PROFILES)}"
        raise UsageError(msg)
    return PROFILES.index(profile)


def version(text: str) -> tuple[int, int]:
    """Return (major, minor) of a version, (0, 0) if the text is not a version."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


_UNSEEN = "; PyTorch's deterministic mode does not see it"
_KNOWN = {  # name: pattern of its libraries and modules, known problem, source
    "pointnet2_ops": (
        r"pointnet2",
        "Backward of gather, group and interpolate adds with atomicAdd, and no seed helps; some "
        "versions of farthest "
        f"point sampling start at a random point{_UNSEEN}",
        "erikwijmans/Pointnet2_PyTorch#162",
    ),
    "torch_scatter": (
        r"torch[_-]scatter",
        "On a GPU scatter adds with atomics; segment_csr of sorted indices does not",
        "pyg-team/pytorch_geometric#2788",
    ),
    "MinkowskiEngine": (
        r"minkowski",
        f"On a GPU its results differ from run to run{_UNSEEN}",
        "NVIDIA/MinkowskiEngine#504",
    ),
    "torchsparse": (
        r"torchsparse",
        f"Its convolutions add with floating-point atomics{_UNSEEN}",
        "mit-han-lab/torchsparse#65",
    ),
    "spconv": (
        r"spconv|cumm",
        f"On a GPU its convolutions differ from run to run{_UNSEEN}",
        "traveller59/spconv#584",
    ),
    "nvdiffrast": (
        r"nvdiffrast",
        f"Its gradients are added with atomics{_UNSEEN}",
        "NVlabs/nvdiffrast#168",
    ),
    "flash_attn": (
        r"flash[_-]attn",
        f"Backward adds with atomics unless it is called with deterministic=True{_UNSEEN}",
        "Dao-AILab/flash-attention#746",
    ),
    "xformers": (
        r"xformers",
        "memory_efficient_attention differs from run to run",
        "facebookresearch/xformers#624",
    ),
    "pytorch3d": (
        r"pytorch3d",
        "Backward of its rasterisers adds with atomics; new versions raise in deterministic mode, "
        "old "
        "ones do not",
        "facebookresearch/pytorch3d#1519",
    ),
}


def package_rows(facts: RiskContext) -> Iterator[CheckRow]:
    """Yield risky packages that are loaded, shadowed installs, and editable installs."""
    packages = facts.section("packages")
    loaded = [
        name
        for name, package in packages.items()
        if isinstance(package, dict) and package.get("loaded")
    ]
    modules = {path.partition("/")[0] for path in facts.section("code") if "/" in path}
    names = [*loaded, *modules, *facts.section("native")]
    for name, (pattern, reason, link) in _KNOWN.items():
        matches = [n for n in names if re.search(rf"(^|/)_?({pattern})", n, re.IGNORECASE)]
        if matches:
            yield CheckRow(
                name,
                matches[0],
                "risk" if facts.gpu and facts.level >= 1 else "note",
                f"{reason} ({link}).",
                do="Measure with datacheck repro diff A1 A2 A3, or take its deterministic variant.",
            )
    for name, package in packages.items():
        if isinstance(package, dict) and package.get("shadowed") and name in loaded:
            yield CheckRow(
                name,
                f"{package['version']} hides {', '.join(package['shadowed'])}",
                "risk",
                "It is installed more than once; which one is imported hangs on the order of "
                "sys.path.",
                do=f"Uninstall {name} until it is gone, then install it once.",
            )
    editable = [
        n
        for n, package in packages.items()
        if n != "datacheck" and isinstance(package, dict) and package.get("editable")
    ]
    if editable:
        yield CheckRow(
            "editable installs",
            ", ".join(editable),
            "note",
            "Their version says nothing; their code is captured.",
        )


def library_rows(facts: RiskContext) -> Iterator[CheckRow]:
    """Yield libraries that differ from their package, or that no package owns."""
    for name, library in facts.section("native").items():
        if library.get("intact") is False:
            yield CheckRow(
                name,
                f"not what {library['owner']} installed",
                "risk",
                "Its digest is not the one in RECORD: it was built again or replaced.",
                do=f"Reinstall {library['owner']}.",
            )
        elif "missing" in library:
            yield CheckRow(
                name,
                library["missing"],
                "risk",
                "What runs is not what lies on the disk.",
                do="Start the run again.",
            )
    for name, library in unowned(facts.section("native")).items():
        if "missing" not in library:
            yield CheckRow(
                name,
                f"built here, {str(library['digest'])[:12]}",
                "note",
                "No package says what it should be; compare the digest with that of the other run.",
            )


# ------------------------------------------------------------------------------------ probe results


def loader_rows(facts: RiskContext) -> Iterator[CheckRow]:
    """Yield settings of loaders, and results of their workers' probes."""
    for number, settings in enumerate(facts.seen.get("loaders", ())):
        name = f"loader {number + 1}"
        value = f"{settings['dataset']}, {settings['workers']} workers"
        if settings["shuffles"] and not settings["generator"]:
            yield facts.row(
                name,
                f"{value}, no generator",
                bad=True,
                since="strict",
                why="Its order is drawn from the global generator, so it changes with every other "
                "number that is drawn "
                "before: another layer, another evaluation.",
                do="Give it one: DataLoader(..., generator=torch.Generator().manual_seed(0)).",
            )
        yield from _probe_rows(facts, name, value, settings.get("probe", {}))


def _probe_rows(
    facts: RiskContext, name: str, value: str, probe: Mapping[str, Any]
) -> Iterator[CheckRow]:
    if "missing" in probe:
        yield CheckRow(
            name, value, "unknown", f"Its workers could not be asked: {probe['missing']}."
        )
        return
    if probe.get("same_seeds"):
        yield CheckRow(
            name,
            f"two workers have the same seed of {', '.join(probe['same_seeds'])}",
            "risk",
            "They draw the same numbers: augmentations are repeated.",
            do="Seed from torch.initial_seed() in worker_init_fn, or give none.",
        )
    if "by_workers" in probe:
        yield _worker_row(facts, name, probe)
    if "epoch" in probe:
        process_epoch, worker_epoch = probe["epoch"]
        yield facts.row(
            f"epoch of {name}",
            f"{process_epoch} here, {worker_epoch} in workers",
            process_epoch != worker_epoch,
            "fast",
            "Persistent workers hold a copy of the dataset: set_epoch does not reach them, and "
            "each epoch has the "
            "augmentations of the first.",
            do="persistent_workers=False, or indices that carry their epoch.",
        )


def _worker_row(facts: RiskContext, name: str, probe: Mapping[str, Any]) -> CheckRow:
    differing_count = probe["by_workers"]
    opaque = probe.get("opaque", [])
    value = f"{differing_count} of {probe['asked']} samples differ between 1 and 2 workers"
    if opaque and not differing_count:
        return CheckRow(
            name,
            value,
            "unknown",
            f"Of values of type {', '.join(opaque)} nothing but the type is compared.",
        )
    return facts.row(
        name,
        value,
        differing_count > 0,
        "same-machine",
        f"Transforms draw from a global generator "
        f"({', '.join(probe.get('drew', [])) or 'of a library'}), of which "
        "each worker has its own: another number of workers is another training set.",
        do="Key each sample's numbers by (seed, epoch, index), as CachedDataset does.",
    )


_SUMS = "sum of 3 million numbers"


def kernel_rows(facts: RiskContext) -> Iterator[CheckRow]:
    """Yield the results of computing the same thing three times."""
    if "died" in facts.seen:
        yield CheckRow(
            "probes",
            f"ended with {facts.seen['died']}",
            "unknown",
            "The process died of them (a kernel crashed, memory was short): what they would show "
            "is not known.",
        )
    for name, result in facts.seen.get("kernels", {}).items():
        if "missing" in result:
            yield CheckRow(name, result["missing"], "unknown", "It could not be computed.")
        elif name.startswith(_SUMS):
            yield facts.row(
                name,
                f"{result['results']} results with 1 and {result['threads']} threads",
                result["results"] > 1,
                "strict",
                "Seen here: another number of threads is another sum.",
                shell=f"export OMP_NUM_THREADS={result['threads']}",
            )
        else:
            value = (
                "refused: it would differ"
                if "refused" in result
                else f"{result['results']} results in 3"
            )
            yield facts.row(
                name,
                value,
                result["results"] > 1,
                "same-machine",
                "Seen here: the same input gave other bits.",
                python=DETERMINISTIC,
            )


_REPEATS = 3
_SUM = 3_000_000
_PROBED_SAMPLES = 4  # samples
_PROBE_TIMEOUT = 60.0  # seconds for a batch of a probed loader


# ------------------------------------------------------------------------------------------ kernels


def kernels(*, batch: int = 32) -> dict[str, Any]:
    """Run some computations three times each and count the different results.

    Args:
        batch: batch size on a GPU: some kernels are deterministic only at small sizes.

    Returns:
        By name: results (how many different ones), threads if the number of threads was varied; or
        missing: why it failed.

    Notes:
        Uses the current switches. Draws from no global generator. On a GPU that PyTorch can use:
        convolution, scatter and attention, forward and backward. On the CPU: index_put and a sum
        with one and with all threads.
    """
    import torch  # noqa: PLC0415  datacheck.repro itself must not load PyTorch

    results = {}
    if torch.cuda.is_available():
        results = {
            f"{name} on the GPU": result
            for name, result in device_results(torch, "cuda", batch).items()
        }
    results["index_put(accumulate=True) on the CPU"] = _count_results(lambda: _index_put(torch))
    return results | {f"sum of {_SUM // 1_000_000} million numbers": _sum_results(torch)}


def device_results(torch: Any, device: str, batch: int) -> dict[str, Any]:
    """Run the computations three times each on one device, forward and backward."""
    computations = {"convolution": _convolution, "scatter_add": _scatter, "attention": _attention}
    return {
        name: _count_results(partial(make, torch, device, batch))
        for name, make in computations.items()
    }


def _count_results(make: Callable[[], Any]) -> dict[str, Any]:
    """Return the number of different results, or the refusal of an operation.

    An operation raises if deterministic algorithms are required and it has none.
    """
    results = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warn_only warns; only the results count here
        for _ in range(_REPEATS):
            try:
                results.add(
                    digest_value([digest_array(part.detach().cpu().numpy()) for part in make()])
                )
            except RuntimeError as error:
                message = str(error).partition("\n")[0]
                if "deterministic" in message:
                    return {"results": 0, "refused": message}
                return {"missing": message}
    return {"results": len(results)}


def _random_numbers(torch: Any, *shape: int, device: str = "cpu") -> Any:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).to(device)


def _convolution(torch: Any, device: str, batch: int) -> tuple[Any, ...]:
    image = _random_numbers(torch, batch, 64, 56, 56, device=device).requires_grad_()
    weight = _random_numbers(torch, 64, 64, 3, 3, device=device).requires_grad_()
    output = torch.nn.functional.conv2d(image, weight, padding=1)
    return (output, *torch.autograd.grad(output.pow(2).sum(), (image, weight)))


def _scatter(torch: Any, device: str, batch: int) -> tuple[Any, ...]:
    rows = batch * 4096
    values = _random_numbers(torch, rows, 16, device=device)
    places = (
        torch.randint(0, 512, (rows, 1), generator=torch.Generator().manual_seed(1))
        .to(device)
        .expand(-1, 16)
    )
    table = torch.zeros(512, 16, device=device).requires_grad_()
    output = table.scatter_add(0, places, values)
    # gather adds in its backward pass
    return (output, *torch.autograd.grad(output.gather(0, places).pow(2).sum(), (table,)))


def _attention(torch: Any, device: str, batch: int) -> tuple[Any, ...]:
    parts = [
        _random_numbers(torch, batch, 8, 1024, 64, device=device).bfloat16().requires_grad_()
        for _ in range(3)
    ]
    output = torch.nn.functional.scaled_dot_product_attention(*parts)
    return tuple(
        part.float() for part in (output, *torch.autograd.grad(output.float().pow(2).sum(), parts))
    )


def _index_put(torch: Any) -> tuple[Any, ...]:
    values = _random_numbers(torch, 400_000)
    places = torch.randint(0, 300, (len(values),), generator=torch.Generator().manual_seed(1))
    return (torch.zeros(300).index_put((places,), values, accumulate=True),)


def _sum_results(torch: Any) -> dict[str, Any]:
    threads = torch.get_num_threads()
    values = _random_numbers(torch, _SUM)
    sums = set()
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            sums.add(float(values.sum()))
    finally:
        torch.set_num_threads(threads)
    return {"results": len(sums), "threads": threads}


# ------------------------------------------------------------------------------------------ loaders


class ProbedDataset:
    """A dataset in a worker of a probed loader; returns digests, random states and the epoch."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return digest, opaque (types compared by name only), drew, worker, seeds and epoch."""
        import torch  # noqa: PLC0415  the worker has loaded it

        before = _rng_digests()
        digest, _ = digest_batch(self.dataset[index])
        drew = [name for name, state in _rng_digests().items() if state != before.get(name, state)]
        worker = torch.utils.data.get_worker_info()
        return {
            "digest": digest.text(),
            "opaque": sorted(digest.opaque),
            "drew": drew,
            "worker": -1 if worker is None else worker.id,
            "seeds": before,
            "epoch": epoch_of(self.dataset),
        }


def _rng_digests() -> dict[str, str]:
    return {name: generator["digest"] for name, generator in rng().items()}


def probe_loader(loader: Any) -> dict[str, Any]:
    """Compare samples, seeds and epoch between one worker and two workers of a loader.

    Returns:
        asked (number of samples), by_workers (how many of them differ between one worker and two),
        opaque (types of values that are compared by type only), drew (global generators that the
        samples used), same_seeds (generators with equal states in both workers), epoch ([in this
        process, in the workers] after `set_epoch`); or missing: why the probe failed.

    Notes:
        The loader itself is not iterated; the probe uses its own loaders over the same dataset,
        with the same worker_init_fn, start method and persistent_workers. An iterable dataset is
        not probed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of more workers than CPUs
            return _probe_workers(loader)
    except Exception as error:  # noqa: BLE001  a user's dataset may raise anything
        # PyTorch puts a worker's traceback before the message.
        message = str(error).strip().rpartition("\n")[2]
        return {
            "missing": message
            if message.startswith(type(error).__name__)
            else f"{type(error).__name__}: {message}"
        }


def _probe_workers(loader: Any) -> dict[str, Any]:
    dataset = loader.dataset
    items = list(range(min(_PROBED_SAMPLES, len(dataset))))
    if not hasattr(type(dataset), "__getitem__") or not items:
        return {"missing": "the dataset has no indices"}
    single_answers, double_answers = (
        list(_probe_dataloader(loader, items, count)) for count in (1, 2)
    )
    result: dict[str, Any] = {
        "asked": len(items),
        "by_workers": sum(
            a["digest"] != b["digest"] for a, b in zip(single_answers, double_answers, strict=True)
        ),
        "opaque": sorted(
            {kind for answer in [*single_answers, *double_answers] for kind in answer["opaque"]}
        ),
        "drew": sorted({name for answer in double_answers for name in answer["drew"]}),
        "same_seeds": _same_seeds(double_answers),
    }
    return result | _probe_epoch(loader, items)


def _probe_dataloader(loader: Any, items: list[int], workers: int) -> Any:
    import torch  # noqa: PLC0415  datacheck.repro itself must not load PyTorch

    return torch.utils.data.DataLoader(
        ProbedDataset(loader.dataset),
        batch_size=None,
        sampler=items,
        num_workers=workers,
        collate_fn=_identity,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        persistent_workers=loader.persistent_workers and loader.num_workers > 0,
        timeout=_PROBE_TIMEOUT,
        generator=torch.Generator().manual_seed(0),
    )


def _identity(value: Any) -> Any:
    return value


def _same_seeds(answers: list[dict[str, Any]]) -> list[str]:
    seeds_by_worker = {answer["worker"]: answer["seeds"] for answer in reversed(answers)}
    if len(seeds_by_worker) < 2:
        return []
    a = seeds_by_worker[0]
    b = seeds_by_worker[1]
    return [name for name in a if a[name] == b[name]]


def _probe_epoch(loader: Any, items: list[int]) -> dict[str, Any]:
    """Return the epoch here and in workers after `set_epoch`, if the dataset has one."""
    dataset = _epoch_owner(loader.dataset)
    before = epoch_of(loader.dataset)
    if before is None or not callable(getattr(dataset, "set_epoch", None)):
        return {}
    worker_loader = _probe_dataloader(loader, items, 2)
    list(worker_loader)
    try:
        dataset.set_epoch(before + 1)
        worker_epochs = sorted({answer["epoch"] for answer in worker_loader})
        return {
            "epoch": [
                epoch_of(dataset),
                worker_epochs[0] if len(worker_epochs) == 1 else worker_epochs,
            ]
        }
    finally:
        dataset.set_epoch(before)


def _epoch_owner(dataset: Any) -> Any:
    """Return the dataset that has the epoch: this one, or the one inside (of a `Subset`)."""
    for _ in range(4):
        if callable(getattr(dataset, "set_epoch", None)) or not hasattr(dataset, "dataset"):
            break
        dataset = dataset.dataset
    return dataset


def epoch_of(dataset: Any) -> int | None:
    """Return the current epoch of a dataset, None if it has none."""
    for name in ("epoch", "_epoch", "current_epoch"):
        value = getattr(_epoch_owner(dataset), name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def loader_settings(loader: Any) -> dict[str, Any]:
    """Return the settings of a `DataLoader`."""
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    return {
        "dataset": type(loader.dataset).__name__,
        "workers": loader.num_workers,
        "shuffles": type(sampler).__name__
        in {"RandomSampler", "WeightedRandomSampler", "SubsetRandomSampler"},
        "generator": loader.generator is not None
        or getattr(sampler, "generator", None) is not None,
        "worker_init_fn": loader.worker_init_fn is not None,
        "persistent_workers": bool(loader.persistent_workers),
    }


def pin(profile: str = "same-machine", *, seed: int | None = None) -> list[str]:
    """Set the switches that a profile requires; return one sentence for each.

    Args:
        profile: "fast", "same-machine" or "strict", as in `datacheck.repro.risks.judge`.
        seed: seeds the global generators of random, NumPy and PyTorch, 0 to 2**32 - 1; None leaves
            them unchanged.

    Raises:
        UsageError: the profile does not exist, or the seed is out of range.

    Notes:
        Call it before the model is made and before CUDA starts. PyTorch's switches are set only if
        it is loaded. Environment variables are set for processes started from here; the returned
        sentences name variables that this process would have needed before it started.
    """
    level = level_of(profile)
    if seed is not None and not (isinstance(seed, int) and 0 <= seed < 1 << 32):
        msg = f"seed is {seed!r}; it is a whole number from 0 to 2**32 - 1"
        raise UsageError(msg)
    torch = sys.modules.get("torch")
    sentences = [*_set_variables(level, torch)]
    if torch is None:
        sentences.append(
            "PyTorch is not loaded: none of its switches was set; import it, then pin again."
        )
    else:
        sentences += _set_switches(level, torch)
    sentences += _seed_generators(seed, torch)
    return sentences


def _set_variables(level: int, torch: Any) -> Iterator[str]:
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        os.environ["PYTHONHASHSEED"] = "0"
        remark = (
            "this one keeps its own: set it before Python starts"
            if sys.flags.hash_randomization
            else "as here"
        )
        yield f"PYTHONHASHSEED=0 for processes started from here; {remark}."
    cuda = getattr(getattr(torch, "version", None), "cuda", None)
    if (
        level
        and cuda
        and version(torch.__version__) < (2, 10)
        and os.environ.get(WORKSPACE) not in WORKSPACES
    ):
        os.environ[WORKSPACE] = WORKSPACES[0]
        late_warning = (
            " CUDA has started already: too late for this process."
            if torch.cuda.is_initialized()
            else ""
        )
        yield f"{WORKSPACE}={WORKSPACES[0]}, which PyTorch before 2.10 asks for.{late_warning}"


def _set_switches(level: int, torch: Any) -> Iterator[str]:
    if level >= PROFILES.index("same-machine"):
        torch.use_deterministic_algorithms(mode=True)
        yield DETERMINISTIC
        torch.backends.cudnn.benchmark = False
        yield NO_BENCHMARK
    if level >= PROFILES.index("strict"):
        torch.utils.deterministic.fill_uninitialized_memory = True
        yield FILLED
        yield from _disable_tf32(torch)
        threads = torch.get_num_threads()
        torch.set_num_threads(threads)
        for name in THREADS:
            os.environ[name] = str(threads)
        yield (
            f"torch.set_num_threads({threads}), and OMP_NUM_THREADS={threads} for processes "
            f"started from here"
        )


def _disable_tf32(torch: Any) -> Iterator[str]:
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield NO_TF32
    matmul = torch.backends.cuda.matmul
    for name in REDUCED:
        if hasattr(matmul, name):
            setattr(matmul, name, False)
            yield f"torch.backends.cuda.matmul.{name} = False"


def _seed_generators(seed: int | None, torch: Any) -> Iterator[str]:
    if seed is None:
        yield "Generators were not seeded: give seed=."
        return
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  user code draws from the global generator
    if torch is not None:
        torch.manual_seed(seed)  # seeds all GPUs, too
    yield f"random, NumPy{' and PyTorch' if torch is not None else ''} are seeded with {seed}."
