"""Which code a user's function is made of: its module, those beside it that it imports, versions of all others."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from datacheck.digest import digest_file
from datacheck.errors import UsageError

_OURS = "datacheck"


def code_of(module: str) -> dict[str, str]:
    """Return what decides the behaviour of a module, by module name, sorted.

    Returns:
        The digest of each source or extension file that lies in the module's own package or folder and is imported
        from there, over any number of steps; the version of every other distribution that these import.

    Raises:
        UsageError: a file is not found or is no Python, so that a changed function could not be told from this one.

    Notes:
        Imports are read from the text: one that is made by name while the code runs is not seen. What is imported from
        the standard library counts with the interpreter, which does not count; `datacheck` itself counts by its steps'
        versions. An import that does not resolve here (a platform's, an optional one) is "absent".
    """
    found: dict[str, str] = {}
    own, home = module.partition(".")[0], _home(module)
    waiting = [module]
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in found or top == _OURS or top in sys.stdlib_module_names:
            continue
        place = _place(name)
        if place is not None and (top == own or place.is_relative_to(home)):
            found[name] = digest_file(place)
            waiting += _imported(name, place) if place.suffix == ".py" else ()
        elif top != own and top not in found:
            found[top] = _version(top)
    return dict(sorted(found.items()))


def _home(module: str) -> Path:
    """Return the folder whose modules are the user's own: that of his module, unless packages are installed there.

    Raises:
        UsageError: the module has no file.
    """
    place = _place(module)
    if place is None:
        msg = f"{module}: its source file is not found, so a cache made by it could not be told from another"
        raise UsageError(msg)
    folder = place.parents[module.count(".") + (place.name == "__init__.py")]
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")}
    return place if folder in installed else folder


def _place(name: str) -> Path | None:
    """Return the file of a module, None where it has none (a namespace package) or is not there."""
    spec = _spec(name)
    return Path(spec.origin).resolve() if spec is not None and spec.has_location and spec.origin else None


def _spec(name: str) -> ModuleSpec | None:
    """Find a module without importing the packages that it lies in, as `importlib.util.find_spec` would."""
    top, *inner = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(f"{spec.name}.{part}", list(spec.submodule_search_locations))
    return spec


def _imported(name: str, place: Path) -> Iterator[str]:
    """Yield the modules that a file names in its import statements, and the packages above them."""
    try:
        tree = ast.parse(place.read_bytes(), str(place))
    except (SyntaxError, ValueError) as error:
        msg = f"{place}: is no Python ({error})"
        raise UsageError(msg) from error
    package = name if place.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            yield from _parents(base)
            for alias in node.names:  # a name may be a module of the package
                inner = f"{base}.{alias.name}" if base else alias.name
                if _spec(inner) is not None:
                    yield inner


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    above = ".".join(parts[: len(parts) - node.level + 1])
    return f"{above}.{node.module}" if node.module and above else node.module or above


def _parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[: i + 1]) for i in range(len(parts)) if parts[0])


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def _version(top: str) -> str:
    """Return the version of the distribution that a top-level module belongs to, "absent" where it is not there."""
    names = sorted(_distributions().get(top, []))
    if names:
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    place = _place(top)
    return "absent" if place is None else digest_file(place)
