"""Made verdicts of rules against a reference."""

from datacheck.rules.comparison import DriftResult, comparison_json, cumulative

LIMITS = {"DC902": 0.2, "DC903": 0.1}


def one(
    field,
    measure,
    effect,
    *,
    drifted=True,
    here=(5.0, 6.0, 7.0, 8.0),
    reference=(1.0, 2.0, 5.0, 5.0),
    **more,
):
    """A measure of 4 samples on either side; its largest difference is 1 / 2, at 2, of these values."""
    said = {"q": 0.01, "chance": 0.3} if drifted else {}
    curve = cumulative(here, reference) if drifted else None
    sides = (len(here), len(reference)), (len(here), len(reference))
    return DriftResult(
        field,
        measure,
        "m",
        effect,
        drifted,
        *sides,
        curve=curve,
        median=(6.5, 3.5),
        **(said | more),
    )


def compared_rules(measures, code="DC902"):
    """`rules` of a result.json in which one rule has compared these."""
    drifted = any(each.drifted for each in measures)
    said = {
        "name": "distribution-drift",
        "status": "fail" if drifted else "pass",
        "level": "dataset",
        "severity": "warning",
        "checked": 100,
        "failed": 0,
        "skipped": {},
        "options": {"effect": LIMITS[code], "false_discoveries": 0.05},
    }
    return {code: said | ({"compared": comparison_json(measures)} if measures else {})}
