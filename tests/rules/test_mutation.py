"""No rule is there for show: without its judge, or without one of its measurements, an example or a trial fails."""

from dataclasses import replace

import numpy as np
import pytest

from datacheck.errors import DatacheckError
from datacheck.rules import catalogue
from datacheck.testing.minimind import write_tokenizer
from tests.rules.harness import codes, scan
from tests.rules.test_examples import sections
from tests.trials import trials
from tests.trials.base import sample
from tests.trials.memory import scan_pieces, schema_of
from tests.trials.run import clean, planted

MEASURES = {
    m.name: sorted(r.code for r in catalogue().values() if m in r.measures)
    for rule in catalogue().values()
    for m in rule.measures
}


def broken(code):
    """Tell whether an assertion about the examples of a rule's page fails."""
    page = sections(catalogue()[code].doc)
    try:
        if codes(scan(page["Bad::"])[0]) != [code]:
            return True
        found, _ = scan(page["Good::"])
    except AssertionError:  # a crash verdict is seen, too
        return True
    verdict = next(v for v in found.verdicts if v.code == code)
    return codes(found) != [] or verdict.verdict != "pass" or verdict.checked == 0


def missed(trial):
    """Tell whether an assertion about a trial fails."""
    try:
        outcomes = [planted(trial, size, 103) for size in trial.sizes if size.documented]
        return clean(trial, 101) != () or any(o.found < o.wanted or not o.named for o in outcomes)
    except DatacheckError:
        return True


TOKENIZED = ["DC702", "DC704"]  # no answer at all; a vocabulary that the tokenizer outgrows


def tokenized(folder):
    """Return the codes raised by a conversation that only a tokenizer finds wrong."""
    write_tokenizer(folder / "model")
    schema = schema_of(
        {
            "tokenizer": {"path": str(folder / "model"), "vocab": 10, "max_length": 8},
            "fields": {"c": {"role": "chat", "train_on": "assistant", "min_trained_tokens": 1}},
        }
    )
    talk = [{"role": "user", "content": "why " * 40}, {"role": "assistant", "content": "because"}]
    return codes(scan_pieces(schema, [sample("a", {"c": talk})]))


def oddly_named():
    """Return the codes raised by a field whose name has a character that nobody sees: no example can write one."""
    schema = schema_of({"fields": {"*": {}}})
    return codes(scan_pieces(schema, [sample("a", {"hid\u200bden": np.ones(3)})]))


@pytest.fixture
def changed(monkeypatch):
    """Put another rule into the catalogue."""

    def changed(code, **changes):
        monkeypatch.setitem(catalogue(), code, replace(catalogue()[code], **changes))

    return changed


@pytest.mark.parametrize("code", sorted(catalogue()))
def test_a_rule_without_its_judge_is_noticed(code, changed):
    assert not broken(code)
    page = catalogue()[code].judge.__doc__

    def silent(rows, case):
        return iter(())

    silent.__doc__ = page
    changed(code, judge=silent)
    assert broken(code)


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_a_measurement_that_says_nothing_is_noticed(name, changed, tmp_path):
    for code in MEASURES[name]:
        rule = catalogue()[code]
        mute = tuple(
            replace(m, function=lambda *_: {}) if m.name == name else m for m in rule.measures
        )
        changed(code, measures=mute)
    noticed = any(broken(code) for code in MEASURES[name]) or any(
        missed(trial) for trial in trials() if trial.code in MEASURES[name]
    )
    assert noticed or tokenized(tmp_path) != TOKENIZED or oddly_named() != ["DC107"]
