"""Code of this process: installed packages, digests of imported sources, and the git repository."""

from __future__ import annotations

import copy
import csv
import functools
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import threading
from base64 import urlsafe_b64decode
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datacheck.runtime.hashing import Digester, digest_bytes, digest_file


def free_name(path: str, taken: Container[str], name: str | None = None) -> str:
    """Return a name for a file that is not taken: the shortest path suffix that is free.

    Args:
        path: the file, without links; a second entry for the same path gets a number.
        taken: names in use.
        name: the first name to try; None: the last part of the path.
    """
    parts = Path(path).parts
    names = [name or parts[-1], *("/".join(parts[-count:]) for count in range(2, len(parts) + 1))]
    free = next((candidate for candidate in names if candidate not in taken), None)
    number = 2
    while free is None:
        free = f"{names[-1]} ({number})" if f"{names[-1]} ({number})" not in taken else None
        number += 1
    return free


_INSTALLER_FILES = {
    "RECORD",
    "INSTALLER",
    "REQUESTED",
    "direct_url.json",
    "uv_cache.json",
    "top_level.txt",
}
_DIST_INFO = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)\.dist-info")


@dataclass(frozen=True)
class PackageFile:
    """A file of a package as its RECORD lists it.

    Args:
        package: the package.
        path: the file's path below the folder that the package is installed in.
        sha256: hex digits, "" where none is recorded.
    """

    package: str
    path: str
    sha256: str


@dataclass
class InstalledPackages:
    """The packages installed in the folders of `sys.path`.

    Args:
        packages: by name: version, record (a digest, None without a RECORD), and where they apply
            editable, shadowed (versions of the same name later on `sys.path`), loaded (whether one
            of its modules is).
    """

    packages: dict[str, dict[str, Any]] = field(default_factory=dict)
    _files: dict[str, PackageFile] = field(default_factory=dict)

    def owner(self, path: str) -> PackageFile | None:
        """Return the package that owns a file, None if no RECORD lists it; `path` has no links."""
        return self._files.get(path)

    def add(self, place: Path) -> None:
        """Read one .dist-info or .egg-info."""
        name, version = _name_and_version(place)
        existing = self.packages.get(name)
        if existing is not None:  # the first of two on sys.path is imported
            existing.setdefault("shadowed", []).append(version)
            return
        rows = _record_rows(place)
        package: dict[str, Any] = {
            "version": version,
            "record": None if rows is None else _package_digest(place.name, rows),
        }
        if _editable(place):
            package["editable"] = True
        self.packages[name] = package
        root = f"{os.path.realpath(place.parent)}{os.sep}"
        for path, digest in rows or ():
            if not path.startswith(".."):
                self._files.setdefault(root + path, PackageFile(name, path, digest))


def installed() -> InstalledPackages:
    """Read the installed packages, in the order of `sys.path`.

    Notes:
        Unchanged metadata is not read again: it stays in memory.
    """
    cached = _read(tuple((place, _stamp(place)) for place in _metadata_places()))
    if any("unreadable" in package for package in cached.packages.values()):
        _read.cache_clear()  # it may become readable without a change of its stamp
    packages_copy = InstalledPackages(copy.deepcopy(cached.packages), cached._files)  # noqa: SLF001
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        owner = packages_copy.owner(real_path(file)) if isinstance(file, str) else None
        if owner is not None:
            packages_copy.packages[owner.package]["loaded"] = True
    return packages_copy


@functools.lru_cache(maxsize=1)
def _read(places: tuple[tuple[Path, Any], ...]) -> InstalledPackages:
    installed_packages = InstalledPackages()
    for place, _ in places:
        try:
            installed_packages.add(place)
        except (OSError, ValueError, csv.Error) as error:
            installed_packages.packages.setdefault(
                place.name, {"version": "", "record": None, "unreadable": str(error)}
            )
    installed_packages.packages = dict(sorted(installed_packages.packages.items()))
    return installed_packages


def _stamp(place: Path) -> tuple[tuple[int, int, int] | None, ...]:
    """Return change time, size and inode of the metadata files that are read of a package."""
    stamps: list[tuple[int, int, int] | None] = []
    for name in ("", "RECORD", "direct_url.json", "METADATA", "PKG-INFO"):
        try:
            status = (place / name).stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((status.st_ctime_ns, status.st_size, status.st_ino))
    return tuple(stamps)


def real_path(file: str) -> str:
    """Return the real path of a module's file; for an absolute path, as of the first call."""
    return _known_path(file) if file.startswith(os.sep) else os.path.realpath(file)


# A process has thousands of modules, and each part of a path is a system call.
_known_path = functools.cache(os.path.realpath)


def _metadata_places() -> Iterator[Path]:
    seen_folders = set()
    for folder in sys.path:
        real = os.path.realpath(folder or ".")
        if real not in seen_folders and Path(real).is_dir():
            seen_folders.add(real)
            yield from _metadata(Path(real))


def _metadata(folder: Path) -> Iterator[Path]:
    if folder.suffix == ".egg" and (folder / "EGG-INFO").is_dir():
        yield folder / "EGG-INFO"
    try:
        names = sorted(place.name for place in folder.iterdir())
    except OSError:
        return
    yield from (folder / name for name in names if name.endswith((".dist-info", ".egg-info")))


def _name_and_version(place: Path) -> tuple[str, str]:
    match = _DIST_INFO.fullmatch(place.name)
    if match:  # takes a tenth of the time of reading the metadata
        name = match["name"]
        version = match["version"]
    else:
        # Slow to import, and rarely needed.
        from importlib.metadata import PathDistribution  # noqa: PLC0415

        metadata = PathDistribution(place).metadata
        name = metadata["Name"] or place.name
        version = metadata["Version"] or ""
    return re.sub(r"[-_.]+", "-", name).lower(), version


def _record_rows(place: Path) -> list[tuple[str, str]] | None:
    """Return (path, sha256 as hex digits or "") of each installed file; None without a RECORD."""
    try:
        text = (place / "RECORD").read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    lines = text.splitlines()
    if '"' in text:
        rows = [(row[0], row[1]) for row in csv.reader(lines) if len(row) > 1]
    else:  # csv takes three times as long, for 40,000 lines
        rows = [(parts[0], parts[1]) for line in lines if len(parts := line.rsplit(",", 2)) == 3]
    return [(path, _hex(digest)) for path, digest in rows]


def _hex(digest: str) -> str:
    kind, _, value = digest.partition("=")
    return urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex() if kind == "sha256" else ""


def _package_digest(place: str, rows: list[tuple[str, str]]) -> str:
    """Digest the content of a package, not the place and installer."""
    installer_files = {f"{place}/{name}" for name in _INSTALLER_FILES}
    content_rows = sorted(
        (path, digest)
        for path, digest in rows
        if digest and not path.startswith("..") and path not in installer_files
    )
    return digest_bytes("\n".join(f"{path},{digest}" for path, digest in content_rows).encode())


def _editable(place: Path) -> bool:
    try:
        direct_url = json.loads((place / "direct_url.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(isinstance(direct_url, dict) and direct_url.get("dir_info", {}).get("editable"))


_OWN_SOURCE = f"{os.path.realpath(Path(__file__).parents[1])}{os.sep}"
_GIT_TIMEOUT = 20.0
_CHUNK_BYTES = 1 << 16
_MOST_BYTES = 64 << 20
_SHA1 = 40  # hex digits of a commit; repositories with longer hashes must declare it
# Git takes no locks, and fetches nothing that a partial clone lacks: the transport may be a program
# from its settings.
_GIT_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
}
# The settings of a repository that decide which changes git sees; all others may name programs.
_GIT_SETTINGS = r"^core\.(autocrlf|eol|filemode|ignorecase|symlinks)$"
_PLAIN_VALUE = re.compile("[a-z]+")


def code(found: InstalledPackages) -> dict[str, str]:
    """Return the digest of the script and of each imported .py that no package owns.

    Returns:
        By path below the import root, sorted.

    Notes:
        The digest is that of the file as it is now. The standard library counts with the
        interpreter, datacheck by its version. The root of ``models.decoder.dit`` is the folder that
        holds ``models``. Code without a file (a notebook, ``python -c``) is "missing" under the
        name ``__main__``.
    """
    standard = tuple(
        f"{os.path.realpath(sysconfig.get_path(name))}{os.sep}" for name in ("stdlib", "platstdlib")
    )
    installed = tuple(
        f"{os.path.realpath(sysconfig.get_path(name))}{os.sep}" for name in ("purelib", "platlib")
    )
    digests: dict[str, str] = {}
    seen_paths: set[str] = set()
    for name, file in _imported_sources():
        real = real_path(file)
        if real in seen_paths:
            continue
        seen_paths.add(real)
        if found.owner(real) is not None or (
            real.startswith(standard) and not real.startswith(installed)
        ):
            continue
        try:
            digest = digest_file(file)
        except OSError:  # in an archive, or deleted
            digest = "missing"
        path = _below_root(name, file)
        digests[free_name(file, digests, path)] = digest  # a name clash adds folders
    if not isinstance(getattr(sys.modules.get("__main__"), "__file__", None), str):
        digests["__main__"] = "missing"
    return dict(sorted(digests.items()))


def _imported_sources() -> Iterator[tuple[str, str]]:
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not (file.endswith(".py") or name == "__main__"):
            continue  # a script may have any name
        if real_path(file).startswith(_OWN_SOURCE):
            continue
        # Some objects of PyTorch in sys.modules have a `__file__` that does not exist.
        if file.startswith(os.sep) or Path(file).is_file():
            yield name, file


def _below_root(name: str, file: str) -> str:
    parts = Path(file).parts
    words = name.split(".")
    if parts[-1] == "__init__.py":
        words.append("__init__")
    fits = [*words[:-1], f"{words[-1]}.py"] == list(parts[-len(words) :])
    return "/".join(parts[-len(words) :]) if fits else parts[-1]


def git() -> dict[str, Any]:
    """Return the commit, the state of tracked files, and the commits of submodules.

    Returns:
        commit, dirty (whether tracked files are changed), diff (digest of the changes), submodules.

    Notes:
        The repository is that of the script, or else of the working folder. Untracked files do not
        count here: imported ones are in the section `code`.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    script = isinstance(main, str) and _apart(main)
    folder = Path(main).resolve().parent if isinstance(main, str) and script else Path.cwd()
    diff_options = ["--no-ext-diff", "--no-textconv", "--binary", "--submodule=short"]
    try:
        with nullcontext(os.environ) if script else _without_settings(folder) as environment:
            commit = (
                _git_output(folder, "rev-parse", "HEAD", environment=environment).decode().strip()
            )
            if not script:  # a submodule's settings may name programs, too
                diff_options.append("--ignore-submodules=dirty")
            changes = _git_digest(folder, "diff", *diff_options, "HEAD", environment=environment)
            arguments = "ls-files", "-z", "--stage", "--full-name", ":/"
            modules = _git_output(folder, *arguments, environment=environment).decode(
                "utf-8", "surrogateescape"
            )
    except FileNotFoundError:
        return {"missing": "git is not installed"}
    except subprocess.TimeoutExpired:
        return {"missing": f"git did not answer within {_GIT_TIMEOUT:.0f} s"}
    except subprocess.CalledProcessError as error:
        return {"missing": _git_failure(error)}
    links = (entry.partition("\t") for entry in modules.split("\0") if entry.startswith("160000 "))
    return {
        "commit": commit,
        "dirty": bool(changes),
        "diff": changes,
        "submodules": {path: entry.split()[1] for entry, _, path in links},
    }


def _git_failure(error: subprocess.CalledProcessError) -> str:
    """Return why git failed, in fixed words.

    Git's own messages quote lines of files that the repository may link to.
    """
    message = error.stderr.decode("utf-8", "replace")
    explanations = {
        "not a git repository": "the script lies in no git repository",
        "dubious ownership": "the repository belongs to another user, which git refuses "
        "(safe.directory)",
        "ambiguous argument 'HEAD'": "the repository has no commit",
    }
    return next(
        (explanation for git_phrase, explanation in explanations.items() if git_phrase in message),
        "git fails here; git status says why",
    )


def _apart(main: str) -> bool:
    """Return whether this is a script rather than an installed command.

    The folder of an installed command says nothing about the code.
    """
    place = os.path.realpath(main)
    return (
        not place.startswith(_OWN_SOURCE)
        and Path(place).parent != Path(sys.executable).absolute().parent
    )


@contextmanager
def _without_settings(folder: Path) -> Iterator[dict[str, str]]:
    """Yield variables under which git reads a repository without the programs in its settings.

    Raises:
        OSError: there is no room for temporary files, or the repository cannot be read.
        As of `_git_chunks`.

    Notes:
        The working folder may be data packed by somebody else, ``.git`` included, and may change
        meanwhile: no command that could start a program reads its settings. Nothing outside of it
        counts as its files.
    """
    commit = _git_output(folder, "rev-parse", "HEAD").decode().strip()
    own, objects, index = (
        folder / os.fsdecode(_git_output(folder, "rev-parse", *words).removesuffix(b"\n"))
        for words in (("--git-dir",), ("--git-path", "objects"), ("--git-path", "index"))
    )
    with tempfile.TemporaryDirectory(prefix="datacheck-") as name:
        place = Path(name)
        for inside in ("objects", "refs"):
            (place / inside).mkdir()
        (place / "HEAD").write_text(f"{commit}\n")
        (place / "config").write_text(_plain_settings(folder, commit))
        for part in index.parent.glob("sharedindex.*"):
            (place / part.name).symlink_to(part.absolute())
        yield {
            name: value
            for name, value in os.environ.items()
            if name not in {"GIT_COMMON_DIR", "GIT_NAMESPACE"}
        } | {
            "GIT_DIR": str(place),
            "GIT_WORK_TREE": str(_work_tree(folder, own)),
            "GIT_OBJECT_DIRECTORY": str(objects.absolute()),
            "GIT_INDEX_FILE": str(index.absolute()),
        }


def _work_tree(folder: Path, own: Path) -> Path:
    """Return the folder that holds a repository's ``.git``: a folder, or a file that names one."""
    start_folder = folder.absolute()
    candidates = ((place, place / ".git") for place in (start_folder, *start_folder.parents))
    return next(
        (
            place
            for place, git_path in candidates
            if git_path.is_file() or (git_path.is_dir() and git_path.samefile(own))
        ),
        start_folder,
    )


def _plain_settings(folder: Path, commit: str) -> str:
    """Return a settings file with the repository's settings that start no program."""
    long = len(commit) > _SHA1
    lines = ["[extensions]", "objectFormat = sha256"] if long else []
    lines += ["[core]", f"repositoryFormatVersion = {int(long)}"]
    try:
        output = _git_output(
            folder, "config", "--local", "-z", "--get-regexp", _GIT_SETTINGS
        ).decode("utf-8", "replace")
    except subprocess.CalledProcessError as error:
        if error.returncode != 1:  # 1: there are none
            raise
        output = ""
    for entry in output.split("\0"):
        name, _, value = entry.partition("\n")
        if _PLAIN_VALUE.fullmatch(value):
            lines.append(f"{name.removeprefix('core.')} = {value}")
    return "\n".join([*lines, ""])


def _git_output(folder: Path, *words: str, environment: Mapping[str, str] = os.environ) -> bytes:
    """Return the output of git.

    Raises:
        FileNotFoundError, subprocess.TimeoutExpired, subprocess.CalledProcessError: as of
        `_git_chunks`.
        subprocess.CalledProcessError: more than 64 MiB.
    """
    output = bytearray()
    for piece in _git_chunks(folder, words, environment):
        output += piece
        if len(output) > _MOST_BYTES:
            raise subprocess.CalledProcessError(1, "git", stderr=b"it says more than 64 MiB")
    return bytes(output)


def _git_digest(folder: Path, *words: str, environment: Mapping[str, str]) -> str | None:
    """Return the digest of git's output, None if it is empty.

    The output is not held: the changes of a few files may be gigabytes.
    """
    digester = Digester()
    size = 0
    for piece in _git_chunks(folder, words, environment):
        digester.update(piece)
        size += len(piece)
    return digester.hexdigest() if size else None


def _git_chunks(
    folder: Path, words: Sequence[str], environment: Mapping[str, str]
) -> Iterator[bytes]:
    """Yield the output of git in pieces.

    Raises:
        FileNotFoundError: git is not installed.
        subprocess.TimeoutExpired: git takes too long.
        subprocess.CalledProcessError: git fails.
    """
    # The setting core.fsmonitor may start a program.
    quiet = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *words]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            quiet,
            cwd=folder,
            env={**environment, **_GIT_ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        assert process.stdout is not None
        expired = threading.Event()

        def end() -> None:
            expired.set()
            process.kill()

        late = threading.Timer(_GIT_TIMEOUT, end)
        late.start()
        try:
            while piece := process.stdout.read(_CHUNK_BYTES):
                yield piece
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            late.cancel()
        if expired.is_set():
            raise subprocess.TimeoutExpired(quiet, _GIT_TIMEOUT)
        if code:
            errors.seek(0)
            raise subprocess.CalledProcessError(code, quiet, stderr=errors.read(_CHUNK_BYTES))
