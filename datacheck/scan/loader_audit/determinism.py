"""Find out whether a loader gives the same bytes again, and what changes them where it does not.

A second pass reads with every condition changed at once. Where it differs, further passes change one
condition each: the order, the seed, the start method of workers and so on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.model.table import Note
from datacheck.rules.selection import NONDETERMINISM
from datacheck.scan.loader_audit.first_pass import FirstPass, spread
from datacheck.scan.loader_audit.loader_process import Answer, Loader, ProcessSettings
from datacheck.workers.budget import Limits
from datacheck.workers.child import Death

_MOST_RETRIED = 48  # samples that are read again, with one factor changed at a time
_MOST_MEASURED = 8  # of these, samples whose values are compared
_WORKERS = 2
_RAISED = "(exception)"

Places = set[tuple[int, str]]  # index and field


@dataclass(frozen=True)
class PassSettings:
    """One pass: the settings of its process, and how it reads the dataset.

    Args:
        process: the settings of its process.
        backwards: the last index first.
        reseed: before each index the global random numbers are seeded with this and the index;
            None: never.
        twice: each index is read twice, and the second answer counts.
        workers: worker processes; 0: none.
        start: their start method.
    """

    process: ProcessSettings = field(default_factory=ProcessSettings)
    backwards: bool = False
    reseed: int | None = 0
    twice: bool = False
    workers: int = 0
    start: str = "fork"


_EVERYTHING_CHANGED = PassSettings(
    ProcessSettings(seed=1, listing="reversed", hash_seed=1),
    backwards=True,
    reseed=None,
    workers=_WORKERS,
)
_BASE_PASS = PassSettings()
_FACTOR_PASSES: dict[str, PassSettings] = {
    "repeat": _BASE_PASS,
    "order": replace(_BASE_PASS, backwards=True),
    "again": replace(_BASE_PASS, twice=True),
    "seed": replace(_BASE_PASS, reseed=1),
    "build": replace(_BASE_PASS, process=ProcessSettings(seed=1)),
    "directory": replace(_BASE_PASS, process=ProcessSettings(listing="reversed")),
    "hash": replace(_BASE_PASS, process=ProcessSettings(hash_seed=1)),
    "fork": replace(_BASE_PASS, workers=_WORKERS),
    "spawn": replace(_BASE_PASS, workers=_WORKERS, start="spawn"),
}


class DeterminismPasses:
    """The passes over a loader that test for determinism.

    Args:
        first_pass: read every sample once, in order, in one process.
        limits: of time and memory, per sample.
        tell: called before each pass.
    """

    def __init__(self, first_pass: FirstPass, limits: Limits, tell: Callable[[], None]) -> None:
        self._first_pass, self._limits, self._tell = first_pass, limits, tell
        self._expected = first_pass.field_digests

    def notes(self, probed: Sequence[tuple[int, Mapping[str, int]]]) -> list[Note]:
        """Return a note for every cause of differences between passes.

        [] where a second pass gives the same bytes.

        Args:
            probed: (index, digests) of indices that were read several times in one process.

        Notes:
            `about` of a note has kind, fields, samples (how many differ by this cause), compared,
            tried, indices (the first few), difference (largest, absolute), drew (global generators
            that were used), error.
        """
        items = sorted(self._expected)
        if not items:
            return []
        answers = self._run_pass(_EVERYTHING_CHANGED, items)
        if isinstance(answers, Death):
            # Without process ids, which differ in every run.
            words = re.sub(r" ?\(pid\S*[^)]*\)", "", answers.how.strip().splitlines()[-1])
            return [self._note("died", set(), 0, {"error": words})]
        changed = _differing(self._expected, _digests(answers))
        for index, digests in probed:
            changed |= _differing(self._expected, {index: digests})
        if not changed:
            return []
        tried = spread(sorted({index for index, _ in changed}), _MOST_RETRIED)
        notes = []
        for kind, (places, about) in self._causes(tried).items():
            # A cause that changes all tried samples is taken to change the others, too.
            changes_all = {index for index, _ in places} >= set(tried)
            affected = (
                {(i, name) for i, name in changed if name in {n for _, n in places}}
                if changes_all
                else places
            )
            notes.append(self._note(kind, affected or places, len(tried), about))
        return notes or [self._note("unknown", changed, len(tried), {})]

    def _note(self, kind: str, places: Places, tried: int, about: Mapping[str, Any]) -> Note:
        indices = sorted({index for index, _ in places})
        details = {
            "kind": kind,
            "fields": sorted({name for _, name in places}),
            "samples": len(indices),
            "tried": tried,
            "compared": len(self._expected),
            "indices": indices[:10],
            **about,
        }
        return Note(
            NONDETERMINISM,
            self._first_pass.served.keys[indices[0]] if indices else "",
            kind,
            about=details,
        )

    def _run_pass(
        self, settings: PassSettings, items: Sequence[int], keep: Sequence[int] = ()
    ) -> list[Answer] | Death:
        self._tell()
        loader = Loader(
            self._first_pass.factory, self._first_pass.whole, self._limits, settings.process
        )
        task = {
            "items": list(items[::-1] if settings.backwards else items),
            "keep": list(keep),
            "reseed": settings.reseed,
            "twice": settings.twice,
            "workers": settings.workers,
            "start": settings.start,
        }
        try:
            answers, death = loader.run("read_pass", task)
        except UsageError as error:  # although it could be built for the first pass
            return Death(None, str(error))
        finally:
            loader.close()
        return answers if death is None else death

    def _causes(self, items: Sequence[int]) -> dict[str, tuple[Places, dict[str, Any]]]:
        """Return the differences by factor: where, how large, and the global generators in use."""
        base = self._run_pass(_BASE_PASS, items, items[:_MOST_MEASURED])
        if isinstance(base, Death):
            return {}
        expected = _digests(base)
        generators = sorted({name for answer in base for name in answer.get("drew", ())})
        differences: dict[str, Places] = {}
        distances: dict[str, dict[str, float]] = {}
        for kind, settings in _FACTOR_PASSES.items():
            answers = self._run_pass(settings, items, items[:_MOST_MEASURED])
            if isinstance(answers, Death):
                answers = []
            differences[kind], distances[kind] = (
                _differing(expected, _digests(answers)),
                _difference(base, answers),
            )
        causes: dict[str, tuple[Places, dict[str, Any]]] = {}
        for kind, places in _attributed(differences).items():
            field_distances = distances["fork" if kind == "workers" else kind]
            names = {name for _, name in places}
            causes[kind] = (
                places,
                {
                    "drew": generators,
                    "difference": max(field_distances.get(name, 0.0) for name in names),
                },
            )
        return causes


def _attributed(differences: dict[str, Places]) -> dict[str, Places]:
    """Return the causes, without differences that follow from another cause."""
    repeat = differences["repeat"]
    causes = {kind: places - repeat for kind, places in differences.items()}
    causes["repeat"] = repeat
    # Differences that order makes, too, come from a generator or a cursor of the dataset's own; the
    # others come from reading itself.
    causes["again"] -= causes["order"]
    state = causes["order"] | causes["again"]
    fork = causes.pop("fork") - state
    spawn = causes.pop("spawn") - state
    causes |= {"workers": fork & spawn, "fork": fork - spawn, "spawn": spawn - fork}
    return {kind: places for kind, places in causes.items() if places}


def _digests(answers: Sequence[Answer]) -> dict[int, Mapping[str, int]]:
    return {answer["index"]: answer.get("digests", {_RAISED: 0}) for answer in answers}


def _differing(
    expected: Mapping[int, Mapping[str, int]], actual: Mapping[int, Mapping[str, int]]
) -> Places:
    """Return index and field of every value that differs or is missing in one of the two."""
    return {
        (index, name)
        for index, digests in actual.items()
        if (expected_digests := expected.get(index)) is not None and expected_digests != digests
        for name in expected_digests.keys() | digests.keys()
        if expected_digests.get(name) != digests.get(name)
    }


def _difference(base: Sequence[Answer], answers: Sequence[Answer]) -> dict[str, float]:
    """Return the largest absolute difference of each numeric field, if its shape is the same."""
    base_values = {answer["index"]: answer.get("values", {}) for answer in base}
    largest: dict[str, float] = {}
    for answer in answers:
        expected = base_values.get(answer["index"], {})
        for name, value in answer.get("values", {}).items():
            expected_value = expected.get(name)
            if (
                isinstance(value, np.ndarray)
                and isinstance(expected_value, np.ndarray)
                and value.shape == expected_value.shape
            ):
                with np.errstate(all="ignore"):
                    deviations = np.abs(
                        value.astype(np.float64) - expected_value.astype(np.float64)
                    )
                deviation = float(deviations[np.isfinite(deviations)].max(initial=0.0))
                largest[name] = max(largest.get(name, 0.0), deviation)
    return largest
