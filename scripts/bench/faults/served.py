"""What loading.py, hangs.py and ranks.py load, and what must come out of it, sample by sample."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datacheck.cache import layout
from datacheck.torch import Budget, CachedDataset, InvalidSample, Mix, Sampler, Windows

FIELDS = {
    "label": {"role": "value", "shape": [], "dtype": "int64"},
    "joints": {"role": "joints", "shape": [21, 3], "dtype": "float32", "unit": "m"},
    "cloud": {"role": "points", "shape": ["P", 3], "dtype": "float32", "unit": "m"},
    "walk": {"role": "value", "shape": ["T", 2], "dtype": "float32"},
    "say": {"role": "text"},
}
COUNTS = (21, 11)  # samples of the two caches
LABELS = 1000  # from one cache to the next
# A file that is none, a finding, refused by the transform
UNREADABLE, NOT_FINITE, REFUSED = (4, 9, (2, 13))
GLOBAL_BATCH, STEPS = 8, 3  # of an epoch of each kind
CUT = Windows(3, stride=2, history=1, pad="edge", short="pad")

Batch = Mapping[str, Any]
Source = dict[int, dict[str, Any]]  # by label


# --------------------------------------------------------------------------------------- the caches


def source(number: int) -> Source:
    """Return the samples of a cache as they are written to files."""
    rng, found = np.random.Generator(np.random.Philox(number)), {}
    for i in range(COUNTS[number]):
        steps = int(rng.integers(1, 4))
        found[number * LABELS + i] = {
            "label": np.int64(number * LABELS + i),
            "joints": rng.standard_normal((21, 3)).astype(np.float32),
            "cloud": rng.standard_normal((int(rng.integers(1, 40)), 3)).astype(np.float32),
            "walk": np.stack([np.arange(steps), rng.random(steps)], axis=1).astype(np.float32),
            "say": f"Grüße {i}" * (i % 3 + 1),
        }
    return found


def write(place: Path) -> list[Path]:
    """Build the caches, in shards of a few samples; return their folders."""
    from datacheck.pipeline import build  # what spawned workers do not need
    from datacheck.schema.model import Schema

    built = []
    for number in range(len(COUNTS)):
        data = place / f"data{number}"
        data.mkdir(parents=True)
        for label, sample in source(number).items():
            i = label - number * LABELS
            joints = np.full((21, 3), np.nan, np.float32) if i == NOT_FINITE else sample["joints"]
            np.savez(
                data / f"{i:03d}.npz",
                **{**sample, "joints": joints, "say": np.array(sample["say"])},
            )
        (data / f"{UNREADABLE:03d}.npz").write_bytes(b"PK\x03\x04 no archive")
        schema = {
            "datacheck": 1,
            "name": f"served{number}",
            "samples": {"files": "*.npz"},
            "fields": FIELDS,
        }
        usual, layout.SHARD_BYTES = layout.SHARD_BYTES, 1 << 11
        try:
            (one,) = build(Schema.model_validate(schema), data, place / "caches", workers=1)
        finally:
            layout.SHARD_BYTES = usual
        built.append(one.path)
    return built


# ----------------------------------------------------------------------------------- the transforms


def refuse(row: dict[str, Any]) -> dict[str, Any]:
    """Refuse what only the loaded sample shows."""
    if int(row["label"]) % LABELS in REFUSED:
        msg = "refused"
        raise InvalidSample(msg)
    return row


def crop(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Refuse more at random, and add a random number: both belong to the item."""
    row = refuse(row)
    if rng.random() < 0.15:
        msg = "empty crop"
        raise InvalidSample(msg)
    return row | {"drawn": torch.tensor(rng.random())}


# ---------------------------------------------------------------------------------------- the kinds


@dataclass(frozen=True)
class Kind:
    """A dataset and an order of it.

    Args:
        make: makes the dataset from the folders of the caches.
        order: options of its sampler, made from the dataset.
    """

    make: Callable[[list[Path]], Any]
    order: Callable[[Any], dict[str, Any]] = lambda dataset: {}

    def opened(self, caches: list[Path], rank: int = 0, world: int = 1) -> tuple[Any, Sampler]:
        """Return the dataset, and the sampler of a rank."""
        dataset = self.make(caches)
        size, placed = GLOBAL_BATCH // world, {"rank": rank, "world_size": world}
        return dataset, Sampler(dataset, size, seed=5, **placed, **self.order(dataset))


def cached(path: Path, **options: Any) -> CachedDataset:
    """Return the dataset of a cache, whose budget allows anything."""
    return CachedDataset(path, seed=7, budget=Budget(share=1, run=10_000), **options)


def mixed(caches: list[Path]) -> Mix:
    """Return both caches in shares."""
    return Mix([cached(path, transform=crop) for path in caches], weights=[0.7, 0.3], seed=2)


def plain(caches: list[Path]) -> CachedDataset:
    """Return a dataset whose samplers give plain indices: their epoch is the one of the shared cell."""
    dataset = cached(caches[0])
    dataset.decodes_epoch = False
    return dataset


def by_weight(dataset: Any) -> dict[str, Any]:
    """Return weights of which every third is 0."""
    return {"weights": np.arange(len(dataset)) % 3, "samples": 24}


KINDS = {
    "shuffled, random crops": Kind(lambda caches: cached(caches[0], transform=crop)),
    "plain indices": Kind(plain),
    "by blocks": Kind(lambda caches: cached(caches[0]), lambda _: {"block": "shard", "pool": 2}),
    "by weights": Kind(lambda caches: cached(caches[0], transform=refuse), by_weight),
    "windows": Kind(
        lambda caches: cached(caches[0], fields=["label", "walk"], windows=CUT),
        lambda _: {"drop_last": True},
    ),
    "two caches mixed": Kind(mixed, lambda _: {"drop_last": True}),
}


# ----------------------------------------------------------------------------------- what is served


def rows(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield the samples of a batch of `collate_ragged`."""
    ends = {
        name.removesuffix("_offset"): batch[name].tolist()
        for name in batch
        if name.endswith("_offset")
    }
    for i in range(len(batch["label"])):
        yield {
            name: batch[name][ends[name][i - 1] if i else 0 : ends[name][i]]
            if name in ends
            else batch[name][i]
            for name in batch
            if not name.endswith("_offset")
        }


def told(sample: Batch) -> str:
    """Return a digest of names, dtypes, shapes and bytes of a sample."""
    found = hashlib.blake2b(digest_size=8)
    for name in sorted(sample):
        value = sample[name]
        raw = value.numpy().tobytes() if isinstance(value, torch.Tensor) else str(value).encode()
        kind = (
            (str(value.dtype), tuple(value.shape))
            if isinstance(value, torch.Tensor)
            else type(value)
        )
        found.update(f"{name} {kind} {len(raw)}\0".encode() + raw)
    return found.hexdigest()


def alone(kind: Kind, caches: list[Path], epoch: int) -> list[dict[str, Any]]:
    """Return the samples of an epoch, one plain index at a time, in this process, without sampler or loader."""
    dataset, batches = kind.opened(caches)
    dataset.set_epoch(epoch)
    positions = np.arange(len(batches) * GLOBAL_BATCH) % len(batches.order)
    return [
        dataset[int(batches.order.items(epoch, positions[i : i + 1])[0])]
        for i in range(len(positions))
    ]


def faults(name: str, samples: list[dict[str, Any]], items: list[int]) -> list[str]:
    """Return what is wrong with the samples served for items of the first cache, held against what was written.

    Args:
        name: of the kind.
        samples: those of `alone`.
        items: what was asked for; of windows and mixes, nothing.
    """
    written = source(0) | source(1)
    refused = () if name in ("plain indices", "by blocks", "windows") else REFUSED
    wrong = []
    for i, sample in enumerate(samples):
        label = int(sample["label"])
        if label % LABELS in (UNREADABLE, NOT_FINITE, *refused):
            wrong.append(f"position {i}: sample {label}, which is bad, is served")
        if (
            items
            and items[i] not in (UNREADABLE, NOT_FINITE, *refused)
            and label != items[i]
            and "drawn" not in sample
        ):
            wrong.append(f"position {i}: sample {label} in the place of {items[i]}, which is good")
        for field in set(sample) & set(FIELDS) - {"say"}:
            value, right = sample[field].numpy(), written[label][field]
            if field == "walk" and name == "windows":
                now = int(value[1, 0])  # the step whose number it is, behind one step of history
                right = right[np.clip(np.arange(now - 1, now + 3), 0, len(right) - 1)]
            if value.tobytes() != right.tobytes():
                wrong.append(f"position {i}: {field} of sample {label} is not what was written")
    return wrong
