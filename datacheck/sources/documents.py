"""Documents about a whole dataset (lists of samples, statistics): small JSON is parsed here, the rest in a child."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from datacheck.errors import FormatError, MissingDependencyError
from datacheck.formats.base import open_container
from datacheck.formats.jsonfile import named_values, parse_small
from datacheck.formats.limits import check_bytes
from datacheck.parallel import Limits, ordered_map
from datacheck.runtime.beneath import File
from datacheck.runtime.documents import count_values
from datacheck.shapes import answers, check
from datacheck.sources.limited import limit_files
from datacheck.sources.roots import Roots, sandbox_of

_HERE_BYTES = 1 << 20  # of JSON, whose parser takes at most some tens of megabytes for them
_VALUES = 2_000_000  # each of which takes about 64 bytes of whoever asked
_LIMITS = Limits(item_s=60.0)
_READ = "datacheck.sources.documents:read_values"


def read_document(root: Path, roots: Mapping[str, Path], path: str, limit: int) -> dict[str, Any]:
    """Return the values of a JSON, YAML or other document below a dataset's folders; None for those that are null.

    Args:
        root, roots: the data folder and the extra ones by name.
        path: of the document, as in a listing.
        limit: bytes that the document may have.

    Raises:
        FormatError: the document is missing, too large or damaged, or its parser died.
        OSError: the folder that it should be in cannot be opened.
    """
    try:
        with Roots(root, roots).file(path).open() as file:
            size = os.fstat(file.fileno()).st_size
            check_bytes(size, "the document", limit)
            if size <= _HERE_BYTES and path.lower().endswith(".json"):
                return parse_small(file.read(size))
    except OSError as error:
        raise FormatError(error.strerror or str(error)) from error
    task = {
        "root": str(root.absolute()), "roots": {name: str(folder.absolute()) for name, folder in roots.items()},
        "items": [path], "nbytes": size,
    }  # fmt: skip
    for outcome in list(ordered_map(_READ, [task], limits=_LIMITS, sandbox=sandbox_of(root, roots))):
        for death in outcome.deaths:
            raise FormatError(death.how.strip().splitlines()[-1])
        for payload in outcome.payloads:
            if "fault" in payload:
                raise FormatError(payload["fault"], payload["code"])
            return dict(payload["values"])
    return {}


def _values(file: File) -> dict[str, Any]:
    with open_container(file) as container:
        values = named_values(container)
    if count_values(values, _VALUES) > _VALUES:
        msg = f"has more than {_VALUES:,} values, the limit of a document about a dataset"
        raise FormatError(msg)
    return values


def _is_read(answer: Any) -> bool:
    said = [("values", [(str, object)])] if "values" in answer else [("fault", str), ("code", str)]
    check(answer, dict(said))
    return True


@answers(_is_read, raises=(MissingDependencyError,))
def read_values(task: dict[str, Any], beat: Callable[[int], None]) -> dict[str, Any]:
    """Return the values of one document, or what is wrong with it (see `parallel.run_task`)."""
    beat(0)
    limit_files(beat, task["items"], task["root"], task["roots"])
    try:
        return {"values": list(_values(Roots(task["root"], task["roots"]).file(task["items"][0])).items())}
    except FormatError as error:
        return {"fault": str(error), "code": error.code}
