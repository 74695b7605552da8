"""The step that calls a user's function, and the digests of the code behind that function."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import re
import sys
import sysconfig
import typing
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache, cached_property
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from datacheck.errors import InvalidSample, UsageError
from datacheck.model.sample import ArraySpec, Block, Kind, Piece, stack
from datacheck.plugins import resolve
from datacheck.runtime.hashing import canonical_json, digest_file
from datacheck.schema.grammar import Strings
from datacheck.schema.model import FieldSpec
from datacheck.transforms.base import Refusal, Result, Specs, Transform, with_columns

_OURS = "datacheck"


def code_digests(module: str) -> dict[str, str]:
    """Return the digests and versions that decide a module's behaviour, by module name, sorted.

    Returns:
        The digest of each source or extension file in the module's own package or folder that it
        imports directly or indirectly, and the version of every other distribution that these
        files import.

    Raises:
        UsageError: a file is not found or is not Python, so a change of the function could go
            unnoticed.

    Notes:
        Imports are read from the source text: an import by name at run time is not seen. The
        standard library belongs to the interpreter, which is not part of the result; `datacheck`
        itself counts through the versions of its steps. An import that does not resolve here (for
        another platform, or optional) is "absent".
    """
    digests: dict[str, str] = {}
    own = module.partition(".")[0]
    home = _user_folder(module)
    waiting = [module]
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in digests or top == _OURS or top in sys.stdlib_module_names:
            continue
        path = _module_file(name)
        if path is not None and (top == own or path.is_relative_to(home)):
            digests[name] = digest_file(path)
            waiting += _imported(name, path) if path.suffix == ".py" else ()
        elif top != own and top not in digests:
            digests[top] = _version(top)
    return dict(sorted(digests.items()))


def _user_folder(module: str) -> Path:
    """Return the folder of the user's own modules.

    That is the folder of the module; for a module in a folder of installed packages, only its file.

    Raises:
        UsageError: the module has no file.
    """
    path = _module_file(module)
    if path is None:
        msg = (
            f"{module}: its source file is not found, so a cache made by it could not be told "
            f"from another"
        )
        raise UsageError(msg)
    folder = path.parents[module.count(".") + (path.name == "__init__.py")]
    installed = {
        Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")
    }
    return path if folder in installed else folder


def _module_file(name: str) -> Path | None:
    """Return the file of a module, None for a namespace package or a missing module."""
    spec = _spec(name)
    return (
        Path(spec.origin).resolve()
        if spec is not None and spec.has_location and spec.origin
        else None
    )


def _spec(name: str) -> ModuleSpec | None:
    """Find a module without importing its parent packages, unlike `importlib.util.find_spec`."""
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


def _imported(name: str, path: Path) -> Iterator[str]:
    """Yield the modules in a file's import statements, and the packages above them."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        msg = f"{path}: is no Python ({error})"
        raise UsageError(msg) from error
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
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
    parent = ".".join(parts[: len(parts) - node.level + 1])
    return f"{parent}.{node.module}" if node.module and parent else node.module or parent


def _parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[: i + 1]) for i in range(len(parts)) if parts[0])


@cache
def _distributions(top: str) -> list[str]:
    """Return the distributions of a top-level module, as `packages_distributions` maps them.

    Notes:
        That function parses the file list of each installed distribution, which takes every child
        0.4 s for 100 of them. This one parses those that name the module.
    """
    found = importlib.metadata.distributions()
    return [dist.metadata["Name"] for dist in found if _provides(dist, top)]


def _provides(dist: importlib.metadata.Distribution, top: str) -> bool:
    declared = (dist.read_text("top_level.txt") or "").split()
    if declared:
        return top in declared
    record = dist.read_text("RECORD")
    if record and not re.search(rf'^"?{re.escape(top)}[/.]', record, re.MULTILINE):
        return False
    return any(_top_level(file) == top for file in dist.files or ())


def _top_level(file: importlib.metadata.PackagePath) -> str | None:
    if sys.version_info < (3, 12) and file.suffix != ".py":
        return None  # as `packages_distributions` does, so that fingerprints stay
    return file.parts[0] if len(file.parts) > 1 else inspect.getmodulename(file)


def _version(top: str) -> str:
    """Return the version of a top-level module's distribution, "absent" if it is not installed.

    A module without a distribution gives the digest of its file.
    """
    names = sorted(_distributions(top))
    if names:
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    path = _module_file(top)
    return "absent" if path is None else digest_file(path)


class Custom(Transform):
    """Call ``module:function`` with each sample, or with whole blocks.

    Args:
        use: the function: ``function(sample: Sample, **options)`` returns a mapping of all fields
            of the new sample; ``function(block: Block, **options)`` (its first parameter annotated
            as Block) returns a Block, where every sample equals its result in a block of its own.
        arguments (written ``with``): JSON values passed to the function by name.
        fields: the fields that the function changes or adds: ``{shape: [P, 6], dtype: float32,
            unit: m}``; other fields must stay as they are.
        drop: fields that the function leaves out.

    Notes:
        The function must be pure. It refuses a sample by raising `InvalidSample`; any other
        exception ends the build. The fingerprint includes the digests of its module and of the
        modules next to it that it imports, and the versions of all others, so an edit there makes a
        new cache.
    """

    name: ClassVar[str] = "function"
    version: ClassVar[int] = 1
    own_code: ClassVar[bool] = True
    use: str
    arguments: dict[str, Any] = Field(default={}, alias="with")
    fields: dict[str, FieldSpec] = Field(default={})
    drop: Strings = ()

    @cached_property
    def _function(self) -> Callable[..., Any]:
        function = resolve(self.use)
        if not callable(function):
            msg = f"{self.use} is not a function"
            raise UsageError(msg)
        return function  # type: ignore[no-any-return]

    @property
    def by_sample(self) -> bool:
        """Whether the function gets one sample at a time."""
        return not self._takes_blocks()

    def identity(self) -> dict[str, Any]:
        """Return the function's module and qualified name, the digests of its code, the options."""
        function = inspect.unwrap(self._function)
        qualified_name = [function.__module__, function.__qualname__]
        return {
            "function": qualified_name,
            "source": code_digests(function.__module__),
            "options": self.options(),
        }

    def options(self) -> dict[str, Any]:
        """Return the options without `use`, as JSON values."""
        return {k: v for k, v in super().options().items() if k != "use"}

    def as_dict(self) -> dict[str, Any]:
        """Return the step under its function's name."""
        return {self.use: self.options()}

    def derive(self, specs: Specs) -> dict[str, ArraySpec]:
        """Return the specs with the declared changes."""
        for name in self.drop:
            self.spec(specs, name)
        new = {
            name: _declared(f"{self.use}: fields.{name}", name, spec)
            for name, spec in self.fields.items()
        }
        return {name: spec for name, spec in {**specs, **new}.items() if name not in self.drop}

    def apply(self, block: Block) -> Result:
        """Return the function's result for the block."""
        if self._takes_blocks():
            made = self._call(block.keys[0], block)
            if not isinstance(made, Block) or made.keys != block.keys:
                msg = (
                    f"{self.use}: a function of blocks returns a Block with the same keys, not "
                    f"{type(made).__name__}"
                )
                raise UsageError(msg)
            for name, column in made.fields.items():
                rows = len(column.values) if column.lengths is None else int(column.lengths.sum())
                if len(column) != len(block) or rows != len(column.values):
                    msg = (
                        f"{self.use}: the column {name} does not hold the rows of {len(block)} "
                        f"samples"
                    )
                    raise UsageError(msg)
            # Copies: a function may write into the same memory in each call.
            input_ids = {id(column) for column in block.fields.values()}
            new = {
                n: replace(c, values=c.values.copy())
                for n, c in made.fields.items()
                if id(c) not in input_ids
            }
            return [with_columns(made, new)], []
        return self._by_sample(block)

    def _by_sample(self, block: Block) -> Result:
        pieces: list[Piece] = []
        refused: list[Refusal] = []
        for i, sample in enumerate(block):
            try:
                made = self._call(sample.key, sample)
            except InvalidSample as error:
                refused.append((sample.key, str(error) or "refused"))
                continue
            if not isinstance(made, Mapping):
                msg = (
                    f"{self.use}: a function of samples returns a mapping of fields, not "
                    f"{type(made).__name__}"
                )
                raise UsageError(msg)
            values = {name: self._plain(name, value) for name, value in made.items()}
            pieces.append(
                Piece(sample.key, values, sample.origin, block.groups[i] if block.groups else "")
            )
        return stack(pieces, block.split), refused

    def _call(self, key: str, value: Any) -> Any:
        try:
            return self._function(value, **self.arguments)
        except InvalidSample:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            msg = (
                f"{self.use}: {problem} (at sample {key}). Mend the function, or let it raise "
                f"InvalidSample."
            )
            raise UsageError(msg) from error

    def _plain(self, name: str, value: Any) -> Any:
        """Return a value in plain form: text as is, a copy of JSON values, else a new array.

        The array is in C order and little-endian.

        Notes:
            Copies: a function may write into the same memory in each call.
        """
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, list | dict):
            try:
                canonical_json(value)
            except (TypeError, ValueError) as error:
                msg = f"{self.use}: {name}: {error}"
                raise UsageError(msg) from error
            return deepcopy(value)
        array = np.asarray(value)
        return np.array(array, array.dtype.newbyteorder("<"), order="C")

    def _takes_blocks(self) -> bool:
        parameter = next(iter(inspect.signature(self._function).parameters), "")
        return typing.get_type_hints(self._function).get(parameter) is Block


def _declared(where: str, name: str, spec: FieldSpec) -> ArraySpec:
    attrs = {
        k: v
        for k, v in (("role", spec.role), ("unit", spec.unit), ("frame", spec.frame))
        if v is not None
    }
    if spec.is_text:
        kind: Kind = "text" if "text" in {spec.role, spec.dtype} else "json"
        return ArraySpec("uint8", (), name, kind, spec.optional, attrs)
    if spec.dtype is None or spec.shape is None or any(isinstance(d, str) for d in spec.shape[1:]):
        msg = (
            f"{where}: give dtype and shape; only the first axis may be named: {{shape: [P, 6], "
            f"dtype: float32}}"
        )
        raise UsageError(msg)
    sizes = tuple(d for d in spec.shape if isinstance(d, int))
    return ArraySpec(spec.dtype, sizes, spec.ragged, "array", spec.optional, attrs)
