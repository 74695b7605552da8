"""Imports by name: built-ins in name order, plug-ins by entry point, optional libraries.

The lazy attributes of packages are the only other imports by name.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from datacheck.errors import MissingDependencyError, UsageError

Kind = TypeVar("Kind")

_added_folders: list[str] = []  # the entries of sys.path that `add_module_folders` added


def discover(package: str, kind: type[Kind]) -> list[Kind]:
    """Return the module-level objects of type `kind` in a package, then those of plug-ins.

    Args:
        package: dotted name ("datacheck.rules"); also the entry-point group that plug-ins use.
        kind: the type to look for.

    Notes:
        Modules at any depth, in name order; objects in order of definition. An object that several
        modules import counts once.

    Raises:
        UsageError: a plug-in cannot be loaded.
    """
    objects: list[Kind] = []
    for module in import_all(package):
        for value in list(vars(module).values()):
            if isinstance(value, kind) and not any(value is existing for existing in objects):
                objects.append(value)
    for entry in sorted(known_plugins(tuple(sys.path)).select(group=package), key=lambda e: e.name):
        try:
            value = entry.load()
        except Exception as error:
            msg = (
                f"the plug-in {entry.name} ({entry.value}) for {package} cannot be loaded: "
                f"{error}. Mend or remove it."
            )
            raise UsageError(msg) from error
        if isinstance(value, kind):
            objects.append(value)
    return objects


@cache
def import_all(package: str) -> list[ModuleType]:
    """Return the modules of a package, at any depth, in name order."""
    parent = importlib.import_module(package)
    names = sorted(module.name for module in pkgutil.walk_packages(parent.__path__, f"{package}."))
    return [importlib.import_module(name) for name in names]


@cache
def known_plugins(folders: tuple[str, ...]) -> Any:
    """Return the `EntryPoints` of the packages installed in module folders; loads none of them."""
    from importlib.metadata import entry_points  # noqa: PLC0415  imports by name do not need it

    del folders  # the key of the cache: entry points depend on sys.path
    return entry_points()


def resolve(name: str) -> Any:
    """Return the object named ``module:attribute``.

    Raises:
        UsageError: the module or the attribute does not exist, or importing the module fails.
    """
    module_name, _, attribute = name.partition(":")
    try:
        value: Any = importlib.import_module(module_name)
        for part in attribute.split(".") if attribute else []:
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(import_failure(name, error)) from error
    except Exception as error:  # a user's module may raise anything while it is imported
        msg = f"{import_failure(name, error)}. Mend it."
        raise UsageError(msg) from error
    return value


def import_failure(name: str, error: BaseException) -> str:
    """Return why the object named ``module:attribute`` cannot be imported."""
    if isinstance(error, ImportError | AttributeError):
        return f"{name}: {error}. Names are written module:function."
    return f"{name}: the module cannot be imported: {type(error).__name__}: {error}"


def module_folders() -> list[str]:
    """Return the module folders for a child process: those of this process, without its cwd.

    Notes:
        The working folder ("" on the path) is left out, because it often holds the data. The
        folders of `add_module_folders` are left out too: the child's task names them.
    """
    home = str(Path(__file__).parents[1])
    absolute = [
        folder for folder in sys.path if Path(folder).is_absolute() and folder not in _added_folders
    ]
    return absolute if home in absolute else [*absolute, home]


def add_module_folders(folders: Sequence[str]) -> None:
    """Let ``module:function`` find modules in these folders too, after all other places.

    Notes:
        Folders that an earlier call added are removed, and so are their modules: two pipelines may
        each have a ``steps.py`` next to them.
    """
    if not folders and not _added_folders:
        return  # the common case: nearly no task has folders
    removed = [folder for folder in _added_folders if folder not in folders]
    # A list, because other threads may import meanwhile.
    for name, module in list(sys.modules.items()) if removed else []:
        if _lies_in(removed, name, module):
            sys.modules.pop(name, None)
    sys.path[:] = [folder for folder in sys.path if folder not in removed]
    _added_folders[:] = [
        folder for folder in folders if folder in _added_folders or folder not in sys.path
    ]
    sys.path.extend(folder for folder in _added_folders if folder not in sys.path)
    importlib.invalidate_caches()


def _lies_in(folders: Sequence[str], name: str, module: ModuleType) -> bool:
    top = name.partition(".")[0]
    file = getattr(sys.modules.get(top, module), "__file__", None)
    return any(file in {f"{folder}/{top}.py", f"{folder}/{top}/__init__.py"} for folder in folders)


def require(module: str, extra: str) -> Any:
    """Return an optional library, or raise an error that names the extra to install.

    Raises:
        MissingDependencyError: the library is not installed.
    """
    msg = f"{module} is not installed: pip install 'datacheck[{extra}]'"
    try:
        library = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(msg) from error
    spec = getattr(library, "__spec__", None)
    # A folder of that name without a package, such as the one that wandb leaves where it ran.
    if spec is not None and spec.origin is None:
        raise MissingDependencyError(msg)
    return library


def is_installed(module: str) -> bool:
    """Tell whether an optional library is installed, without importing it."""
    return importlib.util.find_spec(module) is not None
