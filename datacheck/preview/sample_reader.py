"""Reads samples again and draws them, in an expendable child: a file may kill its reader.

`PreviewTasks` builds the tasks, `PreviewChild` runs them. The functions that the child runs are in
`preview.reading`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from datacheck import tokenization
from datacheck.errors import DatacheckError
from datacheck.runtime.beneath import ConfinedFolder
from datacheck.runtime.sandbox import Sandbox
from datacheck.schema.model import Schema, file_templates
from datacheck.schema.patterns import Template
from datacheck.sources import open_source
from datacheck.sources.base import Item, Source
from datacheck.sources.listing import Listing, target
from datacheck.sources.roots import sandbox_of
from datacheck.workers.budget import Limits
from datacheck.workers.child import PARSER, Child

NOT_IN_FILE = "it is no longer in its file"
_FILE_CHANGED = "{} is not what was scanned; datacheck view KEY --data DATA shows it as it is now"
_START_SECONDS = 20.0
_MEMORY = 4 << 30
_DRAW, _JOINTS, _READY = (
    f"datacheck.preview.reading:{name}" for name in ("draw_items", "read_joints", "ready")
)


@dataclass(eq=False)
class ChosenSample:
    """A sample to draw, and the fields that its findings are about."""

    key: str
    split: str
    file: str
    why: str = ""
    first: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PreviewTasks:
    """Builds the tasks for the child that reads samples.

    Args:
        schema, root, roots: as for a source.
        listing: the files as scanned; None if they were not listed.
        strict: read only files that are unchanged since the scan: the documents of a shared run may
            name any folder.
    """

    schema: Schema
    root: Path
    roots: Mapping[str, Path]
    listing: Listing | None = None
    strict: bool = False

    def task(
        self, file: str, asked: Sequence[ChosenSample], points: int, most: int
    ) -> dict[str, Any]:
        """Return the task (see `reading.draw_items`) that draws samples of one file."""
        return self._task(file, asked, first={sample.key: sample.first for sample in asked}) | {
            "points": points,
            "most": most,
        }

    def joints(self, file: str, asked: Sequence[ChosenSample], field: str) -> dict[str, Any]:
        """Return the task (see `reading.read_joints`) that reads joints of samples of one file."""
        return self._task(file, asked) | {"field": field}

    def refusal(self, file: str, asked: Sequence[ChosenSample]) -> str:
        """Return why samples of a file are not read; "" if they may be."""
        if not self.strict or self.listing is None:
            return ""
        try:
            files = self._source.files(self._item(file, asked))
        except DatacheckError as error:
            return str(error)
        for path in files:
            if path not in self._as_scanned:
                self._as_scanned[path] = self.listing.holds(path)  # may read the whole file
        changed_path = next((path for path in files if not self._as_scanned[path]), None)
        return "" if changed_path is None else _FILE_CHANGED.format(changed_path)

    def _item(self, file: str, samples: Sequence[ChosenSample]) -> Item:
        names = next((n for t in self._templates if (n := t.match(file)) is not None), {})
        entry = None if self.listing is None else self.listing.by_path.get(file)
        return Item(
            file,
            samples[0].split,
            names,
            tuple(dict.fromkeys(sample.key for sample in samples)),
            0 if entry is None else entry.size,
        )

    def _task(self, file: str, samples: Sequence[ChosenSample], **more: Any) -> dict[str, Any]:
        item = self._item(file, samples)
        return {
            "schema": self._schema,
            "root": str(self.root),
            "items": [{"item": item.as_dict(), **more}],
            "roots": {name: str(path) for name, path in self.roots.items()},
        }

    @property
    def sandbox(self) -> Sandbox | None:
        """The files that the reading child may reach: the data, and the schema's tokenizer."""
        tokenizer = self.schema.tokenizer.path if self.schema.tokenizer is not None else None
        return sandbox_of(
            self.root,
            self.roots,
            read=[] if tokenizer is None else tokenization.tokenizer_places(tokenizer),
        )

    @cached_property
    def _as_scanned(self) -> dict[str, bool]:
        """Whether files are unchanged since the scan, by path."""
        return {}

    @cached_property
    def _source(self) -> Source:
        return open_source(self.schema, self.root, self.roots)

    @cached_property
    def _templates(self) -> list[Template]:
        return file_templates(self.schema)

    @cached_property
    def _schema(self) -> dict[str, Any]:
        return self.schema.as_dict()


class PreviewChild:
    """A child that reads samples and draws them.

    Args:
        sandbox: the files that it may reach.
        seconds: allowed for a file; None: each call says how many.
    """

    def __init__(self, sandbox: Sandbox | None, seconds: float | None = None) -> None:
        if seconds is None:
            # Only a minimum: each call passes the time that is left as its patience.
            limits = Limits(item_s=0.1, memory_b=_MEMORY)
            program = replace(PARSER, start_s=_START_SECONDS, sandbox=sandbox)
        else:
            limits = Limits(item_s=seconds)
            program = replace(PARSER, sandbox=sandbox)
        self._child = Child(limits, program)

    @classmethod
    def of_data(cls, data: Path, roots: Mapping[str, Path]) -> PreviewChild:
        """Return a child that may reach a folder or file and its extra folders.

        Raises:
            UsageError: the data does not exist.
        """
        return cls(sandbox_of(target(data)[0], roots))

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._child.running

    def end(self) -> None:
        """End the process while another thread may be running a task in it."""
        self._child.end()

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._child.close()

    def wait_until_ready(self) -> str:
        """Start the process; return why it has not started, or ""."""
        return self._run(_READY, {"items": []})[1]

    def draw(
        self, task: dict[str, Any], asked: Sequence[ChosenSample], seconds: float
    ) -> Iterator[dict[str, Any]]:
        """Yield the pictures of samples of one file; a sample without pictures has a reason.

        Args:
            task: `PreviewTasks.task`.
            asked: the samples.
            seconds: allowed time without a heartbeat.
        """
        drawn, why = self._run(_DRAW, task, seconds)
        if why:
            yield from without_pictures(asked, why)
            return
        yield from drawn
        drawn_keys = {sample["key"] for sample in drawn}
        yield from without_pictures(
            [sample for sample in asked if sample.key not in drawn_keys], NOT_IN_FILE
        )

    def joints(self, task: dict[str, Any], seconds: float) -> tuple[Any, str]:
        """Return the joints of samples of one file, and why there are none, or "".

        Args:
            task: `PreviewTasks.joints`.
            seconds: allowed time without a heartbeat.
        """
        return self._run(_JOINTS, task, seconds)

    def _run(self, function: str, task: dict[str, Any], seconds: float = 0.0) -> tuple[Any, str]:
        """Return the child's answer, and why there is none, or ""."""
        try:
            answer, death = self._child.run(function, task, patience=seconds)
        except (DatacheckError, OSError) as error:  # OSError: the system may refuse another process
            return None, f"it could not be read again: {error}"
        if death is None:
            return answer, ""
        how = death.how.strip().splitlines()[-1] if death.how.strip() else "the parser ended"
        return None, f"it could not be read again: {how[:300]}"


def without_pictures(samples: Iterable[ChosenSample], why: str) -> Iterator[dict[str, Any]]:
    """Yield samples without a picture, each with the reason."""
    for sample in samples:
        yield {"key": sample.key, "split": sample.split, "fields": [], "left_out": [], "why": why}


def with_own_tokenizer(schema: Schema, root: Path) -> Schema:
    """Return the schema of a run, without a tokenizer from outside the data folder."""
    if schema.tokenizer is None or schema.tokenizer.path is None:
        return schema
    path = PurePosixPath(schema.tokenizer.path)
    folders = (path, path.parent)
    names = [path, *(folder / name for folder in folders for name in tokenization.FILES)]
    try:
        with ConfinedFolder(root) as folder:
            folder.stat(str(path))
            for name in names:
                with suppress(FileNotFoundError, NotADirectoryError):
                    folder.stat(str(name))
    except OSError:
        return schema.model_copy(
            update={"tokenizer": schema.tokenizer.model_copy(update={"path": None})}
        )
    return schema
