"""One sample of a finished run or of unscanned data, drawn in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from datacheck.errors import UsageError
from datacheck.model.table import CHECKED, Table, Texts
from datacheck.preview.drawings import MAX_POINTS, mark_trained_ranges
from datacheck.preview.sample_reader import (
    ChosenSample,
    PreviewChild,
    PreviewTasks,
    with_own_tokenizer,
)
from datacheck.scan.run_documents import (
    SAMPLES,
    read_result,
    read_schema,
    read_valid,
    reading,
    run_in,
    unread,
)
from datacheck.scan.run_state import RunState, read_state
from datacheck.scan.samples import read_failing
from datacheck.scan.scanned_dataset import list_dataset
from datacheck.schema.model import Schema
from datacheck.sources import check_alone, plan_work, with_rate
from datacheck.sources.listing import target

_BYTES = 20_000_000  # of all pictures of the sample
_SECONDS = 120.0
_CANDIDATES = 8  # files tried for a key
_FOREIGN_TOKENIZER = (
    "texts not tokenized: no file outside of the data folder is opened because the schema.yaml of "
    "a run names it. Name "
    "the schema: datacheck view KEY --data DATA --schema FILE"
)
_MAX_KEY_CHARS = 200  # longer keys are not compared for a "Did you mean"
_MAX_KEYS_COMPARED = 2000  # keys compared for a "Did you mean"


def sample_of_run(run: Path, key: str) -> dict[str, Any]:
    """Return the data of a page for a sample of a finished run: its pictures and findings.

    Args:
        run: its folder, or the folder of all runs for the newest.
        key: the sample's key, or a unique suffix of it.

    Raises:
        UsageError: the run or the sample does not exist, or the run is of a loader.
    """
    place = run_in(run)
    if place is None:
        msg = (
            f"{run}: is no finished run. Scan the data first, or name them: datacheck view KEY "
            f"--data DATA"
        )
        raise UsageError(msg)
    try:
        result = read_result(place)
        past = read_state(place)
        schema = read_schema(place)
        failing = read_failing(place / SAMPLES)
        valid = read_valid(place, len(past.table))
    except Exception as error:
        raise unread(run, error) from error
    if not past.measured:
        msg = (
            f"{run}: is of a loader, whose samples are in no file. Name the data: datacheck view "
            f"KEY --data DATA"
        )
        raise UsageError(msg)
    with reading(run):
        return _scanned_sample(run, key, result, past, schema, failing, valid)


def _scanned_sample(
    run: Path,
    key: str,
    result: Mapping[str, Any],
    past: RunState,
    schema: Schema,
    failing: Texts,
    valid: Mapping[str, Any],
) -> dict[str, Any]:
    row = row_of(past.table, key, f"{run}, a scan of {result['dataset']['root']}")
    listing, table = past.listing, past.table
    codes = failing[row].split()
    findings = list(_findings_of(result["findings"], codes, table.splits[row], set(table.splits)))
    wanted_fields = list(dict.fromkeys(name for finding in findings for name in finding["fields"]))
    why = "" if table.status[row] == CHECKED else table.reasons[row]
    chosen = ChosenSample(table.keys[row], table.splits[row], table.files[row], why, wanted_fields)
    own = with_own_tokenizer(schema, listing.root)
    placed = with_rate(own.placed(listing.roots, listing.root), listing, [table.files[row]]).schema
    sample: dict[str, Any] = {"fields": [], "why": why, "left_out": []}
    if not why:
        sample = _read_sample(
            PreviewTasks(placed, listing.root, listing.roots, listing, strict=True), [chosen]
        )
    mark_trained_ranges(
        sample["fields"], valid.get("ranges", {}).get(chosen.key), schema.for_split(chosen.split)
    )
    return _sample_view(chosen, sample, schema, listing.root) | {
        "run": result["run"]["id"],
        "codes": codes,
        "findings": findings,
        **({} if own is schema else {"notes": [_FOREIGN_TOKENIZER]}),
    }


def _findings_of(
    findings: Sequence[Mapping[str, Any]],
    codes: Sequence[str],
    split: str,
    splits: AbstractSet[str],
) -> Iterator[dict[str, Any]]:
    """Yield the findings of the rules that a sample fails.

    They are those of its split, of all splits, or of splits judged as one.
    """
    own = {finding["rule"] for finding in findings if finding["split"] == split}
    for finding in findings:
        others = finding["split"] not in {"", *splits} and finding["rule"] not in own
        if finding["rule"] in codes and (finding["split"] in {"", split} or others):
            yield {
                name: finding[name]
                for name in ("rule", "name", "severity", "fields", "message", "fix")
            }


def sample_of_data(
    data: Path, key: str, schema: Schema, roots: Mapping[str, Path]
) -> dict[str, Any]:
    """Return the data of a page for a sample of unscanned data: its pictures.

    Args:
        data: folder or file.
        key: the sample's key as a scan names it: the file relative to `data`, then ":" and the
            place in it.
        schema: of the data.
        roots: extra folders by name.

    Raises:
        UsageError: the data is missing, or holds no such sample.
    """
    root, _ = target(data)
    listing = list_dataset(data, roots)
    placed = schema.placed(roots, root)
    check_alone(placed, listing.alone, schema.tokenizer)
    items = plan_work(placed, listing).items
    within = sorted(
        (item for item in items if key.startswith(item.path)), key=lambda item: -len(item.path)
    )
    why = ""
    for item in within[:_CANDIDATES]:
        chosen = ChosenSample(key, item.split, item.path)
        own = with_rate(placed, listing, [item.path]).schema
        sample = _read_sample(PreviewTasks(own, root, listing.roots, listing), [chosen])
        if sample["fields"]:
            return _sample_view(chosen, sample, schema, root) | {
                "run": "",
                "codes": [],
                "findings": [],
            }
        why = sample["why"]
    if within and within[0].path == key:
        msg = f"{data}: nothing can be shown of {key!r}: {why}"
        raise UsageError(msg)
    hint = _key_hint(key, [item.path for item in items[:_MAX_KEYS_COMPARED]])
    msg = f"{data}: no sample {key!r}{f' ({why})' if why else ''}. {hint}"
    raise UsageError(msg)


def row_of(table: Table, key: str, run: str) -> int:
    """Return the row of a key, or of the only key with this suffix.

    Args:
        table: of a run.
        key: whole, or its end.
        run: name of the table's origin, for messages.

    Raises:
        UsageError: no key, or more than one, has this suffix.
    """
    matches = (
        [row for row, table_key in enumerate(table.keys) if table_key.endswith(key)] if key else []
    )
    exact = [row for row in matches if table.keys[row] == key]
    if exact or len(matches) == 1:
        return (exact or matches)[0]
    if matches:
        examples = ", ".join(table.keys[row] for row in matches[:3])
        msg = f"{run}: {len(matches):,} samples end with {key!r}: {examples} ... Write more of the key."
        raise UsageError(msg)
    hint = _key_hint(key, [table.keys[row] for row in range(min(len(table), _MAX_KEYS_COMPARED))])
    msg = (
        f"{run}: no sample {key!r}. {hint} Of another scan: --run DIR; of other data: --data DATA."
    )
    raise UsageError(msg)


def _key_hint(key: str, keys: Sequence[str]) -> str:
    near = (
        get_close_matches(
            key, [known_key for known_key in keys if len(known_key) <= _MAX_KEY_CHARS], n=1
        )
        if len(key) <= _MAX_KEY_CHARS
        else []
    )
    return (
        f"Did you mean {near[0]}?"
        if near
        else f"Keys look like {keys[0]}"
        if keys
        else "The data hold no sample."
    )


def _read_sample(reader: PreviewTasks, samples: Sequence[ChosenSample]) -> dict[str, Any]:
    """Return the pictures of one sample, or why there are none."""
    if refusal := reader.refusal(samples[0].file, samples):
        return {"fields": [], "why": refusal, "left_out": []}
    with closing(PreviewChild(reader.sandbox, _SECONDS)) as child:
        task = reader.task(samples[0].file, samples, MAX_POINTS, _BYTES)
        (sample,) = list(child.draw(task, samples, _SECONDS))[:1]
    return sample


def _sample_view(
    chosen: ChosenSample, sample: Mapping[str, Any], schema: Schema, root: Path
) -> dict[str, Any]:
    place = {
        "key": chosen.key,
        "split": chosen.split,
        "file": chosen.file,
        "root": str(root),
        "schema": schema.name,
    }
    return place | {"sample": {"key": chosen.key, "split": chosen.split, **sample}}
