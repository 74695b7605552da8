"""Same code, another result: what a process really was, what of it is not pinned, and what differs between two.

Importing this loads neither PyTorch, Zarr, Dask, YAML nor pydantic.
"""

from __future__ import annotations

from datacheck.repro.capture import capture  # not lazily: a submodule of that name would hide the function
from datacheck.repro.pin import pin

__all__ = ["capture", "pin"]
