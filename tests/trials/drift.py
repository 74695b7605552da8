"""Another version of the data: samples lost, a field that moved, a class that became rare."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.trials.base import Samples, Size, Trial, changed, sample

_EPISODES, _FRAMES, _NAMED = 600, 2, 120
_MOVING = {
    "samples": {"files": "{episode}/{frame}", "group": "{episode}"},
    "fields": {"joints": {"role": "value", "shape": [4]}, "grip": {"role": "value", "shape": [2]}},
    "rules": {"DC901": "off"},
}
_LABELLED = {
    "fields": {"label": {"role": "class", "shape": ["P"], "classes": 6}},
    "rules": {"DC901": "off", "DC902": "off"},
}
# The larger their sum, the more scenes are alike
_SHARES = np.array([7.0, 5.0, 3.0, 2.4, 1.6, 1.0])


def _episodes(rng: np.random.Generator) -> Samples:
    """Frames of episodes; half of the variance lies between the episodes."""
    made = []
    for episode in range(_EPISODES):
        mean = rng.normal(0, 0.7, 6)
        for frame in range(_FRAMES):
            values = mean + rng.normal(0, 0.7, 6)
            fields = {"joints": values[:4], "grip": values[4:]}
            made.append(sample(f"e{episode:03d}/{frame:02d}", fields, group=f"e{episode:03d}"))
    return made


def _moved(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    del rng
    for place, (split, piece) in enumerate(samples):
        samples[place] = (
            split,
            changed(piece, joints=piece.fields["joints"] + np.array([size, 0, 0, 0])),
        )
    return []


def _scenes(rng: np.random.Generator) -> Samples:
    """Scenes whose class shares vary from one to the next."""
    return [
        sample(f"s{i:03d}", {"label": rng.choice(6, 400, p=rng.dirichlet(_SHARES))})
        for i in range(80)
    ]


def _relabelled(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    """Give that share of the first class to the last one."""
    for place, (split, piece) in enumerate(samples):
        label = piece.fields["label"].copy()
        label[(label == 0) & (rng.uniform(size=len(label)) < size)] = 5
        samples[place] = split, changed(piece, label=label)
    return []


def _versioned(rng: np.random.Generator) -> Samples:
    """The same keys with the same values, whatever the generator."""
    del rng
    values = np.random.default_rng(11).normal(size=(_NAMED, 30, 3)).astype(np.float32)
    return [sample(f"v{i:03d}", {"xyz": value}) for i, value in enumerate(values)]


def _lost(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    for place in sorted(rng.choice(len(samples), int(size), replace=False).tolist(), reverse=True):
        del samples[place]
    return []


def _edited(samples: Samples, size: float, rng: np.random.Generator) -> Sequence[str]:
    places = sorted(rng.choice(len(samples), int(size), replace=False).tolist())
    for place in places:
        split, piece = samples[place]
        samples[place] = split, changed(piece, xyz=piece.fields["xyz"] + np.float32(0.01))
    return [samples[place][1].key for place in places]


def _trial(
    name: str,
    code: str,
    schema: dict[str, object],
    clean: Callable[[np.random.Generator], Samples],
    plant: Callable[[Samples, float, np.random.Generator], Sequence[str]],
    sizes: tuple[Size, ...],
    cause: str = "",
) -> Trial:
    return Trial(name, code, schema, clean, plant, sizes, cause, reference=clean)


_POINTS: dict[str, object] = {
    "fields": {"xyz": {"role": "points", "shape": ["P", 3]}},
    "rules": {"DC902": "off"},
}
_SD = (Size("0.3 sd", 0.3, documented=False), Size("1 sd", 1.0), Size("3 sd", 3.0))
MOVED = _trial("field-moved", "DC902", _MOVING, _episodes, _moved, _SD, "larger")
_PART = (
    Size("30 % of a class", 0.3, documented=False),
    Size("60 % of a class", 0.6),
    Size("a whole class", 1.0),
)
RELABELLED = _trial("class-relabelled", "DC903", _LABELLED, _scenes, _relabelled, _PART)
LOST = _trial(
    "samples-lost",
    "DC901",
    _POINTS,
    _versioned,
    _lost,
    (Size("10 of 120", 10), Size("60 of 120", 60)),
    "removed",
)
EDITED = _trial(
    "samples-edited",
    "DC901",
    _POINTS,
    _versioned,
    _edited,
    (Size("1 of 120", 1), Size("20 of 120", 20)),
    "changed",
)
