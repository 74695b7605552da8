"""Files and names: sizes, counts, numberings and names that are not what they should be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datacheck.model.sample import Origin, Piece
from tests.trials.base import Samples, Size, Trial, sample, some

_VALUE = {"fields": {"x": {"role": "value", "shape": [4]}}}


def _files(rng: np.random.Generator) -> Samples:
    """Scenes whose files scatter by a factor of about two."""
    sizes = np.exp(rng.normal(np.log(4e6), 0.35, 200)).astype(np.int64)
    return [
        sample(f"scene{i:04d}.npy", {"x": rng.standard_normal(4)}, size=np.asarray(size))
        for i, size in enumerate(sizes)
    ]


def _with_facts(piece: Piece, **facts: object) -> Piece:
    return Piece(piece.key, piece.fields, piece.origin, piece.group, {**piece.facts, **facts})


def _shrink(samples: Samples, factor: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, 0.01, rng, least=2)
    for place in places:
        split, piece = samples[place]
        size = np.asarray(4e6 * factor * rng.uniform(0.8, 1.2)).astype(np.int64)
        samples[place] = split, _with_facts(piece, size=size)
    return [samples[place][1].key for place in places]


TINY = Trial(
    "interrupted-exports",
    "DC103",
    _VALUE,
    _files,
    _shrink,
    (Size("a header", 1e-4), Size("a hundredth", 0.01), Size("a tenth", 0.1, documented=False)),
    cause="tiny",
)


def _cut(samples: Samples, share: float, rng: np.random.Generator) -> Sequence[str]:
    """Cut a file at the end of a block, at a share of the smallest file."""
    least = min(int(piece.facts["size"]) for _, piece in samples)
    place = some(samples, 0.001, rng)[0]
    split, piece = samples[place]
    samples[place] = split, _with_facts(piece, size=np.asarray(int(share * least) // 4096 * 4096))
    return [piece.key]


CUT = Trial(
    "cut-files",
    "DC103",
    _VALUE,
    _files,
    _cut,
    (Size("two fifths of the smallest", 0.4), Size("all of the smallest", 1.0, documented=False)),
    cause="cut",
)


def _demos(rng: np.random.Generator) -> Samples:
    """Three files of ten demos each, with what the file and each demo say of their number."""
    found: Samples = []
    for file in range(3):
        steps = rng.integers(40, 200, 10)
        for demo, count in enumerate(steps.tolist()):
            key = f"task_{file}.hdf5:/data/demo_{demo}"
            told = {"num_samples": count, "num_demos": 10, "total": int(steps.sum())}
            facts = {f"attrs/{name}": np.asarray(value) for name, value in told.items()}
            piece = Piece(
                key,
                {"a": rng.standard_normal((count, 3))},
                Origin(f"task_{file}.hdf5", key),
                "",
                facts,
            )
            found.append(("", piece))
    return found


def _miscount(name: str) -> object:
    def plant(samples: Samples, off: float, rng: np.random.Generator) -> Sequence[str]:
        place = some(samples, 0.01, rng)[0]
        file = samples[place][1].origin.file
        hit = (
            [place]
            if name == "num_samples"
            else [i for i, (_, p) in enumerate(samples) if p.origin.file == file]
        )
        for i in hit:
            split, piece = samples[i]
            samples[i] = (
                split,
                _with_facts(
                    piece, **{f"attrs/{name}": np.asarray(piece.facts[f"attrs/{name}"] + int(off))}
                ),
            )
        return [samples[i][1].key for i in hit]

    return plant


_COUNTED = {
    "attrs": {"num_samples": "T", "num_demos": "samples", "total": "sum T"},
    "fields": {"a": {"role": "value", "shape": ["T", 3]}},
}
_OFF = (Size("one too many", 1), Size("one too few", -1), Size("forty too few", -40))
MISCOUNTED = tuple(
    Trial(
        f"wrong-{name.replace('_', '-')}",
        "DC111",
        _COUNTED,
        _demos,
        _miscount(name),
        _OFF,
        cause=name,
    )  # type: ignore[arg-type]
    for name in ("num_samples", "num_demos", "total")
)
WRONG_NUM_SAMPLES, WRONG_NUM_DEMOS, WRONG_TOTAL = MISCOUNTED

_SEQUENCES = {"samples": {"files": "{seq}/{frame}.pkl", "group": "{seq}"}} | _VALUE


def _frames(rng: np.random.Generator) -> Samples:
    """Five recordings, two of which keep every fifth frame; one is a random choice of frames."""
    found: Samples = []
    for number, step in enumerate((1, 1, 5, 1, 5, 0)):
        start, count = int(rng.integers(0, 50)), int(rng.integers(60, 120))
        chosen = (
            start + step * np.arange(count)
            if step
            else np.sort(rng.choice(1000, count, replace=False))
        )
        for frame in chosen.tolist():
            found.append(
                sample(
                    f"S{number}/{frame:04d}.pkl", {"x": rng.standard_normal(4)}, group=f"S{number}"
                )
            )
    return found


def _hole(samples: Samples, count: float, rng: np.random.Generator) -> Sequence[str]:
    group = f"S{int(rng.integers(0, 4))}"
    places = [i for i, (_, piece) in enumerate(samples) if piece.group == group]
    start = int(rng.integers(1, len(places) - int(count) - 1))
    behind = samples[places[start + int(count)]][1].key
    del samples[places[start] : places[start] + int(count)]
    return [behind]


HOLE = Trial(
    "missing-frames",
    "DC112",
    _SEQUENCES,
    _frames,
    _hole,
    (Size("1 frame", 1), Size("5 frames", 5), Size("30 frames", 30)),
)


def _same_name(samples: Samples, count: float, rng: np.random.Generator) -> Sequence[str]:
    places = some(samples, count / len(samples), rng)
    for place in places:
        split, piece = samples[place]
        key = piece.key.replace(".npy", ".npz")
        samples.append(
            (split, Piece(key, {"x": rng.standard_normal(4)}, Origin(key), "", piece.facts))
        )
    return [
        p.key
        for _, p in samples
        if p.facts["id"] in {samples[place][1].facts["id"] for place in places}
    ]


SAME_NAME = Trial(
    "two-forms-of-one-sample",
    "DC106",
    _VALUE,
    _files,
    _same_name,
    (Size("1 sample", 1), Size("5 samples", 5)),
    cause="same",
)
