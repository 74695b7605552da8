"""Train one tiny model per system on a cache, and record what the dataset served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from datacheck.plugins import require
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


Batch = Mapping[str, Any]


Sample = dict[str, Any]


@dataclass(frozen=True)
class TrainingTask:
    """The training task of one system.

    Args:
        title: what predicts what, for people.
        model: the module to train.
        loss: from a batch to a scalar.
        fields: the fields that the dataset serves.
        transform: what the training code applies to each sample, or None.
        unit: unit of the loss.
        batch: samples per step.
    """

    title: str
    model: nn.Module
    loss: Callable[[Batch], torch.Tensor]
    fields: tuple[str, ...]
    transform: Callable[[Sample], Sample] | None = None
    unit: str = ""
    batch: int = 16


def training_task(system: str, folder: Path) -> TrainingTask:
    """Return the training task of a system; `folder` is its data, which contains the tokenizer."""
    torch.manual_seed(0)
    return {
        "sceneleap": _grasps,
        "ho3d": _hands,
        "scannetpp": _scenes,
        "libero": _demos,
        "minimind": _chats,
    }[system](folder)


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.GELU()]
    return nn.Sequential(*layers[:-1])


def _thinned(count: int, *names: str) -> Callable[[Sample], Sample]:
    """Return a transform that keeps `count` evenly spread rows of some fields.

    A sample with fewer rows repeats them.
    """

    def thin(sample: Sample) -> Sample:
        rows = torch.arange(count) * len(sample[names[0]]) // count
        return sample | {name: sample[name][rows] for name in names}

    return thin


def _grasps(folder: Path) -> TrainingTask:
    model = _mlp(7, 128, 128, 16)

    def loss(batch: Batch) -> torch.Tensor:
        grasps = batch["grasp_qpos"]
        palm = torch.cat(
            [grasps[..., :3] - batch["obj_pose"][:, None, :3], grasps[..., 3:7]], dim=-1
        )
        return nn.functional.mse_loss(model(palm), grasps[..., 7:])

    fields = ("grasp_qpos", "obj_pose")
    return TrainingTask(
        "palm pose to 16 finger joints", model, loss, fields, _thinned(64, "grasp_qpos"), "rad^2"
    )


def _hands(folder: Path) -> TrainingTask:
    model = _mlp(42, 256, 256, 63)

    def loss(batch: Batch) -> torch.Tensor:
        joints = batch["handJoints3D"]
        image = torch.einsum("nij,nkj->nki", batch["camMat"], joints)
        pixels = image[..., :2] / image[..., 2:]
        # A crop around the wrist, scaled to the size of the hand.
        projected = (pixels - pixels[:, :1]) * joints[:, :1, 2:] / 60
        predicted = model(projected.flatten(1)).reshape(-1, 21, 3) / 10
        return 1000 * (predicted - (joints - joints[:, :1])).norm(dim=-1).mean()

    return TrainingTask(
        "21 joints in the image to 21 in space", model, loss, ("handJoints3D", "camMat"), unit="mm"
    )


def _scenes(folder: Path) -> TrainingTask:
    model = _mlp(9, 96, 96, 100)
    fields = ("xyz", "rgb", "normal", "semantic")

    def loss(batch: Batch) -> torch.Tensor:
        xyz = batch["xyz"] - batch["xyz"].mean(dim=1, keepdim=True)
        features = torch.cat([xyz / 3, batch["rgb"] / 255 - 0.5, batch["normal"]], dim=-1)
        labels = batch["semantic"].long().flatten()
        return nn.functional.cross_entropy(model(features).flatten(0, 1), labels, ignore_index=-100)

    return TrainingTask(
        "place, colour, normal of a point to its class",
        model,
        loss,
        fields,
        _thinned(512, *fields),
        "nats",
        batch=4,
    )


def _demos(folder: Path) -> TrainingTask:
    model = _mlp(18, 128, 128, 7)
    fields = ("obs/ee_pos", "obs/joint_states", "obs/gripper_states", "actions")

    def loss(batch: Batch) -> torch.Tensor:
        place, joints, fingers = (batch[name] for name in fields[:3])
        speed = torch.diff(place, dim=1) * 20  # m/s
        turning = torch.diff(joints, dim=1)[..., :3] * 20
        features = torch.cat(
            [place[:, 1:], speed * 5, joints[:, 1:], turning, 25 * fingers[:, 1:]], dim=-1
        )
        return nn.functional.mse_loss(model(features), batch["actions"][:, 1:])

    return TrainingTask("motion of the arm to the action", model, loss, fields)


class _Recurrent(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A recurrent language model of the smallest useful size."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 48)
        self.memory = nn.GRU(48, 64, batch_first=True)
        self.out = nn.Linear(64, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return float (batch, length, vocabulary): logits of the next token."""
        logits: torch.Tensor = self.out(self.memory(self.embed(ids))[0])
        return logits


_CONTEXT = 64
_IGNORED = -100


def _chats(folder: Path) -> TrainingTask:
    tokenizer = require("tokenizers", "text").Tokenizer.from_file(
        str(folder / "model" / "tokenizer.json")
    )
    model = _Recurrent(tokenizer.get_vocab_size())

    @cache
    def tokens(text: str) -> list[int]:
        return list(tokenizer.encode(text).ids)

    def encoded(chat: list[dict[str, str]]) -> tuple[list[int], list[int]]:
        ids: list[int] = []
        labels: list[int] = []
        for message in chat:
            head = tokens(f"<|im_start|>{message['role']}\n")
            body = tokens(f"{message['content']}<|im_end|>\n")
            ids += head + body
            labels += [_IGNORED] * len(head) + (
                body if message["role"] == "assistant" else [_IGNORED] * len(body)
            )
        pad = _CONTEXT + 1 - len(ids)
        return (ids + [0] * pad)[: _CONTEXT + 1], (labels + [_IGNORED] * pad)[: _CONTEXT + 1]

    def loss(batch: Batch) -> torch.Tensor:
        rows = [encoded(chat) for chat in batch["conversations"]]
        ids, labels = (torch.tensor(part) for part in zip(*rows, strict=True))
        logits = model(ids[:, :-1])  # the output at position i predicts the token at i + 1
        return nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=_IGNORED
        )

    return TrainingTask(
        "next token of the assistant", model, loss, ("conversations",), unit="nats", batch=8
    )
