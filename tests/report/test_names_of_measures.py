"""What the page calls a measured number is what every measurement of that name means by it."""

from collections import defaultdict

import yaml

from datacheck.model.sample import stack
from datacheck.report.shown_measures import STATISTICS
from datacheck.rules import catalogue
from datacheck.rules.measurement import MeasurementRunner
from tests.rules.harness import pieces_of, schema_of
from tests.rules.test_examples import sections

MEANT = {  # stats that several measurements give, and mean the same by
    "lowest": {"extent", "posed"},  # the lowest number; of a mesh at its place
    "steps": {"frozen", "frozen_pixels", "motion", "timing"},
}


def test_a_number_that_the_page_names_comes_from_one_measurement():
    made = defaultdict(set)
    for rule in catalogue().values():
        data = yaml.safe_load(sections(rule.doc)["Bad::"])
        schema = schema_of(data.get("schema", {}))
        pieces = [piece for _, piece in pieces_of(data["samples"]) if not isinstance(piece, str)]
        for measure in rule.measures:
            for block in stack(pieces, ""):
                for name in MeasurementRunner(schema, [measure]).measure(block):
                    made[name.rpartition(":")[2]].add(measure.name)
    assert {
        stat: names for stat, names in made.items() if stat in STATISTICS and len(names) > 1
    } == MEANT
    missing = {stat for stat in STATISTICS if "/" not in stat} - made.keys()
    assert missing == set()
