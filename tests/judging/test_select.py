import pytest

from datacheck.errors import UsageError
from datacheck.model.finding import Severity, Verdict
from datacheck.rules.base import Measure
from datacheck.rules.selection import by_dependency, choose_rules, measures_of, targets, variants
from tests.scan.conftest import make_rule, make_schema


def measurement(name, **options):
    return Measure(name, 1, options.pop("per", "field"), lambda *_: {}, **options)


def choose(schema, *rules):
    return choose_rules(schema, {rule.code: rule for rule in rules})


def test_the_schema_changes_options_and_severity_over_the_defaults():
    (choice,) = choose(
        make_schema(rules={"DC900": {"severity": "warning", "limit": 3}}), make_rule()
    )
    assert (choice.options, choice.severity, choice.verdict) == (
        {"limit": 3.0},
        Severity.WARNING,
        None,
    )


def test_a_share_may_be_written_in_percent():
    (choice,) = choose(make_schema(rules={"DC900": {"limit": "25%"}}), make_rule())
    assert choice.options == {"limit": 0.25}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"DC9000": {}}, r"no rule 'DC9000'. Did you mean DC900 \(too-large\)"),
        ({"too-large": {}}, r"no rule 'too-large'. Did you mean DC900"),
        (
            {"DC900": {"limt": 3}},
            r"rules.DC900.limt: too-large has no option 'limt'. Did you mean 'limit'",
        ),
        ({"DC900": {"limit": "many"}}, r"rules.DC900.limit: 'many' is not what this option takes"),
        ({"DC900": {"limit": True}}, r"rules.DC900.limit: True"),
        ({"DC900": {"limit": "x%"}}, r"rules.DC900.limit: 'x%'"),
        ({"DC900": {"limit": "inf%"}}, r"rules.DC900.limit: 'inf%' is not what this option takes"),
        (
            {"DC900": {"limit": float("nan")}},
            r"rules.DC900.limit: nan is not what this option takes",
        ),
    ],
)
def test_a_wrong_rules_block_is_said_with_what_is_meant(rules, said):
    with pytest.raises(UsageError, match=said):
        choose(make_schema(rules=rules), make_rule())


def test_rules_that_do_not_run_say_why():
    off = make_schema(rules={"DC900": "off"})
    assert choose(off, make_rule())[0].verdict is Verdict.OFF
    points_only = make_rule(applies=lambda spec: spec.role == "points")
    (choice,) = choose(make_schema(), points_only)
    assert (choice.verdict, choice.why) == (
        Verdict.NOT_APPLICABLE,
        "no declared field is of that kind",
    )
    (choice,) = choose(make_schema(), make_rule(unless=lambda schema: "no windows declared"))
    assert (choice.verdict, choice.why) == (Verdict.NOT_APPLICABLE, "no windows declared")


def test_a_rule_that_applies_to_one_split_only_runs():
    schema = make_schema({"x": {}}, when={"split=val": {"x": {"role": "points"}}})
    assert len(variants(schema)) == 2
    (choice,) = choose(schema, make_rule(applies=lambda spec: spec.role == "points"))
    assert choice.verdict is None


def test_targets_are_the_declared_fields_in_name_order_and_the_undeclared_ones_where_measured():
    schema = make_schema({"b": {}, "a": {}, "t": {"role": "text"}, "gone": {"absent": True}})
    assert [name for name, _ in targets(make_rule(), schema)] == ["a", "b"]
    everywhere = make_rule(measures=(measurement("m", undeclared=True),))
    assert [name for name, _ in targets(everywhere, schema)] == ["a", "b", "*"]
    assert [name for name, _ in targets(make_rule(per="sample"), schema)] == [""]


def test_each_measurement_is_made_once_and_for_all_rules_that_are_not_off():
    one, two = measurement("one"), measurement("two")
    rules = [
        make_rule("DC901", measures=(two, one)),
        make_rule("DC902", measures=(one,)),
        make_rule("DC903", measures=(measurement("three"),)),
        make_rule(
            "DC904", measures=(measurement("four"),), unless=lambda schema: "no range declared"
        ),
    ]
    choices = choose(make_schema(rules={"DC903": "off"}), *rules)
    assert [m.name for m in measures_of(choices)] == ["four", "one", "two"]


def test_a_rule_comes_after_those_it_needs_and_a_circle_ends():
    rules = [
        make_rule("DC901", suppressed_by=("DC903",)),
        make_rule("DC902"),
        make_rule("DC903", suppressed_by=("DC902", "DC901")),
    ]
    order = [choice.rule.code for choice in by_dependency(choose(make_schema(), *rules))]
    assert sorted(order) == ["DC901", "DC902", "DC903"]
    assert order.index("DC902") < order.index("DC903") < order.index("DC901")
