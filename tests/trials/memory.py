"""A scan without files: samples made in memory, measured in blocks and judged by the whole catalogue."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import DatacheckError
from datacheck.model.finding import Verdict
from datacheck.model.sample import Piece, Sample, stack
from datacheck.model.table import CHECKED, Note, Rows, Table, concatenate
from datacheck.rules import rules_for
from datacheck.rules.base import Rule, RuleContext
from datacheck.rules.engine import RuleResults, judge
from datacheck.rules.measurement import MeasurementRunner
from datacheck.rules.selection import choose_rules, measures_of
from datacheck.scan.pairs import value_columns
from datacheck.schema.model import Schema
from datacheck.testing.minimind import write_tokenizer

Array = np.ndarray[Any, Any]


# Templates of the tokenizers that examples and trials name.
TEMPLATES = {
    "model": "",
    "model-that-adds-bos": "",
    "model-without-system": "{% for m in messages if m.role != 'system' %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}",
}


@lru_cache
def tokenizer_folder(name: str) -> str:
    """Return the folder of a tokenizer that an example names, written once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="datacheck-tokenizer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_tokenizer(folder)
    if TEMPLATES[name]:
        config = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(
            json.dumps(config | {"chat_template": TEMPLATES[name]})
        )
    if name == "model-that-adds-bos":
        document = json.loads((folder / "tokenizer.json").read_text())
        bos = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
        document["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [
                bos,
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}},
            ],
            "special_tokens": {
                "<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}
            },
        }
        (folder / "tokenizer.json").write_text(json.dumps(document))
    return str(folder)


def schema_of(said: Mapping[str, Any]) -> Schema:
    """Return a schema from its keys, with what every schema needs filled in."""
    path = said.get("tokenizer", {}).get("path", "")
    if path in TEMPLATES:
        said = {**said, "tokenizer": said["tokenizer"] | {"path": tokenizer_folder(path)}}
    return Schema.model_validate(
        {"datacheck": 1, "name": "memory", "samples": {"files": "*"}} | dict(said)
    )


def measure_pieces(schema: Schema, pieces: Sequence[tuple[str, Piece]]) -> Table:
    """Return the rows of (split, sample) pairs.

    Raises:
        DatacheckError: a measurement failed.
    """
    bench = MeasurementRunner(schema, measures_of(choose_rules(schema, rules_for(schema))))
    tables = []
    for split in sorted({split for split, _ in pieces}):
        for block in stack([piece for s, piece in pieces if s == split], split):
            count = len(block)
            tables.append(
                Table(
                    keys=block.keys,
                    files=[origin.file for origin in block.origins],
                    inner=[""] * count,
                    splits=[split] * count,
                    groups=block.groups,
                    status=np.full(count, CHECKED, np.int8),
                    reasons=[""] * count,
                    nbytes=np.zeros(count, np.int64),
                    columns=bench.measure(block),
                )
            )
    if bench.crashes:
        raise DatacheckError(next(iter(bench.crashes.values()))["traceback"])
    return concatenate(tables)


class Reader:
    """Compares samples in memory, as a scan's second read does with samples in files."""

    def __init__(self, pieces: Sequence[tuple[str, Piece]]) -> None:
        self._samples = {(split, p.key): Sample(p.key, p.fields, p.origin) for split, p in pieces}

    def __call__(
        self, rule: Rule, case: RuleContext, split: str, rows: Rows, pairs: Array
    ) -> dict[str, Array]:
        """Return what `Rule.compare` says of each pair."""
        del split
        assert rule.compare is not None
        both = [self._samples[slot] for slot in zip(rows.splits, rows.keys, strict=True)]
        told = [
            (n, rule.compare(both[a], both[b], case)) for n, (a, b) in enumerate(pairs.tolist())
        ]
        return value_columns(len(pairs), iter(told))


def scan_pieces(
    schema: Schema,
    pieces: Sequence[tuple[str, Piece]],
    notes: Sequence[Note] = (),
    *,
    reference: Sequence[tuple[str, Piece]] | None = None,
) -> RuleResults:
    """Return what the whole catalogue says of samples in memory, as the deepest scan would.

    Args:
        schema: what they promise.
        pieces: (split, sample).
        notes: what a listing would know of them.
        reference: the samples of an earlier version to compare with.

    Raises:
        DatacheckError: a measurement or a judge failed.
    """
    before = None if reference is None else measure_pieces(schema, reference)
    table, choices = measure_pieces(schema, pieces), choose_rules(schema, rules_for(schema))
    found = judge(table, schema, choices, notes, reference=before, second=Reader(pieces))
    crashed = [v for v in found.verdicts if v.verdict is Verdict.CRASH]
    if crashed:
        raise DatacheckError(found.crashes[0]["traceback"])
    return found
