"""Names of what lies on a disk, without the folders that another machine calls something else."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path


def free_name(path: str, taken: Container[str], name: str | None = None) -> str:
    """Return the name of a file that is not taken: its own, else with as many folders before it as tell it apart.

    Args:
        path: the file, without links; one that is named already gets a number behind it.
        taken: names that others have.
        name: its own name; None: the last part of the path.
    """
    parts = Path(path).parts
    names = [name or parts[-1], *("/".join(parts[-count:]) for count in range(2, len(parts) + 1))]
    free = next((one for one in names if one not in taken), None)
    number = 2
    while free is None:
        free = f"{names[-1]} ({number})" if f"{names[-1]} ({number})" not in taken else None
        number += 1
    return free
