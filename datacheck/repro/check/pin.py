"""Set what a profile asks for: in this process what can be set, and say what has to be there before it starts."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.repro.check.facts import (
    DETERMINISTIC,
    FILLED,
    NO_BENCHMARK,
    NO_TF32,
    PROFILES,
    REDUCED,
    THREADS,
    WORKSPACE,
    WORKSPACES,
    level_of,
    version,
)


def pin(profile: str = "same-machine", *, seed: int | None = None) -> list[str]:
    """Set the switches that a profile asks for, and return what was set, one sentence each.

    Args:
        profile: "fast", "same-machine" or "strict", as in `datacheck.repro.risks.judge`.
        seed: seeds the global generators of random, NumPy and PyTorch; None: they are left as they are. 0 to 2**32 - 1.

    Raises:
        UsageError: there is no such profile, or the seed is none.

    Notes:
        Call it before the model is made and before CUDA starts. PyTorch's switches are set where it is loaded.
        Variables are set for the processes that are started from here; what this process itself would have needed
        before it started is said.
    """
    level = level_of(profile)
    if seed is not None and not (isinstance(seed, int) and 0 <= seed < 1 << 32):
        msg = f"seed is {seed!r}; it is a whole number from 0 to 2**32 - 1"
        raise UsageError(msg)
    torch = sys.modules.get("torch")
    said = [*_variables(level, torch)]
    if torch is None:
        said.append("PyTorch is not loaded: none of its switches was set; import it, then pin again.")
    else:
        said += _switches(level, torch)
    said += _seeds(seed, torch)
    return said


def _variables(level: int, torch: Any) -> Iterator[str]:
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        os.environ["PYTHONHASHSEED"] = "0"
        now = "this one keeps its own: set it before Python starts" if sys.flags.hash_randomization else "as here"
        yield f"PYTHONHASHSEED=0 for processes started from here; {now}."
    cuda = getattr(getattr(torch, "version", None), "cuda", None)
    if level and cuda and version(torch.__version__) < (2, 10) and os.environ.get(WORKSPACE) not in WORKSPACES:
        os.environ[WORKSPACE] = WORKSPACES[0]
        late = " CUDA has started already: too late for this process." if torch.cuda.is_initialized() else ""
        yield f"{WORKSPACE}={WORKSPACES[0]}, which PyTorch before 2.10 asks for.{late}"


def _switches(level: int, torch: Any) -> Iterator[str]:
    if level >= PROFILES.index("same-machine"):
        torch.use_deterministic_algorithms(mode=True)
        yield DETERMINISTIC
        torch.backends.cudnn.benchmark = False
        yield NO_BENCHMARK
    if level >= PROFILES.index("strict"):
        torch.utils.deterministic.fill_uninitialized_memory = True
        yield FILLED
        yield from _precise(torch)
        threads = torch.get_num_threads()
        torch.set_num_threads(threads)
        for name in THREADS:
            os.environ[name] = str(threads)
        yield f"torch.set_num_threads({threads}), and OMP_NUM_THREADS={threads} for processes started from here"


def _precise(torch: Any) -> Iterator[str]:
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield NO_TF32
    matmul = torch.backends.cuda.matmul
    for name in REDUCED:
        if hasattr(matmul, name):
            setattr(matmul, name, False)
            yield f"torch.backends.cuda.matmul.{name} = False"


def _seeds(seed: int | None, torch: Any) -> Iterator[str]:
    if seed is None:
        yield "Generators were not seeded: give seed=."
        return
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the global one is what user code draws from
    if torch is not None:
        torch.manual_seed(seed)  # of all GPUs, too
    yield f"random, NumPy{' and PyTorch' if torch is not None else ''} are seeded with {seed}."
