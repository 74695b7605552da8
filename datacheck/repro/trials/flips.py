"""Switches that can be turned from outside of a script: how each is read, what it is turned to, how it is set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_GPU = "no GPU that PyTorch can use is here"
_SOME_WORKERS = 2


@dataclass(frozen=True)
class Flip:
    """A switch of PyTorch.

    Args:
        name: as it is said.
        read: returns its value now, given the module torch.
        write: sets it.
        turn: returns the value that is tried, given the one it has.
        gpu: it does nothing without CUDA.
    """

    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    turn: Callable[[Any], Any]
    gpu: bool = False


def _attribute(name: str, path: str) -> Flip:
    *above, last = path.split(".")

    def holder(torch: Any) -> Any:
        for part in above:
            torch = getattr(torch, part)
        return torch

    return Flip(
        name, lambda torch: getattr(holder(torch), last), lambda torch, value: setattr(holder(torch), last, value),
        lambda value: not value, gpu=True,
    )  # fmt: skip


def _read_attention(torch: Any) -> str:
    cuda = torch.backends.cuda
    return "fast kernels" if cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled() else "math"


def _write_attention(torch: Any, value: str) -> None:
    fast = value != "math"
    torch.backends.cuda.enable_flash_sdp(fast)
    torch.backends.cuda.enable_mem_efficient_sdp(fast)
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(fast)
    torch.backends.cuda.enable_math_sdp(True)  # noqa: FBT003  PyTorch's


FLIPS = {
    flip.name: flip
    for flip in (
        _attribute("cudnn.benchmark", "backends.cudnn.benchmark"),
        _attribute("cudnn.allow_tf32", "backends.cudnn.allow_tf32"),
        _attribute("matmul.allow_tf32", "backends.cuda.matmul.allow_tf32"),
        Flip(
            "deterministic", lambda torch: torch.are_deterministic_algorithms_enabled(),
            lambda torch, value: torch.use_deterministic_algorithms(value, warn_only=value), lambda value: not value,
        ),
        Flip(
            "attention", _read_attention, _write_attention,
            lambda value: "math" if value != "math" else "fast kernels",
        ),
        Flip(
            "threads", lambda torch: torch.get_num_threads(), lambda torch, value: torch.set_num_threads(value),
            lambda value: 1 if value > 1 else 2,
        ),
    )
}  # fmt: skip
WORKERS = "workers"
CACHE = "cache"  # words of the command line
NAMES = (*FLIPS, WORKERS, CACHE)


def values(torch: Any) -> dict[str, Any]:
    """Return what each switch is now; {"missing": "why"} of one that cannot be turned here."""
    found: dict[str, Any] = {}
    for flip in FLIPS.values():
        if flip.gpu and not torch.cuda.is_available():
            found[flip.name] = {"missing": _GPU}
            continue
        try:
            found[flip.name] = flip.read(torch)
        except (AttributeError, RuntimeError) as error:  # an old PyTorch; two ways to say TF32 that were mixed
            found[flip.name] = {"missing": str(error).partition("\n")[0]}
    return found


def turned(name: str, value: Any) -> Any:
    """Return the value that is tried of a switch that has this one."""
    if name == WORKERS:
        return 0 if any(value) else _SOME_WORKERS
    return FLIPS[name].turn(value)


def apply(torch: Any, name: str, value: Any) -> None:
    """Set a switch of `FLIPS`, where it is not so yet: scripts and trainers set their own."""
    if FLIPS[name].read(torch) != value:
        FLIPS[name].write(torch, value)


def with_workers(options: dict[str, Any], count: int) -> None:
    """Change the arguments of a DataLoader to another number of workers, with what else has to change."""
    options["num_workers"] = count
    if not count:
        for name in ("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"):
            options.pop(name, None)
