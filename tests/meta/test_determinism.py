"""What decides the bytes of a cache uses nothing whose result may differ from machine to machine, or run to run."""

from __future__ import annotations

import ast

import pytest

# NumPy's; the default kind depends on the CPU for ties
SORTS = {"argsort", "sort", "argpartition", "partition"}
CLOCKS = {"now", "today", "utcnow"}
LISTINGS = {"listdir", "scandir", "iterdir", "glob", "rglob", "walk"}
ROUNDED = {
    "exp",
    "log",
    "sin",
    "cos",
    "tan",
    "arctan2",
    "power",
    "matmul",
    "dot",
    "inner",
    "norm",
    "svd",
    "eigh",
}
BUILD = ("build", "transforms", "sources", "cache")
SORTED = {  # where the order of a listing is put right, or does not matter
    "listing.py": LISTINGS,
    "roots.py": {"scandir"},
    "find.py": {"scandir"},
    "store.py": {"scandir"},
    "staging.py": LISTINGS,
    "finish.py": {"walk"},
    "export.py": {"iterdir", "walk", "glob"},
    "gc.py": {"scandir", "walk"},
    "shards.py": {"scandir"},
    "lerobot.py": {"glob"},
    "custom.py": {"walk"},  # of a syntax tree
}


def faults(text: str, allowed: frozenset[str] | set[str] = frozenset()) -> list[str]:
    """Every expression of a module whose result is not the same everywhere."""
    tree = ast.parse(text)
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and unsure(node, allowed)
    ]
    loops = [n.iter for n in ast.walk(tree) if isinstance(n, ast.For | ast.comprehension)]
    found += [node for node in loops if is_set(node)]
    found += [
        n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult)
    ]
    return [ast.unparse(node) for node in found]


def unsure(call: ast.Call, allowed: frozenset[str] | set[str]) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "hash" or (
            call.func.id in {"list", "tuple"} and any(map(is_set, call.args))
        )
    if not isinstance(call.func, ast.Attribute):
        return False
    name, of = call.func.attr, ast.unparse(call.func.value)
    if name in SORTS and (of == "np" or name.startswith("arg")):
        return not any(
            k.arg == "kind" and ast.unparse(k.value) == "'stable'" for k in call.keywords
        )
    if name in ROUNDED:
        return of.split(".")[0] in {"np", "math"}
    return (name in CLOCKS and "date" in of) or (name in LISTINGS - allowed)


def is_set(node: ast.expr) -> bool:
    made = (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"set", "frozenset"}
    )
    return made or isinstance(node, ast.Set | ast.SetComp)


@pytest.mark.parametrize("package", BUILD)
def test_nothing_on_the_way_to_the_bytes_is_left_to_chance(repository, package):
    found = {
        path.name: faults(path.read_text(), SORTED.get(path.name, frozenset()))
        for path in (repository / "datacheck" / package).rglob("*.py")
    }
    assert {name: calls for name, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "order = np.argsort(keys)",
        "order = keys.argsort(kind='quicksort')",
        "np.sort(x)",
        "np.partition(x, 3)",
        "for name in {a, b}: pass",
        "rows = [f(x) for x in set(names)]",
        "list(set(names))",
        "key = hash(name)",
        "os.listdir(folder)",
        "for p in folder.glob('*'): pass",
        "datetime.now()",
        "np.exp(x)",
        "a @ b",
        "np.dot(a, b)",
        "math.sin(x)",
        "np.linalg.norm(x)",
    ],
)
def test_a_planted_fault_is_seen(planted):
    assert faults(planted)


@pytest.mark.parametrize(
    "fine",
    [
        "np.argsort(keys, kind='stable')",
        "names.sort()",
        "sorted(set(names))",
        "np.sqrt(x)",
        "text.partition(':')",
        "np.einsum('ij,kj->ki', a, b)",
        "{a, b} & other",
    ],
)
def test_what_is_the_same_everywhere_is_let_pass(fine):
    assert not faults(fine)
