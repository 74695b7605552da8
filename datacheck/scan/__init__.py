"""Find the broken samples of a dataset: `scan`.

Each name is imported on first use: the processes that measure do not need the modules that start
and finish a scan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datacheck.model.finding import Progress
    from datacheck.scan.run import run_scan
    from datacheck.scan.scan_run import FailOn, Request, ScanRun
    from datacheck.scan.start import paths_of, scan, scan_loader, schema_for

__all__ = [
    "FailOn",
    "Progress",
    "Request",
    "ScanRun",
    "paths_of",
    "run_scan",
    "scan",
    "scan_loader",
    "schema_for",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from datacheck.scan import start  # noqa: PLC0415  on first use, see the module's docstring

        return getattr(start, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
