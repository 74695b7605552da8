"""Requests to one bucket with obstore, in this process; the only module that uses obstore.

Each request is bounded in time. `ObstoreClient` turns the exceptions of obstore into those of
datacheck, without the server's text, which may hold signed data and account names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from datacheck.cache.concurrent_map import concurrent_map
from datacheck.errors import CorruptionError, DatacheckError, StorageError, UsageError
from datacheck.plugins import require
from datacheck.runtime.hashing import digest_value

if TYPE_CHECKING:
    from typing_extensions import Buffer

R = TypeVar("R")

# The supported schemes, and the environment variables of their credentials.
SCHEMES = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY",
}
CONCURRENT_REQUESTS = 16
PART_BYTES = 8 << 20  # part size of uploads, and of reads of whole files
# One try of a request.
_TIMEOUT_S = 120
_CONNECT_S = 5
# The retries of a request: how many, for how long, and the longest pause between two.
_RETRIES = 8
RETRYING_S = 60
_PAUSE_S = 5.0
_NAME_LETTERS = 256 << 20  # names of the objects of one cache


@dataclass(frozen=True, slots=True)
class _Refusal:
    """How a failed request is reported.

    Args:
        pattern: searched for in "<HTTP status or 0> <class of the exception> <its text>".
        error: the exception to raise.
        advice: its text; {named} is the server's code of the error, {variables} are those of the
            credentials.
    """

    pattern: str
    error: type[DatacheckError]
    advice: str


_NO_BUCKET = _Refusal(
    "<Code>NoSuchBucket", UsageError, "there is no such bucket. Create it, or correct the URL."
)
_NO_CREDENTIALS = "no credentials are known. Set {variables}."

# The first whose pattern is found decides.
_REFUSALS = (
    _NO_BUCKET,
    # Without credentials, the library asks the metadata service of the cloud's machines.
    _Refusal(r"169\.254\.169\.254", StorageError, _NO_CREDENTIALS),
    _Refusal(
        "^40[13]|^0 (Perm|Unauth)",
        StorageError,
        "the server refuses ({named}). Check {variables}, and what they may do.",
    ),
    # A byte range beyond the end of the object.
    _Refusal("^416", CorruptionError, "it ends too early"),
    _Refusal(
        "^(301|307|400) .*(Redirect|Region|Malformed)",
        StorageError,
        "it lies in another region. Set AWS_REGION.",
    ),
    _Refusal(
        "^501",
        StorageError,
        "the server does not know such a request ({named}): caches need conditional puts.",
    ),
    _Refusal(
        r"^(429|5\d\d)",
        StorageError,
        "the server is busy ({named}). Run the same command again later.",
    ),
    _Refusal("^[1-9]", StorageError, "the server answers {named}."),
    _Refusal("(?i)credential|account must be|token request", StorageError, _NO_CREDENTIALS),
    _Refusal("BadScheme", StorageError, "the endpoint is not https, which AWS_ALLOW_HTTP forbids."),
    _Refusal(
        "^0 (Generic|Timeout)",
        StorageError,
        "the server cannot be reached. Check the network and the endpoint's URL.",
    ),
    _Refusal("", StorageError, "the request failed ({named})."),
)


class _MissingObjectError(StorageError):
    """The bucket has no object of this key."""


def obstore_client(place: str) -> ObstoreClient:
    """Return the client of a bucket (``s3://bucket``), with the credentials of the environment.

    Raises:
        MissingDependencyError: obstore is not installed.
        StorageError: the environment does not configure the store.
    """
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))
    }
    return _cached_client(place, digest_value(variables))


@lru_cache(8)
def _cached_client(place: str, environment: str) -> ObstoreClient:
    """Return a client; the digest of its environment tells it from one with other credentials."""
    del environment
    return ObstoreClient(place)


class ObstoreClient:
    """The requests of `Objects`, where they are described.

    Notes:
        Waits for a server in threads, because a call of obstore cannot be interrupted.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._obstore = require("obstore", "s3")
        # Allowed by default: the scheme of the endpoint decides.
        allow_http = os.environ.get("AWS_ALLOW_HTTP", "true").lower() in {"1", "true", "yes", "on"}
        self._store = self._call(
            "",
            require("obstore.store", "s3").from_url,
            place,
            client_options={
                "timeout": f"{_TIMEOUT_S}s",
                "connect_timeout": f"{_CONNECT_S}s",
                "allow_http": allow_http,
            },
            retry_config={
                "max_retries": _RETRIES,
                "retry_timeout": timedelta(seconds=RETRYING_S),
                "backoff": {"max_backoff": timedelta(seconds=_PAUSE_S)},
            },
        )

    def get(self, keys: Sequence[str], most: Sequence[int]) -> list[Buffer | None]:
        """See `Objects`."""
        requests = zip(keys, most, strict=True)
        return list(
            concurrent_map(
                lambda request: self._get_object(*request), requests, CONCURRENT_REQUESTS
            )
        )

    def _get_object(self, key: str, most: int) -> Buffer | None:
        try:
            result = self._call(key, self._obstore.get, self._store, key)
        except _MissingObjectError:
            return None
        size = result.meta["size"]
        if size > most:
            raise CorruptionError(self._message(key, f"{size:,} bytes; at most {most:,} are read"))
        return self._call(key, self._streamed, key, result, most)

    def _streamed(self, key: str, result: Any, most: int) -> bytes:
        """Return the bytes of an answer; a server may send more of them than it stated."""
        data = bytearray()
        for part in result.stream(min_chunk_size=1 << 20):
            data += part
            if len(data) > most:
                text = f"more than the {most:,} bytes that are read at most"
                raise CorruptionError(self._message(key, text))
        return bytes(data)

    def parts(self, wanted: Sequence[tuple[str, int, int]]) -> list[Buffer]:
        """See `Objects`."""
        indices_by_key: dict[str, list[int]] = {}
        for i, (key, _, _) in enumerate(wanted):
            indices_by_key.setdefault(key, []).append(i)

        def fetch(key: str) -> list[Buffer]:
            ranges = [wanted[i] for i in indices_by_key[key]]
            starts = [start for _, start, _ in ranges]
            sizes = [size for _, _, size in ranges]
            return self._get_ranges(key, starts, sizes)

        parts: dict[int, Buffer] = {}
        fetched = concurrent_map(fetch, indices_by_key, CONCURRENT_REQUESTS)
        for indices, parts_of_key in zip(indices_by_key.values(), fetched, strict=True):
            parts |= zip(indices, parts_of_key, strict=True)
        return [parts[i] for i in range(len(wanted))]

    def _get_ranges(self, key: str, starts: list[int], sizes: list[int]) -> list[Buffer]:
        try:
            parts: list[Any] = list(
                self._call(
                    key, self._obstore.get_ranges, self._store, key, starts=starts, lengths=sizes
                )
            )
        except _MissingObjectError:
            raise CorruptionError(self._message(key, "it is not there (any more)")) from None
        if [len(part) for part in parts] != sizes:
            raise CorruptionError(self._message(key, "it ends too early"))
        return parts

    def listed(self, prefix: str, most: int | None = None) -> list[tuple[str, int, int]]:
        """See `Objects`."""

        def read_pages() -> list[tuple[str, int, int]]:
            entries: list[tuple[str, int, int]] = []
            name_letters = 0
            for page in self._obstore.list(self._store, prefix=prefix or None):
                for entry in page:
                    stored_at = int(entry["last_modified"].timestamp())
                    entries.append((entry["path"], entry["size"], stored_at))
                    name_letters += len(entry["path"])
                if most is not None and (len(entries) > most or name_letters > _NAME_LETTERS):
                    text = f"more than {most:,} objects or {_NAME_LETTERS:,} letters of their names"
                    raise CorruptionError(self._message(prefix, text))
            return entries

        try:
            return self._call_in_thread(prefix, read_pages)
        except _MissingObjectError:
            return []

    def below(self, prefix: str) -> tuple[list[str], list[str]]:
        """See `Objects`."""
        try:
            listing = self._call_in_thread(
                prefix, self._obstore.list_with_delimiter, self._store, prefix=prefix or None
            )
        except _MissingObjectError:
            return [], []
        folders = [path.rpartition("/")[2] for path in listing["common_prefixes"]]
        names = [entry["path"].rpartition("/")[2] for entry in listing["objects"]]
        return sorted(folders), sorted(names)

    def attributes(self, keys: Sequence[str]) -> list[dict[str, str] | None]:
        """See `Objects`."""
        return list(concurrent_map(self._attributes_of, keys, CONCURRENT_REQUESTS))

    def _attributes_of(self, key: str) -> dict[str, str] | None:
        try:
            result = self._call(key, self._obstore.get, self._store, key, options={"head": True})
        except _MissingObjectError:
            return None
        return {**result.attributes, "modified": result.meta["last_modified"].isoformat()}

    def put(self, key: str, data: str, attributes: dict[str, str]) -> None:
        """See `Objects`."""
        self._call_in_thread(
            key,
            self._obstore.put,
            self._store,
            key,
            Path(data),
            attributes=attributes,
            chunk_size=PART_BYTES,
            max_concurrency=CONCURRENT_REQUESTS // 4,
        )

    def create(self, key: str, data: Buffer) -> bool:
        """See `Objects`."""

        def put_new() -> bool:
            try:
                self._obstore.put(self._store, key, bytes(data), mode="create")
            except self._obstore.exceptions.AlreadyExistsError:
                return False
            return True

        return self._call_in_thread(key, put_new)

    def remove(self, keys: Sequence[str]) -> None:
        """See `Objects`."""
        with suppress(_MissingObjectError):
            self._call_in_thread("", self._obstore.delete, self._store, keys)

    # --------------------------------------------------------------------------------------- errors

    def _call_in_thread(
        self, key: str, function: Callable[..., R], *arguments: Any, **options: Any
    ) -> R:
        """Call a function as `_call` does, in a thread, so that the caller can be interrupted."""
        results = concurrent_map(
            lambda call: self._call(key, call, *arguments, **options), [function], 1
        )
        return next(results)

    def _call(self, key: str, function: Callable[..., R], *arguments: Any, **options: Any) -> R:
        """Call a function of obstore.

        Raises:
            DatacheckError: it failed; `_MissingObjectError` if there is no such object.
        """
        try:
            return function(*arguments, **options)
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as error:
            translated = self._translated(key, error)
        # Outside of the handler: a traceback would also print the text of the first error.
        raise translated

    def _translated(self, key: str, error: Exception) -> DatacheckError:
        text = str(error)
        named = type(error).__name__
        status = re.search(r"status code: (\d{3})", text)
        description = f"{status[1] if status else 0} {named} {text}"
        refusal = next(
            refusal for refusal in _REFUSALS if re.search(refusal.pattern, description, re.DOTALL)
        )
        kind = refusal.error
        if isinstance(error, FileNotFoundError) and refusal is not _NO_BUCKET:
            kind = _MissingObjectError
        code = re.search(r"<Code>(\w{1,60})</Code>", text)
        if code is not None:
            named = code[1]
        elif status is not None:
            named = status[1]
        variables = SCHEMES[self._place.partition("://")[0]]
        return kind(self._message(key, refusal.advice.format(named=named, variables=variables)))

    def _message(self, key: str, problem: str) -> str:
        return f"{self._place}{f'/{key}' if key else ''}: {problem}"
