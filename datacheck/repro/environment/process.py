"""The process itself: how it was started, with which variables; what could be a secret is left out."""

from __future__ import annotations

import locale
import multiprocessing
import os
import platform
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

from datacheck.digest import digest_file
from datacheck.repro.environment.secret import masked, secret_variable

_KEPT = re.compile(
    r"(OMP|KMP|GOMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|NUMBA|NPY|ATEN|TORCH|PYTORCH|CUBLAS|CUBLASLT|CUDNN|CUDA|NVIDIA|"
    r"NVTE|NCCL|GLOO|HDF5|BLOSC|TRITON|XLA|JAX|HIP|ROCR|MIOPEN|ROCBLAS|HIPBLAS|HIPBLASLT|ONEDNN|DNNL|LIGHTNING|PL|"
    r"ACCELERATE|FLASH|XFORMERS|LC|GLIBC)_.*"
    r"|TORCHINDUCTOR_.*|PYTHON(HASHSEED|OPTIMIZE|UTF8|DEVMODE|MALLOC|WARNINGS|SAFEPATH|NOUSERSITE|COERCECLOCALE)"
    r"|LD_PRELOAD|LANG|LANGUAGE|TZ|TOKENIZERS_PARALLELISM|WORLD_SIZE|LOCAL_WORLD_SIZE"
)
_PATHS = re.compile(r"PYTHONPATH|PYTHONHOME|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_PREFIX|TMPDIR")
_PLACE = re.compile(r".*_(HOME|DIR|DIRECTORY|PATH|ROOT|CACHE|FILE|PREFIX|FOLDER)")
_PASSING = re.compile(
    r".*(RUN_ID|RESTART_COUNT|ERROR_FILE|PORT|STORE|_PID|SOCKET|_ADDR|VERSION_MODULES).*|NVIDIA_VISIBLE_DEVICES"
)


def process() -> dict[str, Any]:
    """Return how this process was started.

    Returns:
        argv (secrets masked), cwd (without links), flags of the interpreter, env (variables that change what
        libraries compute), paths (those that only say where something lies), dropped (names of variables that may hold
        a secret), hash_seed (PYTHONHASHSEED as it was before Python started; what is set later does nothing), locale,
        timezone, start_method, umask; and `volatile`, which no comparison looks at.
    """
    env, paths, dropped, passing = _environment()
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return {
        "argv": masked(list(sys.argv)),
        "cwd": os.path.realpath(Path.cwd()),
        "flags": {name: getattr(sys.flags, name) for name in dir(sys.flags) if _plain_flag(name)},
        "env": env,
        "paths": paths,
        "dropped": dropped,
        "hash_seed": _hash_seed(),
        "locale": [word for word in locale.getlocale() if word],
        "timezone": list(time.tzname),
        "start_method": multiprocessing.get_start_method(allow_none=True) or "default",
        "umask": _umask(),
        "volatile": {
            "pid": os.getpid(), "host": socket.gethostname(), "executable": sys.executable, "script": main,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **passing,
        },
    }  # fmt: skip


def _environment() -> tuple[dict[str, str], dict[str, str], list[str], dict[str, str]]:
    env, paths, passing = {}, {}, {}
    dropped = []
    for name, value in sorted(os.environ.items()):
        if not (_KEPT.fullmatch(name) or _PATHS.fullmatch(name)):
            if secret_variable(name):
                dropped.append(name)
        elif secret_variable(name, value):
            dropped.append(name)
        elif _PATHS.fullmatch(name) or _PLACE.fullmatch(name):
            paths[name] = value
        elif _PASSING.fullmatch(name):
            passing[name] = value
        else:
            env[name] = value
    return env, paths, dropped, passing


def _hash_seed() -> str:
    try:
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:  # no such system
        return os.environ.get("PYTHONHASHSEED", "random")
    found = [pair.partition(b"=")[2].decode() for pair in given if pair.startswith(b"PYTHONHASHSEED=")]
    return found[0] if found and found[0] else "random"


def _plain_flag(name: str) -> bool:
    return not name.startswith(("_", "n_")) and isinstance(getattr(sys.flags, name), int)


def _umask() -> str:
    with Path("/proc/self/status").open() as file:  # to ask the system for it is to change it, for all threads
        for line in file:
            if line.startswith("Umask:"):
                return line.split()[1]
    return ""


def interpreter() -> dict[str, Any]:
    """Return which Python this is."""
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "build": list(platform.python_build()),
        "compiler": platform.python_compiler(),
        "digest": digest_file(sys.executable),
    }
