"""Compares the step traces of two runs: which column diverges first, and at which step."""

from __future__ import annotations

import itertools
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.repro.recorded import Line, RecordedRun, Trace, is_flat
from datacheck.repro.tensors import FOLDED

# The columns of a step, cause before effect.
CAUSES = ("indices", "input", "loss", "grads", "updates", "lr", "params", "optimizer", "scale")
COLUMNS = (*CAUSES, "grad_norm")
_HIGHEST = (1 << 64) - 1
# Limits: generators and epochs of a rank; characters of an epoch's digest
_RANDOM = 64
_EPOCHS = 1_000_000
_DIGEST = 1_000
# Limits of values that are kept: letters of a value, values of a list, bytes over all ranks
_VALUE_CHARS = 1_000
_LIST_VALUES = 32
_DIVERGENCES = 1 << 30
_COLUMN_BYTES = 256  # memory of a `ColumnDivergence` without its values
_DIGESTS = ("input", "grads", "params", "optimizer")
# Random generators, by who usually draws from them.
_MODEL_GENERATORS = ("torch", "cuda")
_SCRIPT_GENERATORS = ("python", "numpy")


@dataclass(frozen=True)
class ColumnDivergence:
    """The divergence of one column.

    Args:
        name: of the column.
        step: the first step at which it differs.
        after: the last step before that at which it was recorded, and equal; None: there is none.
        a, b: its values at `step`; of long ones, the beginning as a text.
        rank: the rank.
        epoch: the epoch of the step.
    """

    name: str
    step: int
    after: int | None
    a: Any
    b: Any
    rank: int = 0
    epoch: int | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: the step, then causes before effects."""
        return self.step, CAUSES.index(self.name) if self.name in CAUSES else len(CAUSES), self.rank


@dataclass
class Divergence:
    """The comparison of the traces of one rank.

    Args:
        rank: the rank.
        compared: number of steps that both have.
        first: the first step that both have.
        last: the last step of each run.
        only: number of steps that only one run has, by run, counted from where both had begun.
        columns: the columns that diverge, in the order of `ColumnDivergence.order`.
        equal: by column, the last step at which it was equal.
        begun: by epoch of a diverging column, its first step.
        unlike: columns digested on a device in one run and in main memory in the other.
        known: columns that both have.
        alone: columns that only one run has at a step, and which run.
        nested: columns that are not compared at a step, as a value is not `is_flat`.
        dropped: number of lines of steps by run whose number stands twice or does not rise.
        unequal: by column, at how many steps it differs, and the number of the compared step at
            which it diverged.
        shuffled: epochs of diverging columns with the same sample values though batches differ.
        permuted: the same for the same set of indices.
    """

    rank: int
    compared: int = 0
    first: int | None = None
    last: dict[str, int] = field(default_factory=dict)
    only: dict[str, int] = field(default_factory=lambda: {"A": 0, "B": 0})
    columns: list[ColumnDivergence] = field(default_factory=list)
    equal: dict[str, int] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)
    unlike: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    alone: dict[str, str] = field(default_factory=dict)
    nested: set[str] = field(default_factory=set)
    dropped: dict[str, int] = field(default_factory=lambda: {"A": 0, "B": 0})
    unequal: dict[str, tuple[int, int]] = field(default_factory=dict)
    shuffled: list[int] = field(default_factory=list)
    permuted: list[int] = field(default_factory=list)
    # The names of `columns`, looked up at each step.
    _parted: set[str] = field(default_factory=set)
    _random: set[str] = field(default_factory=set)  # generators of all steps

    def take(self, one: Line, other: Line) -> None:
        """Compare two lines of one step.

        Raises:
            UsageError: the steps so far name too many generators.
        """
        self.compared += 1
        step = one["step"]
        epoch = one["epoch"] if type(one.get("epoch")) is int else None
        self.first = step if self.first is None else self.first
        if epoch is not None and len(self.begun) < _EPOCHS:
            self.begun.setdefault(epoch, step)
        self.alone |= {
            name: "A" if name in one else "B"
            for name in one.keys() ^ other.keys()
            if name in COLUMNS
        }
        values = list(_values(one, other, self.nested))
        self._count([name for name, _, _ in values if name.startswith("random ")])
        for name, x, y in values:
            if name in _DIGESTS and unlike(x, y):
                self.unlike.add(name)
                continue
            self.known.add(name)
            if x != y:
                count, first_position = self.unequal.get(name, (0, self.compared))
                self.unequal[name] = count + 1, first_position
            if name in self._parted:
                continue
            if x == y:
                self.equal[name] = step
            else:
                self._parted.add(name)
                a, b = _beginning(x), _beginning(y)
                self.columns.append(
                    ColumnDivergence(name, step, self.equal.get(name), a, b, self.rank, epoch)
                )

    def _count(self, generators: Iterable[str]) -> None:
        self._random.update(generators)
        if len(self._random) > _RANDOM:
            msg = (
                f"rank {self.rank}: its steps name more than {_RANDOM} random generators. A "
                f"recorded run is wanted."
            )
            raise UsageError(msg)

    def often(self, name: str) -> tuple[int, int]:
        """Return at how many steps a column differs, and how many there are from its divergence."""
        count, first_position = self.unequal[name]
        return count, self.compared - first_position + 1

    def column(self, name: str) -> ColumnDivergence | None:
        """Return the divergence of a column, None if there is none."""
        return next((candidate for candidate in self.columns if candidate.name == name), None)

    def finish(self) -> None:
        """Sort the columns, and forget what only the comparison of further steps needs.

        All ranks are held at once, and each may have a million epochs and 64 generators.
        """
        self.columns.sort(key=lambda column: column.order)
        epochs = self.epochs
        self.begun = {epoch: step for epoch, step in self.begun.items() if epoch in epochs}
        self.equal = {name: step for name, step in self.equal.items() if name in COLUMNS}
        self.unequal = {name: count for name, count in self.unequal.items() if name in COLUMNS}
        self.known.intersection_update(COLUMNS)
        self._parted.clear()
        self._random.clear()

    @property
    def epochs(self) -> set[int]:
        """The epochs in which a column diverges."""
        return {column.epoch or 0 for column in self.columns}

    @property
    def held(self) -> int:
        """Bytes of memory that the columns take."""
        return sum(
            _COLUMN_BYTES + sum(map(_size, (one.name, one.a, one.b))) for one in self.columns
        )


def _beginning(value: Any) -> Any:
    """Return a value of a step, or the beginning of a long one: a line has up to 16 MiB."""
    if isinstance(value, list) and len(value) > _LIST_VALUES:
        value = str(value[:_VALUE_CHARS])
    text = value if isinstance(value, str) else str(value)
    return value if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}..."


def _size(value: Any) -> int:
    items = value if isinstance(value, list) else ()
    return sys.getsizeof(value) + sum(map(sys.getsizeof, items))


def began(run: RecordedRun, rank: int) -> int:
    """Return the number of a rank's first step; it is not 0 if the run resumed."""
    first = run.starts.get(rank, {}).get("first")
    return first if type(first) is int and first > 0 else 0


def compare_steps(a: Trace, b: Trace, rank: int, *, since: int = 0) -> Divergence:
    """Return where the traces of a rank diverge; they are read line by line, whatever their length.

    Args:
        a, b: the traces.
        rank: their rank.
        since: the step at which the later run began; earlier steps that only one run has are not
            counted.
    """
    divergence = Divergence(rank)
    for line_a, line_b in _align_steps(a, b, divergence.dropped):
        if line_a is not None and line_b is not None:
            divergence.take(line_a, line_b)
        elif (line_a or line_b or {})["step"] >= since:
            divergence.only["B" if line_a is None else "A"] += 1
        divergence.last |= {
            side: line["step"] for side, line in (("A", line_a), ("B", line_b)) if line is not None
        }
    divergence.finish()
    if divergence.column("input") or divergence.column("indices"):
        epochs = divergence.epochs
        divergence.shuffled, divergence.permuted = (
            [epoch for epoch in _same_epochs(a, b, name) if epoch in epochs]
            for name in ("values", "set")
        )
    return divergence


def _align_steps(
    a: Trace, b: Trace, dropped: dict[str, int]
) -> Iterator[tuple[Line | None, Line | None]]:
    """Yield lines of equal steps as pairs; a step that only one has is paired with None.

    Lines with a damaged number are counted in `dropped`.
    """
    lines_a = _increasing_steps(a, dropped, "A")
    lines_b = _increasing_steps(b, dropped, "B")
    line_a = next(lines_a, None)
    line_b = next(lines_b, None)
    while line_a is not None or line_b is not None:
        if line_b is None or (line_a is not None and line_a["step"] < line_b["step"]):
            yield line_a, None
            line_a = next(lines_a, None)
        elif line_a is None or line_b["step"] < line_a["step"]:
            yield None, line_b
            line_b = next(lines_b, None)
        else:
            yield line_a, line_b
            line_a = next(lines_a, None)
            line_b = next(lines_b, None)


def _increasing_steps(trace: Trace, dropped: dict[str, int], side: str) -> Iterator[Line]:
    """Yield the lines of steps without damaged step numbers: one too high would hide the rest."""
    numbers = array("Q", (min(line["step"], _HIGHEST) for line in trace.of("step")))
    keep_flags = _longest_rise(numbers)
    if keep_flags is None:
        yield from trace.of("step")
        return
    # Of two lines with the same number, either may be the damaged one
    step_numbers, counts = np.unique(np.frombuffer(numbers, np.uint64), return_counts=True)
    twice = set(step_numbers[counts > 1].tolist())
    flagged_lines = zip(trace.of("step"), numbers, keep_flags, strict=False)
    for line, number, keep in flagged_lines:
        if keep and number not in twice:
            yield line
        else:
            dropped[side] += 1


def _longest_rise(numbers: array[int]) -> bytearray | None:
    """Return which numbers form the longest increasing subsequence; None if all do."""
    if all(one < other for one, other in itertools.pairwise(numbers)):
        return None
    lows = array("Q")  # by length: the lowest last number of an increasing subsequence
    ends = array("q")  # and its position
    predecessors = array("q")
    for place, number in enumerate(numbers):
        length = bisect_left(lows, number)
        predecessors.append(ends[length - 1] if length else -1)
        if length == len(lows):
            lows.append(number)
            ends.append(place)
        elif number < lows[length]:
            lows[length], ends[length] = number, place
    keep_flags = bytearray(len(numbers))
    place = ends[-1]
    while place >= 0:
        keep_flags[place], place = 1, predecessors[place]
    return keep_flags


def _values(line_a: Line, line_b: Line, nested: set[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the columns that both lines have; those with nested values are added to `nested`."""
    for name in COLUMNS:
        x = line_a.get(name)
        y = line_b.get(name)
        if x is None or y is None:
            continue
        if is_flat(x) and is_flat(y):
            yield name, x, y
        else:
            nested.add(name)
    x = line_a.get("random")
    y = line_b.get("random")
    if isinstance(x, dict) and isinstance(y, dict):
        names = (name for name in sorted({*x} & {*y}) if is_flat(x[name]) and is_flat(y[name]))
        yield from ((f"random {name}", x[name], y[name]) for name in names)


def unlike(one: Any, other: Any) -> bool:
    """Return whether two digests are incomparable: of tensors on a device and in main memory.

    Args:
        one, other: a digest, or several separated by blanks (of several optimizers).
    """
    if not (isinstance(one, str) and isinstance(other, str)):
        return False
    return any(
        _is_device_digest(x) != _is_device_digest(y)
        for x, y in zip(one.split(" "), other.split(" "), strict=False)
    )


def _is_device_digest(digest: str) -> bool:
    return digest.startswith(FOLDED) and len(digest) == 17


def _same_epochs(a: Trace, b: Trace, digest_name: str) -> Iterator[int]:
    """Yield the epochs in which both runs had the same samples, by their values or index sets."""
    digests_b: dict[int, Any] = {}
    for line in b.of("epoch"):
        digest = line.get(digest_name)
        if line["epoch"] in digests_b or len(digests_b) < _EPOCHS:
            digests_b[line["epoch"]] = (
                digest if isinstance(digest, str) and len(digest) <= _DIGEST else None
            )
    for line in a.of("epoch"):
        if isinstance(line.get(digest_name), str) and line[digest_name] == digests_b.get(
            line["epoch"]
        ):
            del digests_b[line["epoch"]]
            yield line["epoch"]


# ----------------------------------------------------------------------------------- interpretation


def first_column(parting: Divergence) -> ColumnDivergence | None:
    """Return the column that diverges first; the gradient norm only if no other column does."""
    causes = [column for column in parting.columns if column.name in CAUSES]
    norms = [column for column in parting.columns if column.name == "grad_norm"]
    return next(iter([*causes, *norms]), None)


def meaning(parting: Divergence, column: ColumnDivergence, *, weights_equal: bool | None) -> str:
    """Return one sentence on what it means that this column diverges first.

    Args:
        parting: the comparison of the rank.
        column: from `first_column`.
        weights_equal: whether the rank began with equal weights and optimiser states; None:
            unknown.
    """
    explainers = {
        "indices": _explain_indices,
        "input": _explain_input,
        "lr": _explain_settings,
        "scale": _explain_settings,
        "updates": _explain_updates,
    }
    if column.name in explainers:
        return explainers[column.name](parting, column)
    if column.name == "grad_norm":
        return (
            "only the gradient norm that is reported differs: its sum depends on the number of "
            "threads; what was "
            "trained is equal as far as it was digested"
        )
    return _explain_arithmetic(parting, column, weights_equal=weights_equal)


def _explain_indices(parting: Divergence, column: ColumnDivergence) -> str:
    if column.epoch in {*parting.shuffled, *parting.permuted}:
        return (
            "the order of samples differs, the samples of the epoch are the same: sampler, seed "
            "or epoch"
        )
    return "other samples are drawn: sampler, seed, epoch, or the set of samples"


def _explain_input(parting: Divergence, column: ColumnDivergence) -> str:
    same_indices = "indices" in parting.equal and parting.equal["indices"] >= column.step
    if column.epoch in parting.shuffled:
        hint = (
            "index i stands for another sample, as where files are taken as os.listdir gives them"
        )
        return (
            f"the same samples come in another "
            f"order{f' while their indices are equal: {hint}' if same_indices else ''}"
        )
    indices = "of the same samples" if same_indices else "(their indices are not known)"
    count, step_count = parting.often("input")
    frequency = "" if count == step_count else f", at {count:,} of {step_count:,} steps"
    sentence = f"the values of the batch {indices} differ{frequency}: data, a transform or its random numbers"
    epoch = column.epoch
    begins = column.step != parting.first and parting.begun.get(epoch or 0) == column.step
    if epoch and begins and count == step_count:
        return (
            f"{sentence}. It begins with epoch {epoch}: the epoch may not reach the workers "
            f"(persistent_workers)"
        )
    states = [
        diverging_column.name.removeprefix("random ")
        for diverging_column in parting.columns
        if diverging_column.name.startswith("random ")
    ]
    if states:
        return f"{sentence} (states that differ: {', '.join(states)})"
    if column.step == parting.first:
        return (
            f"{sentence}. The loop's own generators agree: workers may draw from global ones "
            f"(num_workers)"
        )
    return sentence


def _explain_settings(parting: Divergence, column: ColumnDivergence) -> str:
    del parting
    cause = (
        "the learning rate differs: schedule"
        if column.name == "lr"
        else "the loss scale differs: AMP"
    )
    return f"{cause} or its settings"


def _explain_updates(parting: Divergence, column: ColumnDivergence) -> str:
    del parting, column
    return "an update was skipped in one of them: AMP, or accumulation"


def _explain_arithmetic(
    parting: Divergence, column: ColumnDivergence, *, weights_equal: bool | None
) -> str:
    """Return the sentence for a divergence in computed values.

    Inputs and weights that were not recorded are not called equal.
    """
    step = column.step
    first_step = parting.first or 0
    equal_until = parting.equal.get("params", first_step - 1 if weights_equal else None)
    equal_until = None if equal_until is None else min(equal_until, step - 1)
    if equal_until is None and weights_equal is False:
        return "the weights differed from the start"
    if (
        column.name in {"params", "optimizer"}
        and parting.equal.get("grads", -1) >= step
        and equal_until is not None
    ):
        return (
            f"the gradients of step {step} are equal, and what is made of them is not: the "
            f"optimiser or AMP"
        )
    same_inputs = parting.equal.get("input", -1) >= step
    inputs = "inputs are equal" if same_inputs else "the inputs were not recorded"
    causes, all_causes, addition = _causes(parting, step, seen=same_inputs)
    if equal_until is None:
        weights_text = "whether the weights were equal before was not"
        return f"{inputs}, and {weights_text}{causes}, the optimiser or the weights{addition}"
    if equal_until < step - 1:
        norm = parting.column("grad_norm")
        hint = (
            f"; the gradient norm differs from step {norm.step} on"
            if norm and norm.step < step
            else ""
        )
        return (
            f"{inputs}; weights were equal at {_at(equal_until, first_step)} and parted by step "
            f"{step}{hint}{causes} or the "
            f"optimiser{addition}. Record with every=1 to tell which"
        )
    phase = {"loss": "the forward pass", "grads": "the backward pass"}.get(
        column.name, "the update"
    )
    equal = (
        "weights and inputs are equal"
        if same_inputs
        else "weights are equal, the inputs were not recorded"
    )
    return f"{equal}, {phase} gives another result{all_causes}{addition}"


def _causes(parting: Divergence, step: int, *, seen: bool) -> tuple[str, str, str]:
    """Return possible causes of a different result from equal weights.

    Returns:
        The causes as an open list, as a complete list ("or" before the last), and an addition.
    """
    diverged_names = {
        diverging_column.name.removeprefix("random ")
        for diverging_column in parting.columns
        if diverging_column.step <= step
    }
    loss = parting.equal.get("loss", -1) >= step  # an equal loss: no draw that matters differed
    drawn = [name for name in _MODEL_GENERATORS if name in diverged_names and not loss]
    sign = f"; random states differ ({', '.join(drawn)}): " if drawn else ": "
    causes = [
        *(() if seen else ("data",)),
        *(("dropout", "other draws") if drawn else ("a kernel", "a flag")),
    ]
    script_draws = [name for name in _SCRIPT_GENERATORS if name in diverged_names and not drawn]
    addition = (
        f", or draws from {' and '.join(script_draws)} (other states)" if script_draws else ""
    )
    return sign + ", ".join(causes), sign + (" or " if seen else ", ").join(causes), addition


def _at(step: int, first: int) -> str:
    return "the start" if step < first else f"step {step}"


def compare_ranks(a: RecordedRun, b: RecordedRun) -> list[Divergence]:
    """Return the comparison of each rank that both runs have.

    Raises:
        UsageError: the ranks differ in too many bytes.
    """
    ranks = sorted({*a.traces} & {*b.traces})
    common_starts = {rank: max(began(a, rank), began(b, rank)) for rank in ranks}
    divergences = []
    held = 0
    for rank in ranks:
        one = compare_steps(a.traces[rank], b.traces[rank], rank, since=common_starts[rank])
        divergences.append(one)
        held += one.held
        if held > _DIVERGENCES:
            msg = (
                f"{a.path} and {b.path}: their ranks differ in more than {_DIVERGENCES:,} bytes. "
                f"Two recorded runs are wanted."
            )
            raise UsageError(msg)
    return divergences
