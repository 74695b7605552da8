"""What files looked like when they were hashed: ``.datacheck/manifests/<data>.npz`` of the working folder.

It saves reading and is never identity: whoever doubts it hashes again (``--deep``), whoever deletes it loses time.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datacheck import folders, fsops
from datacheck.digest import digest_value
from datacheck.errors import StorageError
from datacheck.runtime.documents import Arrays
from datacheck.sources.entries import SETTLED_NS

if TYPE_CHECKING:
    from datacheck.sources.entries import Entries
    from datacheck.sources.listing import Listing

Array = np.ndarray[Any, Any]

_FORMAT = 1
_MOST_BYTES = 8 << 30  # some 120 bytes a file


def place_of(root: Path, roots: Mapping[str, Path], only: str | None) -> Path:
    """Return where the memory of these data lies."""
    said = {name: os.path.realpath(path) for name, path in sorted(roots.items())}  # `resolve` raises of link loops
    slot = digest_value([os.path.realpath(root), only, said])[:16]
    return Path.cwd() / ".datacheck" / "manifests" / f"{slot}.npz"


def recall(place: Path, listing: Listing) -> Array:
    """Return the digests of files that have not changed since they were hashed: bytes (files), b"" of all others.

    Notes:
        See `sources.listing.carried` for what counts as unchanged; its ctime, too, must be 2 s older than the listing
        that hashed it. A memory that cannot be read is none.
    """
    from datacheck.sources.listing import Listing, carried  # noqa: PLC0415  `datacheck.repro` is light

    with contextlib.suppress(Exception):  # whatever is wrong with it: a damaged memory is as good as none
        before = _entries(place)
        # mtime can be set to anything; what changed less than this before it was seen may leave the same ctime again
        before.digests[before.numbers[:, 4] - SETTLED_NS < before.numbers[:, 2]] = b""
        return carried(listing, Listing(listing.root, before))
    return np.zeros(len(listing.entries), "S32")


def _entries(place: Path) -> Entries:
    from datacheck.sources.entries import Entries  # noqa: PLC0415  as above

    with Arrays(place, _MOST_BYTES) as arrays:
        numbers, digests, octets = arrays["numbers"], arrays["digests"], arrays["paths"].tobytes()
        count = octets.count(b"\0") + 1 if len(numbers) else 0  # before they become texts
        sound = numbers.dtype == np.int64 and numbers.shape == (count, 5)
        if int(arrays["format"]) != _FORMAT or not sound or digests.dtype != "S32" or digests.shape != (count,):
            msg = f"{place}: not what this version writes"
            raise ValueError(msg)
        return Entries(octets.decode().split("\0") if count else [], numbers, digests)


def remember(place: Path, listing: Listing) -> bool:
    """Keep what is known of the files for the next time; return whether that could be written."""
    entries = listing.entries
    file = io.BytesIO()
    paths = np.frombuffer("\0".join(entries.paths).encode(), np.uint8)
    np.savez(
        file, allow_pickle=False, format=np.int64(_FORMAT), paths=paths, numbers=entries.numbers,
        digests=entries.digests,
    )  # fmt: skip
    try:
        for folder in (place.parent.parent, place.parent):
            folders.check_own(folder, "")
        fsops.make_directory(place.parent, sync=False)
        fsops.write_file(place, file.getbuffer(), sync=False, mode=0o644)
    except StorageError:  # a folder that is not ours to write, a link, a full disk: the next time takes as long again
        return False
    return True
