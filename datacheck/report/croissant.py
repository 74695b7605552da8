"""Dataset card as Croissant 1.1 (JSON-LD): files with SHA-256, fields of the schema, the verdict.

User text stays text: paths become percent-encoded URLs, and characters that a terminal would act on
are escaped.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import orjson

from datacheck.errors import StorageError, UsageError
from datacheck.report.words import clean
from datacheck.runtime.aligned import empty
from datacheck.runtime.beneath import check_holes
from datacheck.runtime.hashing import READ_BYTES, Digester
from datacheck.runtime.machine import usable_cpus
from datacheck.scan.run_documents import read_result, read_schema, reading, run_in, unread
from datacheck.scan.run_state import RunState, read_state
from datacheck.schema.model import ANY, FieldSpec, Schema
from datacheck.sources.listing import Listing
from datacheck.sources.roots import NOT_WHOLE, Entry, Roots

PROPERTIES = (
    "name",
    "description",
    "license",
    "url",
    "creator",
    "citeAs",
    "datePublished",
    "version",
)
MOST_FILES = 10_000

_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_FORMATS = {
    ".parquet": "application/x-parquet",
    ".jsonl": "application/jsonlines",
    ".json": "application/json",
    ".csv": "text/csv",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".mp4": "video/mp4",
    ".tar": "application/x-tar",
    ".h5": "application/x-hdf5",
    ".hdf5": "application/x-hdf5",
    ".wav": "audio/wav",
}
# formats in which Croissant readers look up a column by name
_TABLES = {".parquet", ".jsonl", ".csv"}
_INTEGER_ROLES = {"segment", "class", "instance", "id", "tokens", "labels", "faces"}
_TYPES = {"bool": "sc:Boolean", "text": "sc:Text", "json": "sc:Text"}


@dataclass(frozen=True)
class Card:
    """A card, and what it leaves out.

    Args:
        bytes: JSON-LD.
        unsaid: properties that Croissant asks for and the user has not given.
        notes: other omissions, one sentence each.
    """

    bytes: bytes
    unsaid: Sequence[str]
    notes: Sequence[str]


def card(
    run: str | Path, said: Mapping[str, str] | None = None, beside: Path | None = None
) -> Card:
    """Return the Croissant card of the data of a finished run.

    Args:
        run: its folder (``.datacheck`` for the newest).
        said: properties that cannot be measured, by the names in `PROPERTIES`.
        beside: the folder that will hold the card. If the data lies below it, file names are
            relative to it; otherwise to the data folder. Files of an extra folder that does not lie
            below the base are not listed.

    Raises:
        UsageError: the run does not exist, is the scan of a loader, or the data has changed since.
        StorageError: a file cannot be read.

    Notes:
        Every file is read once for its SHA-256; the same bytes are checked against the scan's
        digest. If there are more than `MOST_FILES` files, none is read or listed individually.
    """
    folder = run_in(Path(run))
    if folder is None:
        msg = f"{run}: is no finished run. Name the folder of one, for example .datacheck/latest"
        raise UsageError(msg)
    with reading(folder):
        return _card(run, *_read_run(folder), said or {}, beside)


def _card(
    run: str | Path,
    result: Mapping[str, Any],
    past: RunState,
    schema: Schema,
    given_properties: Mapping[str, str],
    card_folder: Path | None,
) -> Card:
    if not past.listing.entries:
        msg = f"{run}: is the scan of a loader, and a card lists files. Scan the files."
        raise UsageError(msg)
    base = _base_folder(past.listing.root, card_folder)
    head = _path_prefix(past.listing.root, base) or ""
    objects, notes = _file_objects(past.listing, base)
    names = sorted({name for name in past.table.files if name}) or past.listing.entries.paths
    suffixes = sorted({PurePosixPath(name).suffix for name in names})
    fields = schema.fields | {
        n: s
        for variant_fields in schema.when.values()
        for n, s in variant_fields.items()
        if isinstance(s, FieldSpec)
    }
    listed_fields = {name: spec for name, spec in fields.items() if name != ANY and not spec.absent}
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        **_dataset_properties(result, given_properties),
        "distribution": [_file_set(suffixes, head), *objects],
        "recordSet": [
            *_sample_records(listed_fields, suffixes),
            *_split_records(result["dataset"]["splits"]),
        ],
        "additionalProperty": _measured_properties(result),
    }
    return Card(
        orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE),
        [name for name in PROPERTIES[2:] if name not in given_properties],
        notes,
    )


def _read_run(folder: Path) -> tuple[dict[str, Any], RunState, Schema]:
    try:
        return read_result(folder), read_state(folder), read_schema(folder)
    except Exception as error:
        raise unread(folder, error) from error


def _dataset_properties(
    result: Mapping[str, Any], given_properties: Mapping[str, str]
) -> dict[str, Any]:
    dataset = result["dataset"]
    verdict = result["verdict"]
    listed = dataset["samples"]["listed"]
    text = (
        f"{listed:,} samples in {dataset['files']:,} files. datacheck {result['run']['version']} "
        f"found "
        f"{verdict['valid']:,} of them fit for training: {verdict['counts']['error']} errors, "
        f"{verdict['counts']['warning']} warnings."
    )
    properties = {"name": dataset["name"], "description": text, **given_properties}
    named = {name: clean(value) for name, value in properties.items() if name != "creator"}
    return named | (
        {"creator": {"@type": "sc:Person", "name": clean(given_properties["creator"])}}
        if "creator" in given_properties
        else {}
    )


def _measured_properties(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return datacheck's measurements of the data, as properties of schema.org."""
    dataset = result["dataset"]
    verdict = result["verdict"]
    values = {
        "digest": dataset["digest"],
        "verdict": verdict["status"],
        "valid": verdict["valid"],
        **{f"findings/{severity}": count for severity, count in verdict["counts"].items()},
        "failing": " ".join(
            code for code, rule in result["rules"].items() if rule["status"] == "fail"
        ),
        "schema": result["schema"]["name"],
        "schema_digest": result["schema"]["digest"],
        "scanned": result["run"]["started"],
        "version": result["run"]["version"],
    }
    return [
        {
            "@type": "sc:PropertyValue",
            "name": f"datacheck/{name}",
            "value": clean(v) if isinstance(v, str) else v,
        }
        for name, v in values.items()
    ]


# -------------------------------------------------------------------------------------------- files


def _base_folder(root: Path, card_folder: Path | None) -> Path:
    """Return the folder that file names are relative to."""
    root, folder = root.resolve(), None if card_folder is None else card_folder.resolve()
    return folder if folder is not None and root.is_relative_to(folder) else root


def _path_prefix(folder: Path, base: Path) -> str | None:
    """Return the prefix of the names of a folder's files: "" or a path with a trailing slash.

    None if the folder does not lie below `base`.
    """
    folder = folder.resolve()
    if folder == base:
        return ""
    return f"{folder.relative_to(base).as_posix()}/" if folder.is_relative_to(base) else None


def _file_objects(listing: Listing, base: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the files with their SHA-256, and notes on files that are left out."""
    if len(listing.entries) > MOST_FILES:
        most = (
            f"{len(listing.entries):,} files are more than {MOST_FILES:,}: none is listed with "
            f"its SHA-256"
        )
        return [], [
            f"{most}; datacheck's digest is of all. Cards of fewer, larger files (tar, Parquet) "
            f"have them."
        ]
    heads = {f"@{name}/": _path_prefix(folder, base) for name, folder in listing.roots.items()}
    # an extra folder may lie in the data folder: list its files once
    named: dict[str, Entry] = {}
    for entry in listing.entries:
        root_prefix = next(
            (root_prefix for root_prefix in heads if entry.path.startswith(root_prefix)), ""
        )
        head = heads[root_prefix] if root_prefix else _path_prefix(listing.root, base)
        if head is not None:
            named.setdefault(head + entry.path.removeprefix(root_prefix), entry)
    with ThreadPoolExecutor(usable_cpus()) as pool:
        sums = list(pool.map(lambda entry: _sha256(listing, entry), named.values()))
    file_objects = [
        _file_object(name, entry.size, sha)
        for (name, entry), sha in zip(named.items(), sums, strict=True)
        if sha
    ]
    folders = len(named) - len(file_objects)
    many = (
        f"{folders:,} Zarr folders are not listed by themselves"
        if folders > 1
        else "1 Zarr folder is not listed by itself"
    )
    notes = [f"{many}: a folder has no SHA-256"] if folders else []
    unlisted_roots = [
        clean(root_prefix[1:-1]) for root_prefix, head in heads.items() if head is None
    ]
    if unlisted_roots:
        notes.append(
            f"files of --root {', '.join(unlisted_roots)} are not listed: put the card into a folder above "
            f"all data"
        )
    return file_objects, notes


def _file_object(name: str, size: int, sha: str) -> dict[str, Any]:
    url = quote(name)
    return {
        "@type": "cr:FileObject",
        "@id": f"file/{url}",
        "name": clean(name, spaces=True),
        "contentUrl": url,
        "contentSize": f"{size} B",
        "encodingFormat": _format(PurePosixPath(name).suffix),
        "sha256": sha,
    }


def _sha256(listing: Listing, entry: Entry) -> str:
    """Return the SHA-256 of a file that has not changed since the scan; "" for a folder."""
    place = Roots(listing.root, listing.roots).file(entry.path)
    if place.is_dir():
        return ""
    sha = hashlib.sha256()
    digester = Digester()
    view = empty([READ_BYTES], "uint8").data
    read = 0
    try:
        with place.open(buffering=0) as file:
            check_holes(file.fileno())
            status = os.fstat(file.fileno())
            while read <= entry.size == status.st_size and (size := file.readinto(view)):
                sha.update(view[:size])
                digester.update(view[:size])
                read += size
    except FileNotFoundError as error:
        msg = f"{clean(str(place), spaces=True)}: is not there any more. Scan again."
        raise UsageError(msg) from error
    except OSError as error:
        msg = f"{clean(str(place), spaces=True)}: {error.strerror}"
        raise StorageError(msg) from error
    has_digest = entry.digest not in {None, NOT_WHOLE}
    same = (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns)
    if read != entry.size or (entry.digest != digester.hexdigest() if has_digest else not same):
        msg = (
            f"{clean(str(place), spaces=True)}: has changed since the scan, whose verdict is not "
            f"of it. Scan again."
        )
        raise UsageError(msg)
    return sha.hexdigest()


def _file_set(suffixes: Sequence[str], head: str) -> dict[str, Any]:
    plain = all(suffix[1:].isalnum() for suffix in suffixes)
    within = re.sub(r"([*?\[])", r"[\1]", head)
    return {
        "@type": "cr:FileSet",
        "@id": "samples-files",
        "name": "samples-files",
        "description": "The files that the samples are in.",
        "encodingFormat": sorted({_format(suffix) for suffix in suffixes}),
        "includes": [
            f"{within}*{suffix if plain else ''}" for suffix in (suffixes if plain else [""])
        ],
    }


def _format(suffix: str) -> str:
    return _FORMATS.get(suffix.lower(), "application/octet-stream")


# ------------------------------------------------------------------------------------------- fields


def _sample_records(
    fields: Mapping[str, FieldSpec], suffixes: Sequence[str]
) -> Iterator[dict[str, Any]]:
    if fields:
        tables = bool(suffixes) and set(suffixes) <= _TABLES
        yield {
            "@type": "cr:RecordSet",
            "@id": "samples",
            "name": "samples",
            "field": [_field(name, spec, tables=tables) for name, spec in fields.items()],
        }


def _field(name: str, spec: FieldSpec, *, tables: bool) -> dict[str, Any]:
    extract = {"column": spec.at or name} if tables else {"fileProperty": "content"}
    attributes = [spec.role, spec.unit, spec.frame, "optional" if spec.optional else None]
    shape = (
        []
        if spec.shape is None
        else [str(dim) if isinstance(dim, int) else "-1" for dim in spec.shape]
    )
    return {
        "@type": "cr:Field",
        "@id": f"samples/{quote(name)}",
        "name": clean(name, spaces=True),
        "description": ", ".join(clean(word) for word in attributes if word) or "no role declared",
        "dataType": _type(spec),
        "source": {"fileSet": {"@id": "samples-files"}, "extract": extract},
        **({"isArray": True, "arrayShape": ",".join(shape)} if shape else {}),
    }


def _type(spec: FieldSpec) -> str:
    if spec.dtype is not None:
        number = (
            f"U{spec.dtype[1:].capitalize()}"
            if spec.dtype.startswith("u")
            else spec.dtype.capitalize()
        )
        return _TYPES.get(spec.dtype) or f"cr:{number}"
    if spec.is_text:
        return "sc:Text"
    if spec.role == "image":
        return "sc:ImageObject"
    if spec.role in {"flag", "mask", "done"}:
        return "sc:Boolean"
    return "sc:Integer" if spec.role in _INTEGER_ROLES else "sc:Float"


def _split_records(splits: Mapping[str, Mapping[str, int]]) -> Iterator[dict[str, Any]]:
    if splits:
        types = {"name": "sc:Text", "samples": "sc:Integer", "valid": "sc:Integer"}
        yield {
            "@type": "cr:RecordSet",
            "@id": "splits",
            "name": "splits",
            "dataType": "cr:Split",
            "key": {"@id": "splits/name"},
            "field": [
                {"@type": "cr:Field", "@id": f"splits/{name}", "name": name, "dataType": kind}
                for name, kind in types.items()
            ],
            "data": [
                {"splits/name": clean(name, spaces=True)}
                | {f"splits/{count_name}": count for count_name, count in counts.items()}
                for name, counts in splits.items()
            ],
        }
