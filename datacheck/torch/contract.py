"""The live contract: judges batches by a scan's rules; ranks agree before any of them raises."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import distributed

from datacheck.errors import BatchError, ManyLines, UsageError
from datacheck.model.finding import Finding, Level, Severity
from datacheck.model.named_values import RefusedError
from datacheck.rules import rules_for
from datacheck.rules.engine import judge
from datacheck.rules.measurement import MeasurementRunner, check_tokenizer
from datacheck.rules.selection import Choice, choose_rules, for_loader, measures_of, served
from datacheck.runtime.hashing import shortened
from datacheck.schema.load import load_schema
from datacheck.schema.model import ANY, Schema
from datacheck.torch.order import whole_number
from datacheck.torch.served import has_windows, is_empty, name_places, samples_of

_UNREADABLE = "DC101"
_EMPTY = "DC103"
_MISSING = "DC121"
_CONTRACT = "DC905"
_EPISODE_RULES = frozenset({"DC501"})  # a window may be shorter than the shortest episode allowed
_LISTED = 8
_KEY_BYTES = 200  # limit of a sample's id, which a fault repeats on all ranks
_EVEN_BATCHES_FIX = (
    "Give every rank equally many full batches: "
    "batch_sampler=datacheck.torch.Sampler(...), or drop_last=True."
)
_LOADER_FIX = (
    "Mend the loader or the data that it reads (datacheck scan --loader), or let "
    "ResamplingDataset replace samples."
)
_FIELDS_HINT = " Where batches hold only some of the schema's fields: guard(..., fields=[...])."


class BatchFault(NamedTuple):
    """A fault in a batch of one rank: the rule's code, a text, and the positions of the samples."""

    code: str
    words: str
    cause: str = ""
    fix: str = ""
    samples: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()


def guard(
    loader: Iterable[Any],
    schema: Schema | str | Path,
    *,
    first: int = 8,
    every: int = 100,
    fields: Sequence[str] | None = None,
    split: str = "",
    group: Any = None,
) -> Guard:
    """Return the loader with its batches judged by the schema, by the rules of a scan.

    Args:
        loader: any iterable of batches (see `samples_of` for their forms), iterated on every rank.
        schema: the schema of the samples as the loader returns them, or its name or file.
        first: how many batches are judged at the start, 0 or more; after them one in `every`, 1 or
            more.
        fields: the fields that batches hold; other fields of the schema may be missing. None: every
            field is expected.
        split: the split of the schema that the loader serves.
        group: gloo group of the ranks that iterate; None: all ranks, in a new group made at the
            first batch.

    Raises:
        UsageError: an option or the schema is wrong.

    Notes:
        Every batch is checked for existence and for samples. Iterating raises `BatchError`, see
        `Guard.__iter__`. Rules over a dataset, a group or a pair, and rules that allow some samples
        to fail, do not apply: they need more than a batch.
    """
    return Guard(loader, BatchJudge(schema, fields, split), first, every, group)


class Guard:
    """A loader whose batches are judged; other attributes are those of the loader itself.

    Args:
        loader: yields batches.
        judge: returns the faults of a batch.
        first, every: which batches are judged.
        group: the group of the ranks that iterate.

    Attributes:
        batches: how many were served, over all epochs; also the number of the next batch.
    """

    def __init__(
        self, loader: Iterable[Any], judge: BatchJudge, first: int, every: int, group: Any = None
    ) -> None:
        self._loader, self._judge, self._group = loader, judge, group
        self._first, self._every = whole_number("first", first), whole_number("every", every, 1)
        self.batches = 0

    def __len__(self) -> int:
        # TypeError where the loader has no length, as the loader itself raises.
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also during unpickling, when there is no loader yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches themselves, unchanged.

        Raises:
            BatchError: a batch of this or another rank is wrong, the loader of a rank raised or
                ended before the others: the same error on every rank, at the same batch. Or another
                rank has died.
        """
        source: Iterator[Any] | None = None
        while True:
            fetched: list[Any] = []
            faults = []
            ended = False
            cause = None
            try:
                source = iter(self._loader) if source is None else source
                fetched.append(next(source))
            except StopIteration:
                ended = True
            # Any exception of the user's loader: the other ranks wait for this rank's message.
            except Exception as error:  # noqa: BLE001
                faults = [
                    BatchFault(
                        _UNREADABLE, f"the loader raised {_error_text(error)}", fix=_LOADER_FIX
                    )
                ]
                cause = error
            if fetched:
                faults = self._faults(fetched[0])
            if message := self._agreed_message(faults, ended=ended):
                # The traceback keeps this frame: release the batch, threads and workers.
                del (source, fetched)
                raise BatchError(message) from cause
            if ended:
                return
            self.batches += 1
            yield fetched.pop()  # this frame keeps no reference to the loop's batch

    def _faults(self, batch: Any) -> list[BatchFault]:
        try:
            if self._judge.has_no_samples(batch):
                return [BatchFault(_EMPTY, "the batch has no samples", fix=_EVEN_BATCHES_FIX)]
            batches_since = self.batches - self._first
            return (
                self._judge(batch) if batches_since < 0 or batches_since % self._every == 0 else []
            )
        except Exception as error:  # noqa: BLE001  as above: no rank may raise alone
            return [BatchFault(_UNREADABLE, f"the batch could not be judged: {_error_text(error)}")]

    def _agreed_message(self, faults: list[BatchFault], *, ended: bool) -> str:
        """Return the message of all ranks about a batch, "" if all is well; equal on every rank.

        Raises:
            BatchError: a rank has died, or does not answer within the time limit of the group.
        """
        running = distributed.is_available() and distributed.is_initialized()
        # The size is -1 on a rank outside the group.
        if not running or distributed.get_world_size(self._group) <= 1:
            return _message(
                self.batches, {distributed.get_rank() if running else 0: (faults, ended)}
            )
        try:
            return _message(self.batches, self._exchange_faults(faults, ended=ended))
        except RuntimeError as error:
            msg = (
                f"batch {self.batches}: another rank has ended or does not answer; look at its "
                f"own error ({error})"
            )
            raise BatchError(msg) from error

    def _exchange_faults(self, faults: list[BatchFault], *, ended: bool) -> dict[int, Any]:
        """Return the faults of each rank, nothing if all is well."""
        if self._group is None:
            self._group = distributed.new_group(backend="gloo", timeout=_group_timeout())
        word = torch.tensor([bool(faults), ended, not ended], dtype=torch.uint8)
        distributed.all_reduce(word, distributed.ReduceOp.MAX, group=self._group)
        wrong, any_ended, any_running = word.tolist()
        if not wrong and not (any_ended and any_running):
            return {}
        gathered: list[Any] = [None] * distributed.get_world_size(self._group)
        distributed.all_gather_object(gathered, (faults, ended), group=self._group)
        return dict(zip(distributed.get_process_group_ranks(self._group), gathered, strict=True))


def _group_timeout() -> timedelta | None:
    """Return the time limit of the process group, or None if it is unknown.

    A new group does not inherit the limit.
    """
    world = distributed.group.WORLD
    try:
        # PyTorch has no public access to the limit.
        limit: timedelta = world._get_backend(world._device_types[0]).options._timeout  # noqa: SLF001
    except (AttributeError, IndexError, RuntimeError):
        return None
    return limit


def _error_text(error: Exception) -> str:
    """Return type and message of an error on one line.

    A DataLoader's workers put a traceback into the message: it is cut to its first and last line.
    """
    text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        lines = text.splitlines()
        text = f"{lines[0]} {lines[-1]}"
    return f"{type(error).__name__}: {text}"


def _message(number: int, reports: Mapping[int, tuple[Sequence[BatchFault], bool]]) -> str:
    lines = [
        line
        for rank, (faults, _) in reports.items()
        for fault in faults
        for line in _lines(rank, fault)
    ]
    ended = [rank for rank, (_, end) in reports.items() if end]
    if 0 < len(ended) < len(reports):
        running_rank = next(rank for rank in reports if rank not in ended)
        for rank in ended:
            lines += _lines(
                rank,
                BatchFault(
                    _CONTRACT,
                    f"its loader has ended, that of rank {running_rank} has not",
                    fix=_EVEN_BATCHES_FIX,
                ),
            )
    return ManyLines.of([f"batch {number} is wrong:", *lines]) if lines else ""


def _lines(rank: int, fault: BatchFault) -> Iterator[str]:
    place_text = "batch"
    if fault.samples:
        place_text = f"sample{'s' if len(fault.samples) > 1 else ''} {_join_limited(fault.samples)}"
        place_text += f" ({_join_limited(fault.keys)})" if fault.keys else ""
    yield f"  rank {rank}, {place_text}: {fault.code} {fault.words}"
    if fault.cause:
        yield f"    cause: {fault.cause}"
    if fault.fix:
        yield f"    fix: {fault.fix}"


def _join_limited(words: Sequence[Any]) -> str:
    rest_count = len(words) - _LISTED
    return ", ".join(map(str, words[:_LISTED])) + (
        f" and {rest_count:,} more" if rest_count > 0 else ""
    )


# ------------------------------------------------------------------------------------------ judging


class BatchJudge:
    """Finds the faults of a batch.

    Args:
        schema: the schema of its samples, or its name or file.
        fields: the fields that batches hold; None: all.
        split: the split of the schema that the batches come from.

    Raises:
        UsageError: the schema, a field or the schema's tokenizer does not exist.
        MissingDependencyError: the package that reads the tokenizer is not installed.
    """

    def __init__(
        self, schema: Schema | str | Path, fields: Sequence[str] | None, split: str
    ) -> None:
        loaded_schema = schema if isinstance(schema, Schema) else load_schema(schema)
        promised = _with_expected_fields(served(loaded_schema).for_split(split), fields)
        self._choices = [
            c
            for c in map(for_loader, choose_rules(promised, rules_for(promised)))
            if _is_sample_rule(c)
        ]
        _check_tokenizer(promised, self._choices)
        # The choices carry the waivers. With them in the schema, `judge` would report each waiver
        # that no sample of a batch needs as stale.
        bare = {
            code: settings.model_copy(update={"ignore": ()})
            for code, settings in promised.rules.items()
        }
        self._schema = promised.model_copy(update={"rules": bare})
        self._at = {
            name: spec.at or "" for name, spec in promised.stored.items() if not spec.absent
        }
        self._rest = not self._at or ANY in promised.fields
        self._id = next((name for name, _ in promised.of_role("id")), "")
        self._steps = {
            name for name, spec in promised.stored.items() if spec.shape and spec.ragged is None
        }

    def has_no_samples(self, batch: Any) -> bool:
        """Whether the batch has no samples."""
        return is_empty(name_places(batch, self._at))

    def __call__(self, batch: Any) -> list[BatchFault]:
        """Return the faults of a batch, worst first."""
        batch = name_places(batch, self._at)
        try:
            samples = samples_of(batch, self._at, self._steps, rest=self._rest)
            windows = has_windows(batch)
        except RefusedError as error:
            return [BatchFault(_UNREADABLE, str(error), fix=_LOADER_FIX)]
        choices = [c for c in self._choices if not (windows and c.rule.code in _EPISODE_RULES)]
        runner = MeasurementRunner(self._schema, measures_of(choices))
        keys = [_sample_key(sample.get(self._id), place) for place, sample in enumerate(samples)]
        table = runner.measure_samples(keys, samples, "batch")
        judgement = judge(table, self._schema, choices, crashes=list(runner.crashes.values()))
        faults = [
            self._fault(finding, table.keys, table.inner)
            for finding in judgement.findings
            if finding.severity is Severity.ERROR
        ]
        for crash in judgement.crashes:
            error_line = crash["traceback"].strip().splitlines()[-1]
            faults.append(
                BatchFault(crash["rule"], f"could not look at {crash['at']}: {error_line}")
            )
        return faults

    def _fault(self, finding: Finding, keys: Sequence[str], places: Sequence[str]) -> BatchFault:
        """Return the fault of a finding, given key and position in the batch of each row."""
        rows = sorted(finding.rows.tolist(), key=lambda row: int(places[row]))
        about = f"{', '.join(finding.fields)}: " if finding.fields else ""
        cause = (
            ""
            if finding.cause is None or finding.cause.text in finding.message
            else finding.cause.text
        )
        fix = finding.fix + _FIELDS_HINT if finding.code == _MISSING else finding.fix
        row_keys = tuple(keys[row] for row in rows)
        return BatchFault(
            finding.code,
            f"{finding.name}: {about}{finding.message}",
            cause,
            fix,
            tuple(int(places[row]) for row in rows),
            () if all(key.startswith("#") for key in row_keys) else row_keys,
        )


def _is_sample_rule(choice: Choice) -> bool:
    return (
        choice.verdict is None and choice.rule.level is Level.SAMPLE and not choice.settings.allow
    )


def _check_tokenizer(schema: Schema, choices: Sequence[Choice]) -> None:
    """Refuse a tokenizer that does not exist, and say where guard looks for it."""
    try:
        check_tokenizer(schema, measures_of(choices))
    except UsageError as error:
        msg = (
            f"schema {schema.name}: tokenizer: {error}. A scan takes a relative path from its data "
            f"folder, guard from "
            f"{Path.cwd()}; give the folder: guard(loader, datacheck.load_schema(...).placed((), "
            f"Path(DATA)))"
        )
        raise UsageError(msg) from error


def _with_expected_fields(schema: Schema, fields: Collection[str] | None) -> Schema:
    """Return the schema with all fields other than `fields` made optional."""
    if fields is None:
        return schema
    unknown = [name for name in fields if name not in schema.stored]
    if unknown:
        msg = (
            f"schema {schema.name} has no field {', '.join(unknown)}; it has "
            f"{', '.join(schema.stored)}"
        )
        raise UsageError(msg)
    relaxed_fields = {
        name: spec
        if name in fields or name not in schema.stored
        else spec.model_copy(update={"optional": True})
        for name, spec in schema.fields.items()
    }
    return schema.model_copy(update={"fields": relaxed_fields})


def _sample_key(value: Any, place: int) -> str:
    """Return a sample's id if it has one, else its position in the batch."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = str(value.item())
    return shortened(value, _KEY_BYTES) if isinstance(value, str) and value else f"#{place}"
