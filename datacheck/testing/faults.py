"""Named corruptions of clean datasets, each with the code that must report it.

The codes come from the published catalogue of rules, never from a rule's implementation: a planted
fault that a scan does not find is a defect of the scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from datacheck.errors import UsageError
from datacheck.testing import demonstrations, ho3d, lerobot, minimind, scannet, sceneleap
from datacheck.testing.draw import generator
from datacheck.testing.fault import Fault, Planted, Site

__all__ = ["FAULTS", "Fault", "Planted", "batches_of", "faults_of", "plant"]

FAULTS: tuple[Fault, ...] = (
    *sceneleap.FAULTS,
    *ho3d.FAULTS,
    *scannet.FAULTS,
    *demonstrations.FAULTS,
    *minimind.FAULTS,
    *lerobot.FAULTS,
)


def faults_of(system: str, *, later: bool = False, batch: int = 0) -> list[Fault]:
    """Return a batch of a system's faults: those to plant first, or with `later` those after a scan."""
    return [
        fault
        for fault in FAULTS
        if (fault.system, fault.later, fault.batch) == (system, later, batch)
    ]


def batches_of(system: str) -> list[int]:
    """Return the batches of a system's faults."""
    return sorted({fault.batch for fault in FAULTS if fault.system == system})


def plant(
    system: str,
    folder: Path,
    names: Sequence[str] | None = None,
    *,
    seed: int = 0,
    spare: Iterable[str] = (),
) -> list[Planted]:
    """Break a clean dataset in named ways, no sample twice.

    Args:
        system: the system whose layout the folder has.
        folder: the dataset; changed in place.
        names: the faults to plant, in this order; by default those of the first
            batch that need no earlier scan.
        seed: decides which samples are hit.
        spare: keys to leave alone.

    Raises:
        UsageError: no fault has this name, or the dataset has too few samples.
    """
    faults = {fault.name: fault for fault in FAULTS if fault.system == system}
    if unknown := sorted(set(names or ()) - set(faults)):
        msg = f"{system} has no fault {unknown[0]!r}; known are {', '.join(faults)}"
        raise UsageError(msg)
    chosen = faults_of(system) if names is None else [faults[name] for name in names]
    site = Site(folder, generator(seed, "faults", system), set(spare))
    return [planted for fault in chosen for planted in fault.plant(site)]
