"""The objects of a bucket: `Objects` makes requests, in this process or in a helper program.

`ObstoreClient` makes the requests, but not in a process that was forked from one that made some: the
threads that drive obstore exist only in the parent, and obstore would wait for them for ever. A
forked process starts a helper program, which has an `ObstoreClient` of its own.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import numpy as np

from datacheck.cache.obstore_client import RETRYING_S, SCHEMES, ObstoreClient, obstore_client
from datacheck.errors import StorageError, UsageError
from datacheck.workers.budget import Limits
from datacheck.workers.child import Child, ChildSpec

if TYPE_CHECKING:
    from typing_extensions import Buffer

Arguments = TypeVarTuple("Arguments")
R = TypeVar("R")

_URL = re.compile(
    r"(?P<place>[a-z0-9]+://[A-Za-z0-9][A-Za-z0-9._-]+)(?:/(?P<prefix>.*))?", re.DOTALL
)


def parse_url(url: str) -> tuple[str, str]:
    """Return the bucket of a URL (``s3://bucket``) and the prefix in it, without outer slashes.

    Raises:
        UsageError: it is no URL of an object store; the message does not repeat a user or password
            in it.
    """
    scheme, _, _ = url.partition("://")
    if scheme not in SCHEMES:
        schemes = ", ".join(f"{name}://" for name in SCHEMES)
        msg = f"{scheme}://: caches lie in folders or behind {schemes}. Correct the URL."
        raise UsageError(msg)
    match = _URL.fullmatch(url)
    prefix = "" if match is None else (match["prefix"] or "").strip("/")
    parts = prefix.split("/") if prefix else []
    if match is None or not {"", ".", ".."}.isdisjoint(parts):
        msg = (
            f"{scheme}://: not a URL of the form {scheme}://bucket/prefix; credentials come from "
            f"the environment: {SCHEMES[scheme]}"
        )
        raise UsageError(msg)
    return match["place"], prefix


# Objects of a cache: 700,000 files of its manifest, and leftovers of uploads.
CACHE_OBJECTS = 1_000_000


class Objects:
    """The objects of one bucket. Safe to share between threads, and with forked children.

    Args:
        place: ``s3://bucket``.

    Raises:
        UsageError: on every request: there is no such bucket.
        StorageError: on every request: the server refuses, cannot be reached, or stays busy beyond
            the retries.
        MissingDependencyError: on every request: obstore is not installed.
    """

    def __init__(self, place: str) -> None:
        self.place = place

    def get(self, keys: Sequence[str], most: Sequence[int]) -> list[Buffer | None]:
        """Return whole objects, None for each that is missing.

        Args:
            keys: keys of the objects.
            most: the largest size accepted for each [bytes].

        Raises:
            CorruptionError: an object is larger.
        """
        return self._request(ObstoreClient.get, keys, most)

    def parts(self, wanted: Sequence[tuple[str, int, int]]) -> list[memoryview]:
        """Return byte ranges of objects, each given as (key, first byte, size).

        Neighbouring ranges are fetched in one request.

        Raises:
            CorruptionError: an object is missing, or ends too early.
        """
        parts = self._request(ObstoreClient.parts, wanted)
        return [memoryview(part).cast("B") for part in parts]

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the size of every object below the prefix of a cache, by its key.

        Raises:
            CorruptionError: there are more objects than a cache has.
        """
        return {key: size for key, size, _ in self.listed(prefix, CACHE_OBJECTS)}

    def listed(self, prefix: str, most: int | None = None) -> list[tuple[str, int, int]]:
        """Return key, size and time of storage [s since 1970] of every object below a prefix.

        Args:
            prefix: the prefix.
            most: the largest number of objects accepted.

        Raises:
            CorruptionError: there are more.
        """
        listing = self._request(ObstoreClient.listed, prefix, most)
        return [(key, size, stored_at) for key, size, stored_at in listing]

    def below(self, prefix: str) -> tuple[list[str], list[str]]:
        """Return the names of prefixes and of objects directly below a prefix, each sorted."""
        folders, names = self._request(ObstoreClient.below, prefix)
        return folders, names

    def attributes(self, keys: Sequence[str]) -> list[dict[str, str] | None]:
        """Return the attributes of objects, with the time of storage as "modified".

        None for each object that is missing.
        """
        return self._request(ObstoreClient.attributes, keys)

    def put(self, key: str, data: Path, attributes: Mapping[str, str]) -> None:
        """Store a file as an object, atomically; an existing object is replaced."""
        self._request(ObstoreClient.put, key, str(data), dict(attributes))

    def create(self, key: str, data: bytes) -> bool:
        """Store a new object; return False if the key exists.

        An earlier try of this request may itself have created it.

        Raises:
            StorageError: in addition: it is unknown whether the object was stored.
        """
        return self._request(ObstoreClient.create, key, data)

    def remove(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        self._request(ObstoreClient.remove, keys)

    def _request(
        self, method: Callable[[ObstoreClient, *Arguments], R], *arguments: *Arguments
    ) -> R:
        if not _obstore_forked:
            return method(obstore_client(self.place), *arguments)
        result: R = _request_of_helper(self.place, method.__name__, arguments)
        return result


# -------------------------------------------------------------------------- after a process forked

_obstore_forked = False  # whether obstore was in use when this process was forked


def _note_fork() -> None:
    global _obstore_forked
    _obstore_forked = _obstore_forked or "obstore" in sys.modules


os.register_at_fork(after_in_child=_note_fork)

_HELPER = ChildSpec("the program that reads the object store", limited=False, doubted=False)
_MAKE_REQUEST = "datacheck.cache.objects:make_request"
_HELPER_METHODS: dict[str, Callable[..., Any]] = {
    method.__name__: method
    for method in (
        ObstoreClient.get,
        ObstoreClient.parts,
        ObstoreClient.listed,
        ObstoreClient.below,
        ObstoreClient.attributes,
        ObstoreClient.put,
        ObstoreClient.create,
        ObstoreClient.remove,
    )
}


def _request_of_helper(place: str, method: str, arguments: Sequence[Any]) -> Any:
    """Have the helper program of this process make a request; return its result."""
    task = {"place": place, "method": method, "arguments": _sendable(arguments)}
    child, lock = _helper(os.getpid())
    with lock:
        answer, death = child.run(_MAKE_REQUEST, task)
        # The helper ends with the thread that started it; start another one.
        if death is not None and not death.crash:
            answer, death = child.run(_MAKE_REQUEST, task)
    if death is not None:
        msg = f"{place}: {death.how.strip().splitlines()[-1]}"
        raise StorageError(msg)
    return answer


@lru_cache(1)
def _helper(process: int) -> tuple[Child, threading.Lock]:
    """Return the helper program of a process, and the lock that serialises its requests."""
    del process
    return Child(Limits(item_s=20.0 * RETRYING_S), _HELPER), threading.Lock()


def make_request(task: dict[str, Any], beat: Any) -> Any:
    """Make a request of `_request_of_helper`; runs in the helper program."""
    del beat
    method = _HELPER_METHODS[task["method"]]
    return _sendable(method(obstore_client(task["place"]), *task["arguments"]))


def _sendable(value: Any) -> Any:
    """Return a value as the wire between processes takes it: lists and arrays, no tuples or bytes."""
    if isinstance(value, list | tuple):
        return [_sendable(element) for element in value]
    if value is None or isinstance(value, str | int | dict):
        return value
    return np.frombuffer(value, np.uint8)
