"""Clean datasets of the supported systems, in their real on-disk layouts, of any size.

`write` needs only a seed and gives the same bytes every time; a sample does not depend on how many
others there are. `size="demo"` is a few dozen samples, `size="real"` the published size of the
dataset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from datacheck.errors import UsageError
from datacheck.testing import demonstrations, ho3d, lerobot, minimind, scannet, sceneleap
from datacheck.testing.demonstrations import AlohaSize, LiberoSize, RobomimicSize

_WRITERS: dict[str, tuple[Callable[..., None], Any, Any]] = {  # writer, demo size, real size
    "sceneleap": (sceneleap.write, sceneleap.SceneleapSize(), sceneleap.REAL),
    "ho3d": (ho3d.write, ho3d.Ho3dSize(), ho3d.REAL),
    "scannetpp": (scannet.write, scannet.ScannetSize(), scannet.REAL),
    "libero": (demonstrations.write_libero, LiberoSize(), demonstrations.LIBERO_REAL),
    "minimind": (minimind.write, minimind.MinimindSize(), minimind.REAL),
    "scannet": (partial(scannet.write, variant="scannet"), scannet.ScannetSize(), scannet.REAL),
    "scannet_raw": (scannet.write_raw, scannet.ScannetSize(), scannet.REAL),
    "robomimic": (demonstrations.write_robomimic, RobomimicSize(), demonstrations.ROBOMIMIC_REAL),
    "aloha": (demonstrations.write_aloha, AlohaSize(), demonstrations.ALOHA_REAL),
    "lerobot": (lerobot.write, lerobot.LerobotSize(), lerobot.REAL),
    "lerobot_v21": (lerobot.write_v21, lerobot.LerobotSize(), lerobot.REAL),
}

SYSTEMS = ("sceneleap", "ho3d", "scannetpp", "libero", "minimind")


def write(
    system: str,
    folder: Path,
    *,
    seed: int = 0,
    size: Literal["demo", "real"] = "demo",
    **parameters: Any,
) -> None:
    """Write a clean dataset of one system.

    Args:
        system: one of `SYSTEMS`, or "scannet", "scannet_raw", "robomimic", "aloha",
            "lerobot" (version 3.0), "lerobot_v21".
        folder: created if absent.
        seed: 0 or more.
        size: the set of default parameters.
        parameters: overrides, by the names in the system's size class (``train``, ``frames``,
            ...).

    Raises:
        UsageError: no such system or parameter.

    Notes:
        Deterministic: no clock, no global generator; one Philox stream per sample or sequence.
    """
    if system not in _WRITERS:
        msg = f"{system!r} is not a known system; known are {', '.join(_WRITERS)}"
        raise UsageError(msg)
    writer, demo, real = _WRITERS[system]
    start = real if size == "real" else demo
    unknown = sorted(set(parameters) - set(vars(start)))
    if unknown:
        msg = f"{system} has no size parameter {unknown[0]!r}; it has {', '.join(vars(start))}"
        raise UsageError(msg)
    writer(folder, seed, replace(start, **parameters))
