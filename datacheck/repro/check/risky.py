"""Packages that are known to differ from run to run, libraries that are not what they should be, what probes show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from datacheck.repro.check.facts import DETERMINISTIC, Facts, Row
from datacheck.repro.environment.native import unowned

_UNSEEN = "; PyTorch's deterministic mode does not see it"
_KNOWN = {  # name: how its libraries and modules are called, what is known, where
    "pointnet2_ops": (
        r"pointnet2",
        "Backward of gather, group and interpolate adds with atomicAdd, and no seed helps; some versions of farthest "
        f"point sampling start at a random point{_UNSEEN}",
        "erikwijmans/Pointnet2_PyTorch#162",
    ),
    "torch_scatter": (
        r"torch[_-]scatter",
        "On a GPU scatter adds with atomics; segment_csr of sorted indices does not",
        "pyg-team/pytorch_geometric#2788",
    ),
    "MinkowskiEngine": (
        r"minkowski", f"On a GPU its results differ from run to run{_UNSEEN}", "NVIDIA/MinkowskiEngine#504",
    ),
    "torchsparse": (
        r"torchsparse", f"Its convolutions add with floating-point atomics{_UNSEEN}", "mit-han-lab/torchsparse#65",
    ),
    "spconv": (
        r"spconv|cumm", f"On a GPU its convolutions differ from run to run{_UNSEEN}", "traveller59/spconv#584",
    ),
    "nvdiffrast": (r"nvdiffrast", f"Its gradients are added with atomics{_UNSEEN}", "NVlabs/nvdiffrast#168"),
    "flash_attn": (
        r"flash[_-]attn", f"Backward adds with atomics unless it is called with deterministic=True{_UNSEEN}",
        "Dao-AILab/flash-attention#746",
    ),
    "xformers": (
        r"xformers", "memory_efficient_attention differs from run to run", "facebookresearch/xformers#624",
    ),
    "pytorch3d": (
        r"pytorch3d", "Backward of its rasterisers adds with atomics; new versions raise in deterministic mode, old "
        "ones do not", "facebookresearch/pytorch3d#1519",
    ),
}  # fmt: skip


def package_rows(facts: Facts) -> Iterator[Row]:
    """Yield risky packages that are loaded, installs that hide one another, editable ones."""
    packages = facts.section("packages")
    loaded = [name for name, said in packages.items() if isinstance(said, dict) and said.get("loaded")]
    modules = {path.partition("/")[0] for path in facts.section("code") if "/" in path}
    names = [*loaded, *modules, *facts.section("native")]
    for name, (pattern, known, link) in _KNOWN.items():
        found = [n for n in names if re.search(rf"(^|/)_?({pattern})", n, re.IGNORECASE)]
        if found:
            yield Row(
                name, found[0], "risk" if facts.gpu and facts.level >= 1 else "note",
                f"{known} ({link}).",
                do="Measure with datacheck repro diff A1 A2 A3, or take its deterministic variant.",
            )  # fmt: skip
    for name, said in packages.items():
        if isinstance(said, dict) and said.get("shadowed") and name in loaded:
            yield Row(
                name, f"{said['version']} hides {', '.join(said['shadowed'])}", "risk",
                "It is installed more than once; which one is imported hangs on the order of sys.path.",
                do=f"Uninstall {name} until it is gone, then install it once.",
            )  # fmt: skip
    editable = [
        n for n, said in packages.items() if n != "datacheck" and isinstance(said, dict) and said.get("editable")
    ]
    if editable:
        yield Row(
            "editable installs", ", ".join(editable), "note", "Their version says nothing; their code is captured."
        )


def library_rows(facts: Facts) -> Iterator[Row]:
    """Yield libraries that are not what was installed, or that nobody installed."""
    for name, said in facts.section("native").items():
        if said.get("intact") is False:
            yield Row(
                name, f"not what {said['owner']} installed", "risk",
                "Its digest is not the one in RECORD: it was built again or replaced.",
                do=f"Reinstall {said['owner']}.",
            )  # fmt: skip
        elif "missing" in said:
            yield Row(
                name, said["missing"], "risk", "What runs is not what lies on the disk.", do="Start the run again."
            )
    for name, said in unowned(facts.section("native")).items():
        if "missing" not in said:
            yield Row(
                name, f"built here, {str(said['digest'])[:12]}", "note",
                "No package says what it should be; compare the digest with that of the other run.",
            )  # fmt: skip


# ------------------------------------------------------------------------------------------ what probes have shown


def loader_rows(facts: Facts) -> Iterator[Row]:
    """Yield what loaders are, and what their workers have answered."""
    for number, said in enumerate(facts.seen.get("loaders", ())):
        name = f"loader {number + 1}"
        value = f"{said['dataset']}, {said['workers']} workers"
        if said["shuffles"] and not said["generator"]:
            yield facts.row(
                name, f"{value}, no generator", bad=True, since="strict",
                why="Its order is drawn from the global generator, so it changes with every other number that is drawn "
                "before: another layer, another evaluation.",
                do="Give it one: DataLoader(..., generator=torch.Generator().manual_seed(0)).",
            )  # fmt: skip
        yield from _answers(facts, name, value, said.get("probe", {}))


def _answers(facts: Facts, name: str, value: str, probe: Mapping[str, Any]) -> Iterator[Row]:
    if "missing" in probe:
        yield Row(name, value, "unknown", f"Its workers could not be asked: {probe['missing']}.")
        return
    if probe.get("same_seeds"):
        yield Row(
            name, f"two workers have the same seed of {', '.join(probe['same_seeds'])}", "risk",
            "They draw the same numbers: augmentations are repeated.",
            do="Seed from torch.initial_seed() in worker_init_fn, or give none.",
        )  # fmt: skip
    if "by_workers" in probe:
        yield _by_workers(facts, name, probe)
    if "epoch" in probe:
        here, there = probe["epoch"]
        yield facts.row(
            f"epoch of {name}", f"{here} here, {there} in workers", here != there, "fast",
            "Persistent workers hold a copy of the dataset: set_epoch does not reach them, and each epoch has the "
            "augmentations of the first.", do="persistent_workers=False, or indices that carry their epoch.",
        )  # fmt: skip


def _by_workers(facts: Facts, name: str, probe: Mapping[str, Any]) -> Row:
    differs, opaque = probe["by_workers"], probe.get("opaque", [])
    value = f"{differs} of {probe['asked']} samples differ between 1 and 2 workers"
    if opaque and not differs:
        return Row(name, value, "unknown", f"Of values of type {', '.join(opaque)} nothing but the type is compared.")
    return facts.row(
        name, value, differs > 0, "same-machine",
        f"Transforms draw from a global generator ({', '.join(probe.get('drew', [])) or 'of a library'}), of which "
        "each worker has its own: another number of workers is another training set.",
        do="Key each sample's numbers by (seed, epoch, index), as CachedDataset does.",
    )  # fmt: skip


_SUMS = "sum of 3 million numbers"


def kernel_rows(facts: Facts) -> Iterator[Row]:
    """Yield what came of the same computation three times."""
    if "died" in facts.seen:
        yield Row(
            "probes", f"ended with {facts.seen['died']}", "unknown",
            "The process died of them (a kernel crashed, memory was short): what they would show is not known.",
        )  # fmt: skip
    for name, said in facts.seen.get("kernels", {}).items():
        if "missing" in said:
            yield Row(name, said["missing"], "unknown", "It could not be computed.")
        elif name.startswith(_SUMS):
            yield facts.row(
                name, f"{said['results']} results with 1 and {said['threads']} threads", said["results"] > 1, "strict",
                "Seen here: another number of threads is another sum.",
                shell=f"export OMP_NUM_THREADS={said['threads']}",
            )  # fmt: skip
        else:
            value = "refused: it would differ" if "refused" in said else f"{said['results']} results in 3"
            yield facts.row(
                name, value, said["results"] > 1, "same-machine",
                "Seen here: the same input gave other bits.", python=DETERMINISTIC,
            )  # fmt: skip
