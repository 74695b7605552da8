"""Samples of which a model learns a line."""

import torch
from torch.utils.data import TensorDataset


def dataset():
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.rand(12, 3, generator=generator), torch.rand(12, 1, generator=generator)
    )
