"""The state of this process, without secrets: arguments, variables, switches, random states."""

from __future__ import annotations

import locale
import multiprocessing
import os
import platform
import random
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.runtime.hashing import digest_bytes, digest_file, digest_value

HIDDEN = "***"
_SECRET_WORDS = re.compile(
    r"secret|pass_?(wor[dt]|wd|phrase|code)|credential|(^|_)(pwd|auth|authorization)(_|$)"
    r"|^_?((user|db|my|root|admin|http|ssh|smtp|mail|redis|pg)_?)?pass_?$"
)
_SETTING = re.compile(  # settings such as pad_token, max_tokens, tokens_per_batch
    r"(?<![a-z])(pad|eos|bos|unk|sep|cls|mask|max|min|num|number|n|new|special|extra|image|video|text|action|class"
    r"|register|start|end|total)_tokens?(?![a-z])"
    r"|(?<![a-z])tokens?_(per|ids?|types?|len|length|counts?|size|dim|embeddings?|dropout|budget|limit|level|index|idx"
    r"|merging|mixing|pruning)(?![a-z])"
)
_TOKEN = re.compile(r"(^|_)[a-z]*tokens?[0-9]*(_|$)")
_KEY = re.compile(
    r"(^|_)(api|access|private|secret|wandb|license|account|signing|encryption|ssh)_?keys?[0-9]*(_|$)"
)
_ANY_KEY = re.compile(r"(^|_)[a-z]*keys?[0-9]*(_(?!per)|$)")
_CREDENTIAL = re.compile(
    r"\b(hf_|sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|eyJ[A-Za-z0-9_-]{8,}\.|-----BEGIN )"
    r"|[?&](sig|signature|token|key|password|x-amz-\w+)=",
    re.IGNORECASE,
)
# These run on texts of any length (a list of numbers on a command line), so no match restarts
# within a word.

# A URL up to an @: a password may hold characters that should be escaped.
_USER = re.compile(r"://(?:[^/]*\Z|[^/:]*:)")
_LONG = re.compile(r"[A-Za-z0-9+=_-]{32,}")
_MIXED = [re.compile(kind) for kind in ("[a-z]", "[A-Z]", "[0-9]")]
_PAIR = re.compile(  # pairs in JSON, YAML and Hydra's braces
    r"(?<![\w.-])(?:(?![A-Za-z_])[\w.-])*+([A-Za-z_][\w.-]*+)[\"']?\s*+[:=](?!//)"
)
_ASSIGNED = re.compile(r"[+~]*[A-Za-z_][\w.@/-]*=")


def names_secret(name: str) -> bool:
    """Return whether a name suggests a secret: ``hub_token`` and ``apiKey``, not ``pad_token``."""
    snake_name = _snake_case(name)
    return bool(
        _SECRET_WORDS.search(snake_name)
        or _KEY.search(snake_name)
        or _TOKEN.search(_SETTING.sub("", snake_name))
    )


def names_password(name: str) -> bool:
    """Return whether a number under this name may be a secret: not ``text_token``, a count."""
    snake_name = _snake_case(name)
    return bool(_SECRET_WORDS.search(snake_name) or _KEY.search(snake_name))


def _snake_case(name: str) -> str:
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", separated.lower())


def credential(value: str) -> bool:
    """Return whether a text looks like a credential, or holds a secret name with a value."""
    suspicious = bool(_CREDENTIAL.search(value)) or any(map(names_secret, _PAIR.findall(value)))
    return suspicious or any(
        _USER.search(re.split(r"\s", before)[-1]) for before in value.split("@")[:-1]
    )


def _mixed(value: str) -> bool:
    """Return whether a text has a run of 32 characters with small and capital letters and digits.

    A slash ends the run.
    """
    for word in re.split(r"[/\s]", value):
        run = _LONG.search(word)
        if run and all(kind.search(word, run.start()) for kind in _MIXED):
            return True
    return False


def secret(name: str, value: str) -> bool:
    """Return whether a word of a command line may hold a secret, by its name or its value."""
    return names_secret(name) or credential(value) or _mixed(value)


def secret_variable(name: str, value: str = "") -> bool:
    """Return whether an environment variable may hold a secret; here any name with "key" counts."""
    return secret(name, value) or bool(_ANY_KEY.search(_snake_case(name)))


def masked(words: list[str]) -> list[str]:
    """Return a command line with possible secrets replaced by ``***``.

    Notes:
        After an option with a secret name, all words up to the next option are hidden: it may take
        several words. From the second word on, an assignment (``lr=0.1``) is judged by itself.
    """
    masked_words: list[str] = []
    words_since = 0  # words since an option that names a secret, which counts as 1; 0: none
    for word in words:
        option = word.startswith("--") or (word.startswith("-") and words_since != 1)
        if words_since and not option and (words_since == 1 or not _ASSIGNED.match(word)):
            masked_words.append(HIDDEN)
            words_since += 1
            continue
        name, sign, value = word.partition("=")
        if sign and secret(name, value):
            masked_words.append(f"{HIDDEN if credential(name) else name}={HIDDEN}")
        else:
            masked_words.append(HIDDEN if secret("", word) else word)
        words_since = int(option and not sign and names_secret(word)) or (
            words_since if words_since and not option else 0
        )
    return masked_words


_RECORDED_NAMES = re.compile(
    r"(OMP|KMP|GOMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|NUMBA|NPY|ATEN|TORCH|PYTORCH|CUBLAS|CUBLASLT|CUDNN|CUDA|NVIDIA|"
    r"NVTE|NCCL|GLOO|HDF5|BLOSC|TRITON|XLA|JAX|HIP|ROCR|MIOPEN|ROCBLAS|HIPBLAS|HIPBLASLT|ONEDNN|DNNL|LIGHTNING|PL|"
    r"ACCELERATE|FLASH|XFORMERS|LC|GLIBC)_.*"
    r"|TORCHINDUCTOR_.*|PYTHON(HASHSEED|OPTIMIZE|UTF8|DEVMODE|MALLOC|WARNINGS|SAFEPATH|NOUSERSITE|COERCECLOCALE)"
    r"|LD_PRELOAD|LANG|LANGUAGE|TZ|TOKENIZERS_PARALLELISM|WORLD_SIZE|LOCAL_WORLD_SIZE"
)
_PATHS = re.compile(r"PYTHONPATH|PYTHONHOME|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_PREFIX|TMPDIR")
_PLACE = re.compile(r".*_(HOME|DIR|DIRECTORY|PATH|ROOT|CACHE|FILE|PREFIX|FOLDER)")
_VOLATILE_NAMES = re.compile(
    r".*(RUN_ID|RESTART_COUNT|ERROR_FILE|PORT|STORE|_PID|SOCKET|_ADDR|VERSION_MODULES).*|NVIDIA_VISIBLE_DEVICES"
)


def process() -> dict[str, Any]:
    """Return how this process was started.

    Returns:
        argv (secrets masked), cwd (without links), flags of the interpreter, env (variables that
        change what libraries compute), paths (variables that only hold a location), dropped (names
        of variables that may hold a secret), hash_seed (PYTHONHASHSEED at the start of Python; a
        later change has no effect), locale, timezone, start_method, umask; and `volatile`, which no
        comparison reads.
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
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "executable": sys.executable,
            "script": main,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **passing,
        },
    }


def _environment() -> tuple[dict[str, str], dict[str, str], list[str], dict[str, str]]:
    env = {}
    paths = {}
    passing = {}
    dropped = []
    for name, value in sorted(os.environ.items()):
        if not (_RECORDED_NAMES.fullmatch(name) or _PATHS.fullmatch(name)):
            if secret_variable(name):
                dropped.append(name)
        elif secret_variable(name, value):
            dropped.append(name)
        elif _PATHS.fullmatch(name) or _PLACE.fullmatch(name):
            paths[name] = value
        elif _VOLATILE_NAMES.fullmatch(name):
            passing[name] = value
        else:
            env[name] = value
    return env, paths, dropped, passing


def _hash_seed() -> str:
    try:
        variables = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:  # not Linux
        return os.environ.get("PYTHONHASHSEED", "random")
    seeds = [
        pair.partition(b"=")[2].decode()
        for pair in variables
        if pair.startswith(b"PYTHONHASHSEED=")
    ]
    return seeds[0] if seeds and seeds[0] else "random"


def _plain_flag(name: str) -> bool:
    return not name.startswith(("_", "n_")) and isinstance(getattr(sys.flags, name), int)


def _umask() -> str:
    # os.umask cannot read the mask without changing it for all threads.
    with Path("/proc/self/status").open() as file:
        for line in file:
            if line.startswith("Umask:"):
                return line.split()[1]
    return ""


def interpreter() -> dict[str, Any]:
    """Return version, build and digest of this Python."""
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "build": list(platform.python_build()),
        "compiler": platform.python_compiler(),
        "digest": digest_file(sys.executable),
    }


_SWITCHES = (  # attributes, and functions without arguments, below torch
    "are_deterministic_algorithms_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "utils.deterministic.fill_uninitialized_memory",
    "get_float32_matmul_precision",
    "get_default_dtype",
    "get_num_threads",
    "get_num_interop_threads",
    "is_anomaly_enabled",
    "backends.fp32_precision",
    "backends.cpu.get_cpu_capability",
    "backends.cudnn.enabled",
    "backends.cudnn.benchmark",
    "backends.cudnn.benchmark_limit",
    "backends.cudnn.deterministic",
    "backends.cudnn.allow_tf32",
    "backends.cudnn.fp32_precision",
    "backends.cudnn.conv.fp32_precision",
    "backends.cudnn.rnn.fp32_precision",
    "backends.cuda.matmul.allow_tf32",
    "backends.cuda.matmul.fp32_precision",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_fp16_accumulation",
    "backends.cuda.flash_sdp_enabled",
    "backends.cuda.mem_efficient_sdp_enabled",
    "backends.cuda.math_sdp_enabled",
    "backends.cuda.cudnn_sdp_enabled",
    "backends.cuda.fp16_bf16_reduction_math_sdp_allowed",
    "backends.mkldnn.enabled",
    "backends.mkldnn.deterministic",
    "backends.mkldnn.allow_tf32",
    "backends.mkldnn.matmul.fp32_precision",
    "backends.mkldnn.conv.fp32_precision",
)
# People and libraries use smaller seeds; PyTorch's own are 64 random bits.
_MOST_MANUAL_SEED = 1 << 32


def switches() -> dict[str, Any]:
    """Return every switch of PyTorch that changes results, by its name below ``torch``.

    An old PyTorch lacks some of them.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return {"missing": "PyTorch is not loaded"}
    values: dict[str, Any] = {
        "version": torch.__version__,
        "git": getattr(torch.version, "git_version", None),
    }
    for name in _SWITCHES:
        try:
            values[name] = _value(torch, name)
        except AttributeError:
            continue
        # For example two ways to set TF32 that were mixed
        except Exception as error:  # noqa: BLE001
            values[name] = f"cannot be read: {str(error).partition(chr(10))[0]}"
    # Only if it is loaded: importing it takes seconds.
    inductor = sys.modules.get("torch._inductor.config")
    if getattr(inductor, "max_autotune", False):
        values["inductor.max_autotune"] = True
    # A library built with -ffast-math turns this on when it is loaded.
    values["flush_denormal"] = float("1e-310") * 1.0 == 0.0
    distributed = sys.modules.get("torch.distributed")
    ready = distributed is not None and distributed.is_available() and distributed.is_initialized()
    if ready and distributed is not None:
        values["distributed"] = {
            "backend": distributed.get_backend(),
            "world_size": distributed.get_world_size(),
        }
    return values


def _value(torch: Any, name: str) -> Any:
    value = torch
    for part in name.split("."):
        below = f"{value.__name__}.{part}" if hasattr(value, "__name__") else ""
        value = sys.modules[below] if below in sys.modules else getattr(value, part)
    value = value() if callable(value) else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def rng() -> dict[str, Any]:
    """Return the state's digest of each global generator, and whether it was seeded.

    "seeded" is None if the generator does not tell.
    """
    # The global generator is the one that matters here.
    name, words, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    words = digest_bytes(np.asarray(words).tobytes())
    generator: Any = getattr(np.random, "get_bit_generator", lambda: None)()
    seeded = None if generator is None else getattr(generator, "seed_seq", None) is None
    generators = {
        "random": {"digest": digest_value(random.getstate()), "seeded": None},
        "numpy": {"digest": digest_value([name, words, *rest]), "seeded": seeded},
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        state = digest_bytes(torch.get_rng_state().numpy().tobytes())
        generators["torch"] = {"digest": state, "seeded": torch.initial_seed() < _MOST_MANUAL_SEED}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states = [
                digest_bytes(state.numpy().tobytes()) for state in torch.cuda.get_rng_state_all()
            ]
            all_seeded = all(
                torch.cuda.default_generators[i].initial_seed() < _MOST_MANUAL_SEED
                for i in range(len(states))
            )
            generators["cuda"] = {"digest": digest_value(states), "seeded": all_seeded}
    return generators
