"""What PyTorch is set to, and the states of the global random generators: read, never set, CUDA never started."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from datacheck.digest import digest_bytes, digest_value

_SWITCHES = (  # attributes and functions without arguments, below torch
    "are_deterministic_algorithms_enabled", "is_deterministic_algorithms_warn_only_enabled",
    "utils.deterministic.fill_uninitialized_memory", "get_float32_matmul_precision", "get_default_dtype",
    "get_num_threads", "get_num_interop_threads", "is_anomaly_enabled",
    "backends.fp32_precision", "backends.cpu.get_cpu_capability",
    "backends.cudnn.enabled", "backends.cudnn.benchmark", "backends.cudnn.benchmark_limit",
    "backends.cudnn.deterministic", "backends.cudnn.allow_tf32", "backends.cudnn.fp32_precision",
    "backends.cudnn.conv.fp32_precision", "backends.cudnn.rnn.fp32_precision",
    "backends.cuda.matmul.allow_tf32", "backends.cuda.matmul.fp32_precision",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_fp16_accumulation",
    "backends.cuda.flash_sdp_enabled", "backends.cuda.mem_efficient_sdp_enabled",
    "backends.cuda.math_sdp_enabled", "backends.cuda.cudnn_sdp_enabled",
    "backends.cuda.fp16_bf16_reduction_math_sdp_allowed",
    "backends.mkldnn.enabled", "backends.mkldnn.deterministic", "backends.mkldnn.allow_tf32",
    "backends.mkldnn.matmul.fp32_precision", "backends.mkldnn.conv.fp32_precision",
)  # fmt: skip
_A_PERSON = 1 << 32  # seeds that people and libraries give are smaller; PyTorch's own are 64 random bits


def switches() -> dict[str, Any]:
    """Return every switch of PyTorch that changes results, by its name below ``torch``; of an old one those it has."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return {"missing": "PyTorch is not loaded"}
    said: dict[str, Any] = {"version": torch.__version__, "git": getattr(torch.version, "git_version", None)}
    for name in _SWITCHES:
        try:
            said[name] = _value(torch, name)
        except AttributeError:
            continue
        except Exception as error:  # noqa: BLE001  e.g. two ways to say TF32 that were mixed
            said[name] = f"cannot be read: {str(error).partition(chr(10))[0]}"
    inductor = sys.modules.get("torch._inductor.config")  # to ask for it is to load it, which takes seconds
    if getattr(inductor, "max_autotune", False):
        said["inductor.max_autotune"] = True
    said["flush_denormal"] = float("1e-310") * 1.0 == 0.0  # a library built with -ffast-math does that when loaded
    distributed = sys.modules.get("torch.distributed")
    ready = distributed is not None and distributed.is_available() and distributed.is_initialized()
    if ready and distributed is not None:
        said["distributed"] = {"backend": distributed.get_backend(), "world_size": distributed.get_world_size()}
    return said


def _value(torch: Any, name: str) -> Any:
    value = torch
    for part in name.split("."):
        below = f"{value.__name__}.{part}" if hasattr(value, "__name__") else ""
        value = sys.modules[below] if below in sys.modules else getattr(value, part)
    value = value() if callable(value) else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def rng() -> dict[str, Any]:
    """Return for each global generator the digest of its state, and whether it was seeded (None: it does not say)."""
    name, words, *rest = np.random.get_state(legacy=True)  # noqa: NPY002  the global one is what is asked for
    words = digest_bytes(np.asarray(words).tobytes())
    generator: Any = getattr(np.random, "get_bit_generator", lambda: None)()
    seeded = None if generator is None else getattr(generator, "seed_seq", None) is None
    said = {
        "random": {"digest": digest_value(random.getstate()), "seeded": None},
        "numpy": {"digest": digest_value([name, words, *rest]), "seeded": seeded},
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        state = digest_bytes(torch.get_rng_state().numpy().tobytes())
        said["torch"] = {"digest": state, "seeded": torch.initial_seed() < _A_PERSON}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states = [digest_bytes(state.numpy().tobytes()) for state in torch.cuda.get_rng_state_all()]
            given = all(torch.cuda.default_generators[i].initial_seed() < _A_PERSON for i in range(len(states)))
            said["cuda"] = {"digest": digest_value(states), "seeded": given}
    return said
