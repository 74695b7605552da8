"""Does a loader serve what was asked for, all of it, and nothing of its own making?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.cache.windows import Windows
from datacheck.child import Death
from datacheck.digest import digest64
from datacheck.finding import Finding, Severity
from datacheck.judging.judge import Judged
from datacheck.judging.select import CONTRACT
from datacheck.scan.loader import Loader
from datacheck.scan.runner import ScanRun
from datacheck.schema.model import Schema
from datacheck.table import CHECKED, UNREADABLE, Note, Table

Array = np.ndarray[Any, Any]

_PROBED = 8
_ROUNDS = 4
_FEWEST = 3  # samples that must be equal before "every index gives one sample" is more than chance
_LARGER = 3.0  # times: a share of failing samples that is clearly larger than in the files
_SURE = 3.0  # standard errors
_DROPPED_MOST = 0.5  # more missing than this is no loss but another way of counting


# ------------------------------------------------------------------------------------------ the index


@dataclass(frozen=True, eq=False)
class Served:
    """What the first pass knows of every index.

    Shapes:
        digests: uint64 (indices), 0 where there is no sample

    Args:
        keys: by index.
        digests: of whole samples.
        instead: the sample that the loader passed on, in words, by the index that it was asked for.
    """

    keys: Sequence[str]
    digests: Array
    instead: Mapping[int, str]


def ask_again(loader: Loader, items: Sequence[int]) -> list[tuple[int, dict[str, int]]]:
    """Return (index, digests) of indices asked again and again in turn, in one process; nothing where it dies."""
    if not items:
        return []
    said, death = loader.run("probe", {"items": list(items), "rounds": _ROUNDS})
    return [] if death is not None else [(index, digests) for index, digests in said["asked"]]


def of_index(served: Served, answers: Sequence[tuple[int, int]]) -> Iterator[Note]:
    """Yield notes about indices that are not served.

    Args:
        served: the first pass.
        answers: (index, digest) of the indices that were asked again.
    """
    known = served.digests[served.digests != 0]
    if len(known) >= _FEWEST and bool((known == known[0]).all()):
        yield _dataset("constant", samples=len(known))
        return
    others = set(known.tolist())
    moved = [(i, d) for i, d in answers if d != served.digests[i] and d in others]
    novel = [i for i, d in answers if d != served.digests[i] and d not in others]
    if len(moved) >= 2 and len(moved) > len(novel):
        index, digest = moved[0]
        other = int(np.flatnonzero(served.digests == np.uint64(digest))[0])
        yield _dataset(
            "index-ignored", asked=len(answers), moved=len(moved), distinct=len(others), samples=len(known),
            key=served.keys[index], other=served.keys[other],
        )  # fmt: skip
        return
    for index, passed_on in sorted(served.instead.items()):
        yield Note(CONTRACT, served.keys[index], "", about={"kind": "substituted", "instead": passed_on})


def of_end(loader: Loader, served: Served) -> Iterator[Note]:
    """Yield a note where the first index that does not exist is served, recurses or hangs."""
    said, death = loader.run("beyond", {"items": [loader.length]})
    if isinstance(death, Death):
        yield _dataset("beyond", length=loader.length, how=death.how.strip().splitlines()[-1])
    elif said.get("kind") == "RecursionError":
        yield _dataset("beyond", length=loader.length, how="RecursionError")
    elif "digests" in said:
        same = np.flatnonzero(served.digests == np.uint64(combined(said["digests"])))
        yield _dataset("beyond", length=loader.length, key=served.keys[int(same[0])] if len(same) else "")


def combined(digests: Mapping[str, int]) -> int:
    """Return one digest of a whole sample, never 0."""
    return digest64("".join(f"{name}\0{found:016x}\0" for name, found in sorted(digests.items())).encode()) or 1


def _dataset(kind: str, **about: Any) -> Note:
    return Note(CONTRACT, "", "", about={"kind": kind, **about})


# ------------------------------------------------------------------------------------------ against the files


def made_by_loader(judged: Judged, keys: Sequence[str], files: ScanRun, split: str) -> Iterator[Note]:
    """Yield a note for every sample that fails a rule as the loader returns it, while the files do not.

    Args:
        judged: what the rules say of the loader's samples.
        keys: of the rows.
        files: the scan of the files.
        split: the one that the loader serves, "" for all.

    Notes:
        Only rules that judged samples of the files. Where some fail there, too, the loader's share must be clearly
        larger: three times, and by three standard errors.
    """
    verdicts = {v.code: v for v in files.report.verdicts}
    checked = {v.code: v.checked for v in judged.verdicts}
    mine = np.array([not split or s == split for s in files.table.splits], dtype=bool)
    there = _by_code(files.report.findings)
    for code, findings in sorted(_by_code(judged.findings).items()):
        before = verdicts.get(code)
        if before is None or not before.checked:
            continue
        rows = sorted({int(row) for finding in findings for row in finding.rows})
        failed = {int(row) for finding in there.get(code, ()) for row in finding.rows if mine[int(row)]}
        of = min(before.checked, int((mine & (files.table.status == CHECKED)).sum()))
        if not _clearly_larger(len(rows), checked[code], len(failed), of):
            continue
        about = {
            "kind": "made", "rule": code, "name": findings[0].name, "says": findings[0].message,
            "fields": sorted({name for f in findings for name in f.fields}), "severity": findings[0].severity.value,
            "failed": len(failed), "of": of,
        }  # fmt: skip
        for row in rows:
            yield Note(CONTRACT, keys[row], "", about=about)


def _by_code(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        of_values = finding.code == "DC109" or finding.code[2] in "234567"
        if of_values and len(finding.rows) and finding.severity is not Severity.INFO:
            found.setdefault(finding.code, []).append(finding)
    return found


def _clearly_larger(failed: int, of: int, failed_before: int, of_before: int) -> bool:
    if not failed_before:
        return failed > 0
    share, before = failed / max(1, of), failed_before / max(1, of_before)
    both = (failed + failed_before) / max(1, of + of_before)
    error = (both * (1 - both) * (1 / max(1, of) + 1 / max(1, of_before))) ** 0.5
    return share >= _LARGER * before and share - before >= _SURE * error


def of_length(length: int, split: str, files: ScanRun, schema: Schema) -> tuple[list[Note], str]:
    """Return a note where the loader serves fewer samples than the files hold, or a sentence where that is unknown.

    Args:
        length: of the loader's dataset.
        split: the one that it serves, "" where the user has not said so.
        files: the scan of the files.
        schema: of the files.
    """
    counts = _counts(files.table, split, schema)
    if any(length == count for _, _, count in counts):
        return [], ""
    enough = [found for found in counts if found[2] > length]
    where, unit, count = min(enough, key=lambda found: found[2]) if enough else ("", "", 0)
    if not enough or count - length > _DROPPED_MOST * count:
        said = ", ".join(f"{count:,} {unit}{where}" for where, unit, count in counts[:4])
        return [], f"whether every sample of the files is served: the loader has {length:,}, the files {said}"
    reasons = _reasons(files, split or where.removeprefix(" of "), schema)
    why = [words for words, number in reasons.items() if number == count - length]
    return [_dataset("dropped", length=length, count=count, unit=unit, where=where, why=why)], ""


def _counts(table: Table, split: str, schema: Schema) -> list[tuple[str, str, int]]:
    """Return (which split, of what, how many) that a loader may serve."""
    splits = Counter(table.splits)
    wanted = [split] if split else [*sorted(name for name in splits if name), ""]
    counts = [(_of(name, splits), "samples", splits[name] if name else len(table)) for name in wanted]
    steps = _steps(table, schema)
    if schema.windows is None or steps is None:
        return counts
    said = schema.windows
    windows = Windows(said.length, said.stride, said.pad, said.short).counts(steps)
    of_split = {
        name: np.array([s == name for s in table.splits]) if name else np.ones(len(table), bool) for name in wanted
    }
    return counts + [(_of(name, splits), "windows", int(windows[of_split[name]].sum())) for name in wanted]


def _of(name: str, splits: Mapping[str, int]) -> str:
    return f" of {name}" if name else " in all" if len(splits) > 1 else ""


def _steps(table: Table, schema: Schema) -> Array | None:
    """Return the steps of each sample, 0 where they are not known: int64 (rows)."""
    names = [name for name, spec in sorted(schema.stored.items()) if spec.ragged == "T"]
    for name in sorted(names, key=lambda name: schema.fields[name].role != "action"):
        found = table.columns.get(f"{name}:dims")
        if found is not None:
            return np.where(found.present, found.values[:, 0], 0).astype(np.int64)
    return None


def _reasons(files: ScanRun, split: str, schema: Schema) -> dict[str, int]:
    """Return what may explain missing samples, and how many of the files' samples it concerns."""
    table = files.table
    mine = np.array([not split or split == "in all" or s == split for s in table.splits], dtype=bool)
    counts = {
        "as many as cannot be read": int((mine & (table.status == UNREADABLE)).sum()),
        "as many as the scan of the files calls unfit": int((mine & ~files.valid).sum()),
    }
    steps = _steps(table, schema)
    if schema.windows is not None and steps is not None:
        short = (steps > 0) & (steps < schema.windows.length)
        counts[f"as many as are shorter than {schema.windows.length} steps"] = int((mine & short).sum())
        said = schema.windows
        padded = Windows(said.length, said.stride, said.pad, said.short).counts(steps[mine]).sum()
        inside = Windows(said.length, said.stride).counts(steps[mine]).sum()
        words = f"as many as the windows that reach beyond the end of their episode (pad: {said.pad})"
        counts[words] = int(padded - inside)
    return {words: count for words, count in counts.items() if count}
