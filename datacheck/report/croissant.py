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
from datacheck.scan.run_documents import finished_run, read_result, read_schema, reading, unread
from datacheck.scan.run_state import RunState, read_state
from datacheck.schema.model import ANY, FieldSpec, Schema
from datacheck.sources.listing import Listing
from datacheck.sources.roots import NOT_WHOLE, Entry, Roots, root_of

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
# Formats in which Croissant readers look up a column by name.
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
    folder = finished_run(run)
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
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        **_dataset_properties(result, given_properties),
        "distribution": [_file_set(suffixes, head), *objects],
        "recordSet": [
            *_sample_records(_declared_fields(schema), suffixes),
            *_split_records(result["dataset"]["splits"]),
        ],
        "additionalProperty": _measured_properties(result),
    }
    asked = PROPERTIES[2:]  # name and description have defaults
    return Card(
        bytes=orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE),
        unsaid=[name for name in asked if name not in given_properties],
        notes=notes,
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
        f"found {verdict['valid']:,} of them fit for training: {verdict['counts']['error']} errors, "
        f"{verdict['counts']['warning']} warnings."
    )
    texts = {"name": dataset["name"], "description": text, **given_properties}
    creator = texts.pop("creator", None)
    properties: dict[str, Any] = {name: clean(value) for name, value in texts.items()}
    if creator is not None:
        properties["creator"] = {"@type": "sc:Person", "name": clean(creator)}
    return properties


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
            "value": clean(value) if isinstance(value, str) else value,
        }
        for name, value in values.items()
    ]


# -------------------------------------------------------------------------------------------- files


def _base_folder(root: Path, card_folder: Path | None) -> Path:
    """Return the folder that file names are relative to."""
    root = root.resolve()
    if card_folder is None:
        return root
    folder = card_folder.resolve()
    return folder if root.is_relative_to(folder) else root


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
        return [], [
            f"{len(listing.entries):,} files are more than {MOST_FILES:,}: none is listed with "
            f"its SHA-256; datacheck's digest is of all. Cards of fewer, larger files (tar, "
            f"Parquet) have them."
        ]
    prefixes = {name: _path_prefix(folder, base) for name, folder in listing.roots.items()}
    named = _entries_by_name(listing, base, prefixes)
    with ThreadPoolExecutor(usable_cpus()) as pool:
        digests = list(pool.map(lambda entry: _sha256(listing, entry), named.values()))
    files = [
        _file_object(name, entry.size, sha)
        for (name, entry), sha in zip(named.items(), digests, strict=True)
        if sha
    ]
    notes = []
    folders = len(named) - len(files)
    if folders == 1:
        notes.append("1 Zarr folder is not listed by itself: a folder has no SHA-256")
    elif folders:
        notes.append(
            f"{folders:,} Zarr folders are not listed by themselves: a folder has no SHA-256"
        )
    unlisted = [clean(root) for root, prefix in prefixes.items() if prefix is None]
    if unlisted:
        notes.append(
            f"files of --root {', '.join(unlisted)} are not listed: put the card into a folder "
            f"above all data"
        )
    return files, notes


def _entries_by_name(
    listing: Listing, base: Path, prefixes: Mapping[str, str | None]
) -> dict[str, Entry]:
    """Return the listed files by their name relative to `base`; files above it are left out.

    Args:
        listing: the files; those of an extra folder have paths that begin with ``@NAME/``.
        base: the folder that names are relative to.
        prefixes: by extra folder, what names of its files begin with.
    """
    named: dict[str, Entry] = {}
    data_prefix = _path_prefix(listing.root, base)
    for entry in listing.entries:
        root, inner = root_of(prefixes, entry.path)
        prefix = prefixes[root] if root else data_prefix
        if prefix is not None:
            # An extra folder may lie in the data folder: its files are listed once.
            named.setdefault(prefix + inner, entry)
    return named


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
    shown_path = clean(str(place), spaces=True)
    sha = hashlib.sha256()
    digester = Digester()
    buffer = empty([READ_BYTES], "uint8").data
    read = 0
    try:
        with place.open(buffering=0) as file:
            check_holes(file.fileno())
            status = os.fstat(file.fileno())
            # A file of another size has changed, and is not read; one that grows is not read on.
            while status.st_size == entry.size and read <= entry.size:
                size = file.readinto(buffer)
                if not size:
                    break
                sha.update(buffer[:size])
                digester.update(buffer[:size])
                read += size
    except FileNotFoundError as error:
        msg = f"{shown_path}: is not there any more. Scan again."
        raise UsageError(msg) from error
    except OSError as error:
        msg = f"{shown_path}: {error.strerror}"
        raise StorageError(msg) from error
    if entry.digest in {None, NOT_WHOLE}:
        is_same = (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns)
    else:
        is_same = entry.digest == digester.hexdigest()
    if read != entry.size or not is_same:
        msg = f"{shown_path}: has changed since the scan, whose verdict is not of it. Scan again."
        raise UsageError(msg)
    return sha.hexdigest()


def _file_set(suffixes: Sequence[str], prefix: str) -> dict[str, Any]:
    """Return the set of all files of samples, by patterns below a prefix of their names."""
    folder = re.sub(r"([*?\[])", r"[\1]", prefix)
    patterns = [f"{folder}*{suffix}" for suffix in suffixes]
    if not all(suffix[1:].isalnum() for suffix in suffixes):
        patterns = [f"{folder}*"]
    return {
        "@type": "cr:FileSet",
        "@id": "samples-files",
        "name": "samples-files",
        "description": "The files that the samples are in.",
        "encodingFormat": sorted({_format(suffix) for suffix in suffixes}),
        "includes": patterns,
    }


def _format(suffix: str) -> str:
    return _FORMATS.get(suffix.lower(), "application/octet-stream")


# ------------------------------------------------------------------------------------------- fields


def _declared_fields(schema: Schema) -> dict[str, FieldSpec]:
    """Return the fields that some split may have; a declaration for a split comes last."""
    fields = dict(schema.fields)
    for of_split in schema.when.values():
        fields |= {name: spec for name, spec in of_split.items() if isinstance(spec, FieldSpec)}
    return {name: spec for name, spec in fields.items() if name != ANY and not spec.absent}


def _sample_records(
    fields: Mapping[str, FieldSpec], suffixes: Sequence[str]
) -> Iterator[dict[str, Any]]:
    if fields:
        are_tables = bool(suffixes) and set(suffixes) <= _TABLES
        yield {
            "@type": "cr:RecordSet",
            "@id": "samples",
            "name": "samples",
            "field": [_field(name, spec, in_table=are_tables) for name, spec in fields.items()],
        }


def _field(name: str, spec: FieldSpec, *, in_table: bool) -> dict[str, Any]:
    extract = {"column": spec.at or name} if in_table else {"fileProperty": "content"}
    attributes = [spec.role, spec.unit, spec.frame, "optional" if spec.optional else None]
    described = ", ".join(clean(word) for word in attributes if word)
    field: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"samples/{quote(name)}",
        "name": clean(name, spaces=True),
        "description": described or "no role declared",
        "dataType": _type(spec),
        "source": {"fileSet": {"@id": "samples-files"}, "extract": extract},
    }
    if spec.shape:
        sizes = [str(size) if isinstance(size, int) else "-1" for size in spec.shape]
        field |= {"isArray": True, "arrayShape": ",".join(sizes)}
    return field


def _type(spec: FieldSpec) -> str:
    if spec.dtype is not None:
        return _TYPES.get(spec.dtype) or _number_type(spec.dtype)
    if spec.is_text:
        return "sc:Text"
    if spec.role == "image":
        return "sc:ImageObject"
    if spec.role in {"flag", "mask", "done"}:
        return "sc:Boolean"
    return "sc:Integer" if spec.role in _INTEGER_ROLES else "sc:Float"


def _number_type(dtype: str) -> str:
    """Return Croissant's name of a type of numbers: ``cr:UInt8``, ``cr:Float32``."""
    name = dtype.capitalize()
    if dtype.startswith("u"):
        name = f"U{dtype[1:].capitalize()}"
    return f"cr:{name}"


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
