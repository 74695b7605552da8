"""Patterns of names: what `fnmatch` finds, up to a number of steps that is known before."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import SchemaError
from datacheck.schema import globs
from datacheck.schema.globs import Globs, StepLimit

TEXTS = st.text("ab/*?[]!", max_size=6)


@given(st.lists(TEXTS, max_size=5), st.text("ab/*[", max_size=6))
def test_what_matches_is_what_fnmatch_finds(patterns, name):
    found = Globs(patterns, "", StepLimit()).matching(name)
    assert found == [text for text in dict.fromkeys(patterns) if fnmatchcase(name, text)]


def test_the_limit_counts_letters_of_names_times_letters_behind_a_star(monkeypatch):
    """A name of 5 letters takes 2 * 100 + 5 * (1 + 4) + 5 * (1 + 0) = 230 steps, 30 beyond 200."""
    monkeypatch.setattr(globs, "_FREE_STEPS", 200)
    monkeypatch.setattr(globs, "_MOST_STEPS", 60)
    patterns = Globs(["ab*cd*e", "abc?e"], "rules.X.ignore", StepLimit())
    assert [patterns.matching("abcde") for _ in range(2)] == [["ab*cd*e", "abc?e"]] * 2
    with pytest.raises(SchemaError, match=r"rules.X.ignore: 2 patterns .* take too long"):
        patterns.matching("abcde")


def test_a_limit_is_shared(monkeypatch):
    monkeypatch.setattr(globs, "_FREE_STEPS", 0)
    monkeypatch.setattr(globs, "_MOST_STEPS", 202)
    limit = StepLimit()
    first, second = (Globs(["a?"], where, limit) for where in ("first", "second"))
    assert (first.matching("b"), second.matching("b")) == ([], [])
    with pytest.raises(SchemaError, match="second"):
        second.matching("b")


def test_a_class_counts_with_each_of_its_members(monkeypatch):
    """`re` compares letters beyond U+FFFF one by one: 100 + 2 * (1 + 0) + the 6 letters of a head."""
    monkeypatch.setattr(globs, "_FREE_STEPS", 0)
    monkeypatch.setattr(globs, "_MOST_STEPS", 108)
    patterns = Globs(["[abc]d"], "rules.X.ignore", StepLimit())
    assert patterns.matching("ad") == ["[abc]d"]
    with pytest.raises(SchemaError):
        patterns.matching("ad")
