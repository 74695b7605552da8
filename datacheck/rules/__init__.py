"""The rule catalogue: discovers every rule and lists them in code order."""

from __future__ import annotations

from functools import cache

from datacheck.errors import DatacheckError
from datacheck.plugins import discover
from datacheck.rules.base import Rule
from datacheck.rules.own_checks import check_rules
from datacheck.schema.model import Schema


@cache
def catalogue() -> dict[str, Rule]:
    """Return every built-in and plug-in rule by code.

    Raises:
        DatacheckError: two rules share a code.
    """
    rules: dict[str, Rule] = {}
    for rule in discover("datacheck.rules", Rule):
        if rule.code in rules:
            msg = (
                f"{rule.code} is the code of {rules[rule.code].name} and of {rule.name}; codes "
                f"are never shared"
            )
            raise DatacheckError(msg)
        rules[rule.code] = rule
    return dict(sorted(rules.items()))


def rules_for(schema: Schema) -> dict[str, Rule]:
    """Return the rules that may judge a dataset: the catalogue and the schema's own checks."""
    return catalogue() | check_rules(schema)
