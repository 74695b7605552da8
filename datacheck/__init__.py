"""datacheck: find broken training samples, build a checksummed cache, feed it to PyTorch.

Importing this loads neither Zarr, Dask, YAML nor PyTorch; each name is imported when it is first
used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Imported for type checkers only: at run time, `__main__` first removes the working folder
    # from `sys.path`.
    from typing import Any

__version__ = "0.1.0"

_HOME = {
    "CachedDataset": "datacheck.torch",
    "Schema": "datacheck.schema",
    "load_schema": "datacheck.schema.load",
    "scan_dataset": "datacheck.scan:scan",  # datacheck.scan is a package
    "write_page": "datacheck.report.html",
    "log_to_mlflow": "datacheck.report.trackers",
    "log_to_wandb": "datacheck.report.trackers",
    "build_cache": "datacheck.pipeline:build",  # datacheck.build is a package
    "open_cache": "datacheck.cache",
    "verify": "datacheck.cache.verify",
    "DatacheckError": "datacheck.errors",
}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        module, _, attribute = _HOME[name].partition(":")
        return getattr(import_module(module), attribute or name)
    msg = f"module 'datacheck' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return __all__
