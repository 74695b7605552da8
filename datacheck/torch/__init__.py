"""The training side: datasets, samplers, loaders and collate functions over a finished cache.

It imports the cache, never the builder. Each name is imported on first use, so that a
module that needs no PyTorch does not load it.
"""

from __future__ import annotations

from typing import Any

from datacheck.plugins import require, resolve

_HOME = {
    "Budget": "datacheck.torch.resampling",
    "CachedDataset": "datacheck.torch.dataset",
    "CachedLoader": "datacheck.torch.loader",
    "EvalSampler": "datacheck.torch.evaluation",
    "InvalidSample": "datacheck.errors",
    "Mix": "datacheck.torch.mix",
    "ResamplingDataset": "datacheck.torch.wrap",
    "Sampler": "datacheck.torch.sampler",
    "Windows": "datacheck.cache.windows",
    "collate_pad": "datacheck.torch.collate",
    "collate_ragged": "datacheck.torch.collate",
    "gather": "datacheck.torch.evaluation",
    "guard": "datacheck.torch.contract",
    "probe_centering": "datacheck.torch.probes",
    "probe_constant_metric": "datacheck.torch.probes",
    "probe_coverage": "datacheck.torch.probes",
    "probe_label_shift": "datacheck.torch.probes",
    "probe_units": "datacheck.torch.probes",
    "worker_context": "datacheck.torch.loader",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        require("torch", "torch")  # one clear message if PyTorch is missing
        return resolve(f"{_HOME[name]}:{name}")
    msg = f"module 'datacheck.torch' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
