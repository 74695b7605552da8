"""Builds and caches change files through `fsops` alone: else a test could not fail, lose or reorder every call."""

from __future__ import annotations

import ast

import pytest

OF_PATHS = {
    "chmod",
    "hardlink_to",
    "lchmod",
    "mkdir",
    "rename",
    "rmdir",
    "symlink_to",
    "tofile",
    "touch",
    "unlink",
    "write_bytes",
    "write_text",
}
OF_MODULES = {
    "os": {
        "chmod",
        "chown",
        "copy_file_range",
        "fchmod",
        "fdatasync",
        "fsync",
        "ftruncate",
        "link",
        "makedirs",
        "mkdir",
        "mkfifo",
        "posix_fallocate",
        "pwrite",
        "pwritev",
        "remove",
        "removedirs",
        "rename",
        "renames",
        "replace",
        "rmdir",
        "sendfile",
        "setxattr",
        "symlink",
        "sync",
        "truncate",
        "unlink",
        "utime",
        "write",
        "writev",
    },
    "shutil": {
        "copy",
        "copy2",
        "copyfile",
        "copyfileobj",
        "copymode",
        "copystat",
        "copytree",
        "move",
        "rmtree",
    },
    "tempfile": {"NamedTemporaryFile", "TemporaryDirectory", "mkdtemp", "mkstemp"},
    "np": {"save", "savez", "savez_compressed", "savetxt", "memmap"},
}
DOORS = {"fsops", "SYSTEM"}
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}


def changes(text: str) -> list[str]:
    """Every call in a module that changes files and does not go through `fsops`."""
    return [
        ast.unparse(call)
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and changing(call)
    ]


def changing(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "open" and writing(call, 1)
    if not isinstance(call.func, ast.Attribute):
        return False
    of, name = call.func.value, call.func.attr
    module = of.id if isinstance(of, ast.Name) else ""
    if module in DOORS:
        return False
    return (
        name in OF_MODULES.get(module, OF_PATHS) or name in OF_PATHS or opening(call, module, name)
    )


def opening(call: ast.Call, module: str, name: str) -> bool:
    if name == "replace":  # of a path it has one argument, of a text two or more
        return len(call.args) == 1 and not call.keywords
    if name == "open" and module == "os":
        return any(
            isinstance(node, ast.Attribute) and node.attr in FLAGS for node in ast.walk(call)
        )
    return name == "open" and writing(call, 0)


def writing(call: ast.Call, place: int) -> bool:
    modes = [*call.args[place : place + 1], *(k.value for k in call.keywords if k.arg == "mode")]
    return any(
        not isinstance(mode, ast.Constant) or set("wax+") & set(str(mode.value)) for mode in modes
    )


@pytest.mark.parametrize("package", ["build", "cache"])
def test_files_change_through_one_door(repository, package):
    found = {
        path.name: changes(path.read_text())
        for path in (repository / "datacheck" / package).rglob("*.py")
    }
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_the_door_itself_is_one_object(repository):
    text = (repository / "datacheck/runtime/fsops.py").read_text()
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if getattr(node, "name", "") != "System"]
    assert len(tree.body) < len(ast.parse(text).body)
    assert changes(ast.unparse(tree)) == []


@pytest.mark.parametrize(
    "planted",
    [
        "os.unlink(path)",
        "path.unlink()",
        "path.rename(other)",
        "path.replace(other)",
        "os.replace(a, b)",
        "open(path, 'wb')",
        "path.open('r+b')",
        "path.open(mode='ab')",
        "open(path, mode)",
        "path.write_bytes(b'')",
        "shutil.rmtree(path)",
        "os.open(path, os.O_RDWR | os.O_CLOEXEC)",
        "os.fsync(descriptor)",
        "np.save(path, values)",
        "values.tofile(path)",
        "Path(path).mkdir()",
        "os.write(descriptor, b'')",
        "tempfile.mkdtemp()",
    ],
)
def test_the_guard_sees_a_planted_call(planted):
    assert changes(f"def f():\n    {planted}\n") == [planted]


@pytest.mark.parametrize(
    "fine",
    [
        "fsops.rename(a, b)",
        "fsops.touch(path)",
        "text.replace('a', 'b')",
        "replace(spec, dim=dim)",
        "open(path, 'rb')",
        "path.open('rb', buffering=0)",
        "path.open()",
        "os.open(path, os.O_RDONLY)",
        "names.remove(name)",
        "os.read(descriptor, 9)",
    ],
)
def test_the_guard_lets_readers_pass(fine):
    assert changes(f"def f():\n    {fine}\n") == []
