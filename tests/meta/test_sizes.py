"""Files stay readable at one sitting, functions on one screen."""

import ast

import pytest


def modules(repository):
    return sorted((repository / "datacheck").rglob("*.py"))


def long_functions(text: str) -> list[str]:
    return [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno + 1 > 60
    ]


def test_no_module_is_longer_than_400_lines(repository):
    long = [str(p) for p in modules(repository) if len(p.read_text().splitlines()) > 400]
    assert long == []


def test_no_function_is_longer_than_60_lines(repository):
    assert [(str(p), names) for p in modules(repository) if (names := long_functions(p.read_text()))] == []


def test_the_guard_sees_a_long_function():
    assert long_functions("def f():\n" + "    x = 1\n" * 61) == ["f"]


@pytest.mark.parametrize("word", ["manager", "helper", "util", "common", "misc", "core"])
def test_no_module_is_named_after_nothing(repository, word):
    assert [str(p) for p in modules(repository) if word in p.stem] == []
