"""The training loop of the demo, and a record of what the dataset served."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from datacheck.demo.models import TrainingTask
from datacheck.torch import CachedDataset


@dataclass(frozen=True)
class TrainingResult:
    """What a model was trained on, and its loss.

    Args:
        title, unit: of the training task.
        steps, batch: optimizer steps; samples (or windows) per step.
        first, last: mean loss of the first and of the last tenth of the steps.
        distinct: number of different samples that were served, by key.
        substituted: number of times that a valid sample replaced a broken one.
        broken: keys that were served although they are broken.
    """

    title: str
    unit: str
    steps: int
    batch: int
    first: float
    last: float
    distinct: int
    substituted: int
    broken: tuple[str, ...]


def train(
    lesson: TrainingTask, cache: Path, broken: AbstractSet[str], seed: int, steps: int
) -> TrainingResult:
    """Train on a cache with an ordinary loop, and record what the dataset served.

    Args:
        lesson: model and loss.
        cache: a finished cache; its index space includes broken samples, which the dataset must
            replace.
        broken: keys that must never be served.
        seed: decides the order and the substitutes.
        steps: optimizer steps.
    """
    torch.set_num_threads(1)  # the models are tiny: more threads would only wait for each other
    dataset = CachedDataset(cache, fields=lesson.fields, transform=lesson.transform, seed=seed)
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(lesson.model.parameters(), lr=3e-3)
    losses: list[float] = []
    served: set[str] = set()
    substituted = epoch = 0
    while len(losses) < steps:
        dataset.set_epoch(epoch)
        indices = torch.randperm(len(dataset), generator=order)[
            : (steps - len(losses)) * lesson.batch
        ].tolist()
        real = [dataset.substituted(index) for index in indices]
        substituted += sum(a != b for a, b in zip(indices, real, strict=True))
        served.update(dataset.key(index) for index in real)
        for batch in DataLoader(dataset, batch_size=lesson.batch, sampler=indices):
            loss = lesson.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        epoch += 1
    tenth = max(1, steps // 10)
    first, last = (sum(part) / tenth for part in (losses[:tenth], losses[-tenth:]))
    return TrainingResult(
        lesson.title,
        lesson.unit,
        steps,
        lesson.batch,
        first,
        last,
        len(served),
        substituted,
        tuple(sorted(served & broken)),
    )
