"""The training side: CachedDataset and its collate functions. Reaches the cache and nothing of the builder."""

from datacheck.registry import require

require("torch", "torch")  # one clear line where PyTorch is absent

from datacheck.cache.windows import Windows  # noqa: E402  after the check
from datacheck.torch.collate import collate_pad, collate_ragged  # noqa: E402
from datacheck.torch.dataset import CachedDataset  # noqa: E402

__all__ = ["CachedDataset", "Windows", "collate_pad", "collate_ragged"]
