"""Requests to object stores; the only module that uses obstore.

Every request is bounded in time, and its errors are reported without secrets.

A process forked from one that made requests cannot make any: the threads that drive them exist only
in its parent, and obstore would wait for them for ever. Such a process starts a helper program that
makes its requests.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datacheck.cache.concurrent_map import concurrent_map
from datacheck.errors import CorruptionError, DatacheckError, StorageError, UsageError
from datacheck.plugins import require
from datacheck.runtime.hashing import digest_value
from datacheck.workers.budget import Limits
from datacheck.workers.child import Child, ChildSpec

if TYPE_CHECKING:
    from typing_extensions import Buffer

SCHEMES = {  # the environment variables of their credentials
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY",
}
CONCURRENT_REQUESTS = 16  # requests at a time
PART_BYTES = 8 << 20  # part size of uploads, and of reads of whole files
# of one request
_TIMEOUT_S = 120
_CONNECT_S = 5
# Retries of a request: how many, for how long, and the longest pause between two.
_TRIES = 8
_TRYING_S = 60
_PAUSE_S = 5.0
_URL = re.compile(
    r"(?P<place>[a-z0-9]+://[A-Za-z0-9][A-Za-z0-9._-]+)(?:/(?P<prefix>.*))?", re.DOTALL
)
_HELPER = ChildSpec("the program that reads the object store", limited=False, doubted=False)

_CONCURRENT_CALLS = {"get", "parts", "attributes"}  # verbs that use `concurrent_map` already
_FORKED = [False]  # whether obstore was in use before this process was forked


def _note_fork() -> None:
    _FORKED[0] = _FORKED[0] or "obstore" in sys.modules


os.register_at_fork(after_in_child=_note_fork)


def parse_url(url: str) -> tuple[str, str]:
    """Return the bucket of a URL (``s3://bucket``) and the prefix in it, without outer slashes.

    Raises:
        UsageError: it is no URL of an object store; the message does not repeat a user or password
            in it.
    """
    scheme, _, _ = url.partition("://")
    match = _URL.fullmatch(url)
    if scheme not in SCHEMES:
        detail = ", ".join(f"{name}://" for name in SCHEMES)
        msg = f"{scheme}://: caches lie in folders or behind {detail}. Correct the URL."
        raise UsageError(msg)
    prefix = ((match and match["prefix"]) or "").strip("/")
    if match is None or any(part in {"", ".", ".."} for part in prefix.split("/") if prefix):
        detail = f"credentials come from the environment: {SCHEMES[scheme]}"
        msg = f"{scheme}://: not a URL of the form {scheme}://bucket/prefix; {detail}"
        raise UsageError(msg)
    return match["place"], prefix


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
        contents: list[Buffer | None] = self._ask("get", list(keys), list(most))
        return contents

    def parts(self, wanted: Sequence[tuple[str, int, int]]) -> list[memoryview]:
        """Return byte ranges of objects, each given as (key, first byte, size).

        Neighbouring ranges are fetched in one request.

        Raises:
            CorruptionError: an object is missing, or ends too early.
        """
        return [
            memoryview(part).cast("B")
            for part in self._ask("parts", [list(byte_range) for byte_range in wanted])
        ]

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the size of every object below a prefix, by its key."""
        return {key: size for key, size, _ in self.listed(prefix)}

    def listed(self, prefix: str) -> list[tuple[str, int, int]]:
        """Return key, size and time of storage [s since 1970] of every object below a prefix."""
        return [(key, size, stored_at) for key, size, stored_at in self._ask("listed", prefix)]

    def below(self, prefix: str) -> tuple[list[str], list[str]]:
        """Return the names of prefixes and of objects directly below a prefix, each sorted."""
        folders, names = self._ask("below", prefix)
        return folders, names

    def attributes(self, keys: Sequence[str]) -> list[dict[str, str] | None]:
        """Return the attributes of objects, with the time of storage as "modified".

        None for each object that is missing.
        """
        listing: list[dict[str, str] | None] = self._ask("attributes", list(keys))
        return listing

    def put(self, key: str, data: Path, attributes: Mapping[str, str]) -> None:
        """Store a file as an object, atomically; an existing object is replaced."""
        self._ask("put", key, str(data), dict(attributes))

    def create(self, key: str, data: bytes) -> bool:
        """Store a new object; return False if the key exists.

        An earlier try of this request may itself have created it.

        Raises:
            StorageError: in addition: it is unknown whether the object was stored.
        """
        stored: bool = self._ask("create", key, np.frombuffer(data, np.uint8))
        return stored

    def remove(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        self._ask("remove", list(keys))

    def _ask(self, verb: str, *arguments: Any) -> Any:
        if not _FORKED[0]:
            method = getattr(_obstore_client(self.place, _environment()), verb)
            if verb in _CONCURRENT_CALLS:
                return method(*arguments)
            # In a thread, because obstore itself cannot be interrupted.
            return next(concurrent_map(lambda args: method(*args), [arguments], 1))
        task = {"place": self.place, "verb": verb, "arguments": list(arguments)}
        child, lock = _helper(os.getpid())
        with lock:
            answer, death = child.run("datacheck.cache.objects:answer", task)
            # The helper ends with the thread that started it; start another one.
            if death is not None and not death.crash:
                answer, death = child.run("datacheck.cache.objects:answer", task)
        if death is not None:
            msg = f"{self.place}: {death.how.strip().splitlines()[-1]}"
            raise StorageError(msg)
        return answer


@lru_cache(1)
def _helper(process: int) -> tuple[Child, threading.Lock]:
    """Return the helper program of a process, and the lock that serialises its requests."""
    return Child(Limits(item_s=20.0 * _TRYING_S), _HELPER), threading.Lock()


def answer(task: dict[str, Any], beat: Any) -> Any:
    """Make a request; runs in the helper program that a forked process starts."""
    return _sendable(
        getattr(_obstore_client(task["place"], _environment()), task["verb"])(*task["arguments"])
    )


def _sendable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_sendable(element) for element in value]
    plain = value is None or isinstance(value, str | int | dict)
    return value if plain else np.frombuffer(value, np.uint8)


# Patterns for "<status> <exception> <its text>"; the first match decides.
_REFUSALS: tuple[tuple[str, type[DatacheckError], str], ...] = (
    ("<Code>NoSuchBucket", UsageError, "there is no such bucket. Create it, or correct the URL."),
    (r"169\.254\.169\.254", StorageError, "no credentials are known. Set {who}."),
    (
        "^40[13]|^0 (Perm|Unauth)",
        StorageError,
        "the server refuses ({named}). Check {who}, and what they may do.",
    ),
    ("^416", CorruptionError, "it ends too early"),
    (
        "^(301|307|400) .*(Redirect|Region|Malformed)",
        StorageError,
        "it lies in another region. Set AWS_REGION.",
    ),
    (
        "^501",
        StorageError,
        "the server does not know such a request ({named}): caches need conditional puts.",
    ),
    (
        r"^(429|5\d\d)",
        StorageError,
        "the server is busy ({named}). Run the same command again later.",
    ),
    ("^[1-9]", StorageError, "the server answers {named}."),
    (
        "(?i)credential|account must be|token request",
        StorageError,
        "no credentials are known. Set {who}.",
    ),
    ("BadScheme", StorageError, "the endpoint is not https, which AWS_ALLOW_HTTP forbids."),
    (
        "^0 (Generic|Timeout)",
        StorageError,
        "the server cannot be reached. Check the network and the endpoint's URL.",
    ),
    ("", StorageError, "the request failed ({named})."),
)

# ---------------------------------------------------------------------------------- in this process


def _environment() -> str:
    """Return a digest of the credentials and endpoints in the environment."""
    return digest_value(
        {n: v for n, v in os.environ.items() if n.startswith(("AWS_", "GOOGLE_", "AZURE_"))}
    )


@lru_cache(8)
def _obstore_client(place: str, environment: str) -> _ObstoreClient:
    return _ObstoreClient(place)


class _ObstoreClient:
    """The verbs of `Objects`, implemented with obstore in this process."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._obstore = require("obstore", "s3")
        # Allowed by default: the scheme of the endpoint decides.
        plain = os.environ.get("AWS_ALLOW_HTTP", "true").lower() in {"1", "true", "yes", "on"}
        timeouts = {"timeout": f"{_TIMEOUT_S}s", "connect_timeout": f"{_CONNECT_S}s"}
        pause = {"max_backoff": timedelta(seconds=_PAUSE_S)}
        retries = {
            "max_retries": _TRIES,
            "retry_timeout": timedelta(seconds=_TRYING_S),
            "backoff": pause,
        }
        self._store = self._call("", self._open_client, timeouts | {"allow_http": plain}, retries)

    def _open_client(self, client: Any, retries: Any) -> Any:
        store = require("obstore.store", "s3")
        return store.from_url(self._place, client_options=client, retry_config=retries)

    def get(self, keys: list[str], most: list[int]) -> list[Buffer | None]:
        requests = zip(keys, most, strict=True)
        return list(
            concurrent_map(
                lambda request: self._call(request[0], self._get, *request),
                requests,
                CONCURRENT_REQUESTS,
            )
        )

    def _get(self, key: str, most: int) -> Buffer | None:
        try:
            result = self._obstore.get(self._store, key)
            if result.meta["size"] <= most:
                return bytes(result.bytes())
        except FileNotFoundError as error:
            self._check_bucket(error)
            return None
        raise CorruptionError(
            self._message(key, f"{result.meta['size']:,} bytes; at most {most:,} are read")
        )

    def parts(self, wanted: list[tuple[str, int, int]]) -> list[Buffer]:
        by_key: dict[str, list[int]] = {}
        for i, (key, _, _) in enumerate(wanted):
            by_key.setdefault(key, []).append(i)
        contents: list[Any] = [None] * len(wanted)

        def fetch(key: str) -> None:
            indices = by_key[key]
            starts = [wanted[i][1] for i in indices]
            sizes = [wanted[i][2] for i in indices]
            for i, size, part in zip(
                indices, sizes, self._call(key, self._parts, key, starts, sizes), strict=True
            ):
                if len(part) != size:
                    raise CorruptionError(self._message(key, "it ends too early"))
                contents[i] = part

        for _ in concurrent_map(fetch, by_key, CONCURRENT_REQUESTS):
            pass
        return contents

    def _parts(self, key: str, starts: list[int], sizes: list[int]) -> list[Any]:
        try:
            parts = self._obstore.get_ranges(self._store, key, starts=starts, lengths=sizes)
        except FileNotFoundError as error:
            self._check_bucket(error)
            raise CorruptionError(self._message(key, "it is not there (any more)")) from None
        return list(parts)

    def listed(self, prefix: str) -> list[tuple[str, int, int]]:
        return self._call(prefix, self._listed, prefix)  # type: ignore[no-any-return]

    def _listed(self, prefix: str) -> list[tuple[str, int, int]]:
        try:
            pages = self._obstore.list(self._store, prefix=prefix or None)
            return [
                (entry["path"], entry["size"], int(entry["last_modified"].timestamp()))
                for page in pages
                for entry in page
            ]
        except FileNotFoundError as error:
            self._check_bucket(error)
            return []

    def below(self, prefix: str) -> tuple[list[str], list[str]]:
        return self._call(prefix, self._below, prefix)  # type: ignore[no-any-return]

    def _below(self, prefix: str) -> tuple[list[str], list[str]]:
        try:
            listing = self._obstore.list_with_delimiter(self._store, prefix=prefix or None)
        except FileNotFoundError as error:
            self._check_bucket(error)
            return [], []
        objects = [entry["path"] for entry in listing["objects"]]
        folders, names = (
            [path.rpartition("/")[2] for path in paths]
            for paths in (listing["common_prefixes"], objects)
        )
        return sorted(folders), sorted(names)

    def attributes(self, keys: list[str]) -> list[dict[str, str] | None]:
        return list(
            concurrent_map(
                lambda key: self._call(key, self._attributes, key), keys, CONCURRENT_REQUESTS
            )
        )

    def _attributes(self, key: str) -> dict[str, str] | None:
        try:
            result = self._obstore.get(self._store, key, options={"head": True})
            return {**result.attributes, "modified": result.meta["last_modified"].isoformat()}
        except FileNotFoundError as error:
            self._check_bucket(error)
        return None

    def put(self, key: str, data: str, attributes: dict[str, str]) -> None:
        self._call(
            key,
            self._obstore.put,
            self._store,
            key,
            Path(data),
            attributes=attributes,
            chunk_size=PART_BYTES,
            max_concurrency=CONCURRENT_REQUESTS // 4,
        )

    def create(self, key: str, data: Any) -> bool:
        return self._call(key, self._create, key, data)  # type: ignore[no-any-return]

    def _create(self, key: str, data: Any) -> bool:
        try:
            self._obstore.put(self._store, key, bytes(data), mode="create")
        except self._obstore.exceptions.AlreadyExistsError:
            return False
        return True

    def remove(self, keys: list[str]) -> None:
        self._call("", self._remove, keys)

    def _remove(self, keys: list[str]) -> None:
        try:
            self._obstore.delete(self._store, keys)
        except FileNotFoundError as error:
            self._check_bucket(error)

    # ------------------------------------------------------------------------------------- refusals

    def _check_bucket(self, error: FileNotFoundError) -> None:
        """Raise if the bucket itself is missing."""
        if "<Code>NoSuchBucket" in str(error):
            raise UsageError(
                self._message("", "there is no such bucket. Create it, or correct the URL.")
            ) from None

    def _call(self, key: str, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call a function, and translate its errors.

        The new error repeats no text of the server, which may hold signed data and account names.
        """
        try:
            return function(*arguments, **options)
        except DatacheckError:
            raise
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as error:
            refusal = self._request_error(key, type(error).__name__, str(error))
        raise refusal

    def _request_error(self, key: str, kind: str, text: str) -> DatacheckError:
        status = re.search(r"status code: (\d{3})", text)
        code = re.search(r"<Code>(\w{1,60})</Code>", text)
        description = f"{status[1] if status else 0} {kind} {text}"
        error_code = (code or status or [kind, kind])[1]
        who = SCHEMES[self._place.partition("://")[0]]
        error, words = next(
            (e, words)
            for pattern, e, words in _REFUSALS
            if re.search(pattern, description, re.DOTALL)
        )
        return error(self._message(key, words.format(named=error_code, who=who)))

    def _message(self, key: str, what: str) -> str:
        return f"{self._place}{f'/{key}' if key else ''}: {what}"
