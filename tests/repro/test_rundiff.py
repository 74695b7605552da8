"""What two runs show: which difference comes first, what it means, what is doubtful; hostile runs are messages."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import tracemalloc
from array import array

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datacheck.cli.repro_diff import diff as command
from datacheck.errors import UsageError
from datacheck.repro.noise import noise_floor
from datacheck.repro.recorded import RecordedRun, Trace, read_run
from datacheck.repro.run_diff import _constant_metrics, diff_runs
from datacheck.repro.steps import CAUSES, ColumnDivergence, Divergence, _longest_rise
from tests.repro.traces import environment, evaluation, make_run, start, step


@pytest.fixture
def compare(tmp_path):
    """Compare a plain run with another one."""

    def compare(a=None, **b):
        return diff_runs(make_run(tmp_path / "a", **(a or {})), make_run(tmp_path / "b", **b))

    return compare


def from_step(first, *names, steps=30, last=None):
    """Columns that differ from a step on."""
    return {
        n: dict.fromkeys(names, f"other {n}") for n in range(first, steps if last is None else last)
    }


ALL = ("input", "loss", "grads", "params", "optimizer", "grad_norm")


# ---------------------------------------------------------------------------- the order of sections


def test_two_equal_runs(compare):
    found = compare()
    assert not found
    assert found.compared == 30
    assert found.as_json()["equal"] is True


@pytest.mark.parametrize(
    ("more", "section", "name"),
    [
        ({"config": {"lr": 0.2}}, "config", "config.lr"),
        ({"begin": {"hyper": [{"lr": 0.3}]}}, "config", "optimizer[0].lr"),
        ({"env": environment(code={"model.py": "c1"})}, "code", "model.py"),
        ({"env": environment(native={"x.so": {"digest": "1"}})}, "native", "x.so"),
        ({"env": environment(torch={"num_threads": 2})}, "flags", "torch.num_threads"),
        ({"env": environment(data={"a": "d1"})}, "data", "a"),
        ({"begin": {"weights": {"w": "w1"}}}, "initial weights", "weights.w"),
        ({"begin": {"optimizer": ["o1"]}}, "initial weights", "optimiser state[0]"),
        ({"change": from_step(7, *ALL)}, "step trace", "step 7, input"),
        ({"lines": [evaluation(30, loss=2.0)]}, "evaluations", "val loss, evaluation 0"),
    ],
)
def test_each_section_is_found_and_is_the_only_one(compare, more, section, name):
    lines = [evaluation(30, loss=1.0)]
    found = compare({"lines": lines}, **{"lines": lines} | more)
    assert [one.name for one in found.sections if one] == [section]
    assert found.first.differences[0].name == name


def test_the_first_of_several_is_the_headline_and_all_are_listed(compare):
    found = compare(config={"lr": 1}, env=environment(data={"a": "d1"}), change=from_step(3, *ALL))
    assert found.headline == "config differs first: config.lr is 0.1 in A and 1 in B"
    assert [one.name for one in found.sections if one] == ["config", "data", "step trace"]


def test_what_may_differ_is_left_out(tmp_path):
    a, b = (make_run(tmp_path / name, config={"out": name, "lr": 1}) for name in ("a", "b"))
    assert diff_runs(a, b)
    assert not diff_runs(a, b, ignore=["config.out"])
    assert not diff_runs(a, b, ignore=["config"])
    assert diff_runs(a, b, ignore=["config.ou"])  # a name, not the beginning of one


def test_the_commit_alone_is_no_difference(compare):
    found = compare(env=environment(git={"commit": "1"}))
    assert not found
    assert (
        next(one.note for one in found.sections if one.name == "code") == "the repository differs"
    )


def test_random_states_on_which_nothing_depends_are_no_difference(compare):
    def seeded(digest):
        return environment(rng={"torch": {"digest": digest, "seeded": True}})

    assert not compare({"env": seeded("1")}, env=seeded("2"))
    found = compare({"env": seeded("1")}, env=seeded("2"), change=from_step(0, "indices", *ALL))
    assert found.first.name == "seeds"


# --------------------------------------------------------------------------------- what parts first


@pytest.mark.parametrize(
    ("columns", "first", "said"),
    [
        (("indices", *ALL), "indices", "other samples are drawn"),
        (ALL, "input", "data, a transform or its random numbers"),
        (
            ("loss", "grads", "params", "grad_norm"),
            "loss",
            "the forward pass gives another result: a kernel or a flag",
        ),
        (
            ("grads", "params", "grad_norm"),
            "grads",
            "the backward pass gives another result: a kernel or a flag",
        ),
        (("params", "optimizer"), "params", "the optimiser or AMP"),
        (("lr", "params"), "lr", "the learning rate differs: schedule"),
        (("grad_norm",), "grad_norm", "only the gradient norm that is reported differs"),
    ],
)
def test_the_first_column_says_what_it_is(compare, columns, first, said):
    change = from_step(12, *columns)
    if columns == ("grad_norm",):
        change = from_step(12, "grad_norm")
    found = compare(change=change)
    assert (found.column.name, found.column.step) == (first, 12)
    assert said in found.meaning


def drawn(first, *names, steps=30):
    """Random states that differ from a step on."""
    return {
        n: {"random": {"torch": f"r{n}"} | dict.fromkeys(names, f"other {n}")}
        for n in range(first, steps)
    }


def both_seeded(*names):
    return {n: {"random": dict.fromkeys(("torch", *names), f"r{n}")} for n in range(30)}


@pytest.mark.parametrize("first", [0, 4, 12])
def test_another_random_state_of_torch_is_dropout_and_no_kernel(compare, first):
    change = joined(drawn(first, "torch"), from_step(12, "loss", "grads", "params"))
    found = compare(change=change)
    assert (found.column.name, found.column.step) == ("loss", 12)
    assert found.meaning == (
        "weights and inputs are equal, the forward pass gives another result; random states differ "
        "(torch): dropout "
        "or other draws"
    )
    said = CliRunner().invoke(command, [str(found.a.path), str(found.b.path)]).output
    assert f"random torch    step {first}" in said


def test_a_random_state_is_no_cause_where_the_loss_of_the_step_is_equal(compare):
    found = compare(
        change=joined(drawn(0, "torch"), from_step(12, "grads"), from_step(13, "loss", "params"))
    )
    assert (found.column.name, found.column.step) == ("grads", 12)
    assert "a kernel or a flag" in found.meaning
    assert "dropout" not in found.meaning


def test_facts_of_a_loader_that_only_one_run_wrote_are_no_difference(compare):
    found = compare({"lines": [{"kind": "loader", "batch_size": 4}]}, steps=20, end=False)
    assert not found
    assert found.code == 2  # B was killed


def test_a_random_state_that_parts_later_is_no_cause(compare):
    found = compare(change=joined(from_step(12, "loss", "grads", "params"), drawn(13, "torch")))
    assert found.meaning.endswith("the forward pass gives another result: a kernel or a flag")


def test_a_random_state_that_models_rarely_draw_from_is_told_beside_the_kernel(compare):
    other = joined(drawn(0, "numpy"), from_step(12, "loss"))
    found = compare({"change": both_seeded("numpy")}, change=other)
    assert found.meaning.endswith("a kernel or a flag, or draws from numpy (other states)")


def sparse(every=10, steps=30):
    """Columns that are written every so many steps only."""
    return {
        n: {"grads": None, "params": None, "optimizer": None} for n in range(steps) if n % every
    }


def joined(*changes):
    return {n: {k: v for one in changes for k, v in one.get(n, {}).items()} for n in range(30)}


def test_between_which_steps_weights_parted_where_they_are_not_digested_at_each(compare):
    late = joined(
        from_step(14, "loss"), {20: {"grads": "x", "params": "x", "optimizer": "x"}}, sparse()
    )
    found = compare({"change": sparse()}, change=late)
    assert (found.column.name, found.column.step) == ("loss", 14)
    assert "weights were equal at step 10 and parted by step 14" in found.meaning
    assert found.divergences[0].column("params").after == 10
    said = "\n".join(
        CliRunner().invoke(command, [str(found.a.path), str(found.b.path)]).output.splitlines()
    )
    assert "params          step 20 (equal at 10, not written in between)" in said


def test_an_input_comes_before_all_that_follows_of_it(compare):
    found = compare(
        {"change": sparse()}, change=joined(from_step(5, "input"), from_step(8, "loss"), sparse())
    )
    assert [(one.name, one.step) for one in found.divergences[0].columns] == [
        ("input", 5),
        ("loss", 8),
    ]


def test_the_same_samples_in_another_order_are_told_by_their_values(compare):
    def epochs(values):
        return [
            {"kind": "epoch", "epoch": 0, "steps": 10, "order": "1", "set": "2", "values": values}
        ]

    found = compare({"lines": epochs("v")}, lines=epochs("v"), change=from_step(0, *ALL))
    assert found.first.name == "order"
    assert "index i stands for another sample" in found.meaning
    assert (
        compare({"lines": epochs("v")}, lines=epochs("w"), change=from_step(0, *ALL)).first.name
        == "step trace"
    )


def test_an_epoch_that_begins_otherwise_names_the_workers(compare):
    assert "epoch may not reach the workers" in compare(change=from_step(10, *ALL)).meaning
    assert "epoch may not reach the workers" not in compare(change=from_step(11, *ALL)).meaning
    once = compare(change={10: {"input": "other"}}).meaning  # what comes after it is equal again
    assert "epoch may not reach the workers" not in once
    assert "at 1 of 20 steps" in once


def test_digests_of_a_device_and_of_main_memory_are_not_compared(compare):
    found = compare({"change": {0: {"input": "f" + "0" * 16}}}, change={0: {"input": "0" * 16}})
    assert not found
    assert found.warnings["both"] == [
        "input: digested on a device in one run and in main memory in the other, not comparable"
    ]


DEVICE, MEMORY = "f" + "0" * 16, "0" * 16


def test_a_column_that_could_not_be_compared_at_any_step_is_not_called_equal(compare):
    found = compare({"change": {n: {"input": DEVICE} for n in range(30)}}, change={})
    assert (bool(found), found.code) == (False, 2)
    assert found.headline.endswith("not compared: input, of which one was made on a device")


def test_initial_weights_of_a_device_and_of_main_memory_are_not_compared(compare):
    there = {"weights": {"w": DEVICE, "v": DEVICE}, "optimizer": ["o0"]}
    here = {"weights": {"w": MEMORY, "v": MEMORY}, "optimizer": ["o0"]}
    bare = {n: {"grads": None, "params": None, "optimizer": None} for n in range(30)}
    found = compare(
        {"begin": there, "change": bare}, begin=here, change=joined(bare, from_step(0, "loss"))
    )
    assert found.first.name == "step trace"
    assert "whether the weights were equal before was not" in found.meaning
    said = "weights digested on a device in one run and in main memory in the other"
    assert section_of(found, "initial weights").note == said
    found = compare({"begin": there}, begin=there | {"weights": {"w": DEVICE, "v": "f" + "1" * 16}})
    assert [one.name for one in found.first.differences] == ["weights.v"]


def test_joined_digests_of_a_device_and_of_main_memory_are_not_compared(compare):
    def joined_digests(*digests):
        return {"change": {0: {"grads": " ".join(digests)}}}

    found = compare(joined_digests(DEVICE, DEVICE), **joined_digests(MEMORY, MEMORY))
    assert not found
    assert found.warnings["both"][0].startswith("grads: digested on a device")
    assert not compare(joined_digests(MEMORY, DEVICE), **joined_digests(DEVICE, DEVICE))
    assert (
        compare(
            joined_digests(DEVICE, DEVICE), **joined_digests(DEVICE, "f" + "1" * 16)
        ).column.name
        == "grads"
    )
    assert compare(joined_digests(DEVICE), **joined_digests(DEVICE, DEVICE)).column.name == "grads"


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(planted=st.dictionaries(st.sampled_from(CAUSES[:5]), st.integers(0, 19), min_size=1))
def test_whatever_parts_first_is_reported_first(tmp_path, planted):
    change = joined(*(from_step(first, name) for name, first in planted.items()))
    found = diff_runs(make_run(tmp_path / "a", 20), make_run(tmp_path / "b", 20, change=change))
    step_, cause = min((first, CAUSES.index(name)) for name, first in planted.items())
    assert (found.column.step, found.column.name) == (step_, CAUSES[cause])
    assert {column.name: column.step for column in found.divergences[0].columns} == planted


# ---------------------------------------------------------------------------- what was not recorded


def test_inputs_that_were_not_recorded_are_not_called_equal(compare):
    blind = {n: {"input": None} for n in range(30)}
    found = compare({"change": blind}, change=joined(blind, from_step(12, "loss", "grads")))
    assert found.meaning == (
        "weights are equal, the inputs were not recorded, the forward pass gives another result: "
        "data, a kernel, a flag"
    )


def test_weights_that_were_not_recorded_are_not_called_equal(compare):
    bare = {n: {"params": None, "optimizer": None, "grads": None} for n in range(30)}
    nothing = {"weights": {}, "optimizer": []}
    asked = {"begin": nothing, "change": bare}
    found = compare(asked, begin=nothing, change=joined(bare, from_step(0, "loss")))
    assert "whether the weights were equal before was not" in found.meaning
    assert next(one.unknown for one in found.sections if one.name == "initial weights") == (
        "weights not recorded; optimiser state not recorded"
    )


def test_weights_that_one_run_has_not_recorded_are_no_difference(compare):
    found = compare(begin={"weights": {}})
    assert not found
    assert (
        next(one.note for one in found.sections if one.name == "initial weights")
        == "weights not recorded in B"
    )


def of_ranks(folder, *sides):
    for rank, side in enumerate(sides):
        make_run(
            folder, rank=rank, **{**side, "begin": {"world": len(sides), **side.get("begin", {})}}
        )
    return folder


def test_the_initial_weights_of_each_rank_are_compared(tmp_path):
    a = of_ranks(tmp_path / "a", {}, {})
    b = of_ranks(
        tmp_path / "b",
        {},
        {"begin": {"weights": {"w": "w1"}}, "change": from_step(0, "loss", "grads", "params")},
    )
    found = diff_runs(a, b)
    assert (
        found.headline
        == "initial weights differs first: weights of rank 1.w is w0 in A and w1 in B"
    )
    assert found.meaning == "the weights differed from the start"


def test_names_of_the_differences_of_a_section_have_a_limit_over_all_ranks(tmp_path, monkeypatch):
    """Each has a path of its own: 100,000 long ones for each rank took gigabytes."""
    long = "k" * 900
    values = [{long: [value] * 40} for value in ("w0", "w1")]
    sides = [
        [{"config": value, "begin": {"weights": value, "optimizer": []}}] * 3 for value in values
    ]
    runs = [of_ranks(tmp_path / name, *side) for name, side in zip("ab", sides, strict=True)]
    every = diff_runs(*runs)
    assert [len(section_of(every, name).differences) for name in ("config", "initial weights")] == [
        40,
        120,
    ]
    monkeypatch.setattr("datacheck.repro.sections._MOST_CHARS", 30_000)
    few = diff_runs(*runs)
    for name in ("config", "initial weights"):
        letters = [len(one.name) for one in section_of(few, name).differences]
        assert 29_000 < sum(letters) <= 30_000
    assert (few.code, few.first.differences[0]) == (every.code, every.first.differences[0])


def section_of(found, name):
    return next(one for one in found.sections if one.name == name)


@pytest.mark.parametrize(
    ("both", "section", "why"),
    [
        ({"native": {"missing": "no /proc"}}, "native", "native: no /proc"),
        ({"data": {}}, "data", "nothing of it is in either run"),
        ({"data": {"a": {"missing": "no such folder"}}}, "data", "a: no such folder"),
        ({"code": {"model.py": "missing"}}, "code", "model.py: not captured"),
        ({"code": {"__main__": "missing"}}, "code", "__main__: not captured"),
        ({"rng": {"torch": {"digest": "1", "seeded": False}}}, "seeds", "torch: not seeded"),
        (
            {"torch": {"missing": "PyTorch is not loaded"}},
            "flags",
            "torch: PyTorch is not loaded; process: not captured",
        ),
    ],
)
def test_what_neither_run_knows_is_not_the_same(compare, both, section, why):
    found = compare({"env": environment(**both)}, env=environment(**both))
    assert section_of(found, section).unknown == why
    said = next(one for one in found.as_json()["sections"] if one["name"] == section)
    assert (said["state"], said["note"]) == ("unknown", why)


def test_what_is_known_in_part_is_noted(compare):
    both = {"data": {"a": {"digest": "1"}, "b": {"missing": "no such folder"}}}
    found = compare({"env": environment(**both)}, env=environment(**both))
    assert (section_of(found, "data").unknown, section_of(found, "data").note) == (
        "",
        "not known in either: b: no such folder",
    )


def test_a_configuration_that_one_run_has_not_recorded_is_no_difference(tmp_path):
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    (b / "config.json").write_text('{"version": 1, "config": null}')
    found = diff_runs(a, b)
    assert not found
    assert (
        section_of(found, "config").unknown
        == "no configuration and no command line that both have recorded"
    )


def test_runs_of_which_nothing_was_compared_are_not_equal(tmp_path):
    a, b = (make_run(tmp_path / name, steps=0) for name in ("a", "b"))
    found = diff_runs(a, b)
    assert (found.code, found.as_json()["equal"]) == (2, None)
    run = CliRunner().invoke(command, [str(a), str(b)])
    assert run.exit_code == 2
    assert run.output.startswith(
        "nothing can be said: no step and no evaluation was recorded in both"
    )


# -------------------------------------------------------------------------- order and what it hides


def test_an_input_that_differs_before_the_order_is_the_first(compare):
    found = compare(change=joined(from_step(3, *ALL), from_step(20, "indices")))
    assert found.first.name == "step trace"
    assert found.headline.startswith("input differs first, from step 3")
    assert found.as_json()["first"] == "step trace"


def test_initial_weights_are_not_hidden_by_a_later_order(compare):
    other = {"weights": {"w": "w1"}}
    assert (
        compare(begin=other, change=from_step(20, "indices", *ALL)).first.name == "initial weights"
    )
    found = compare(begin=other, change=from_step(0, "indices", *ALL))
    assert found.first.name == "order"
    assert found.headline.endswith("The initial weights differ, too")


def test_of_several_ranks_the_order_that_parts_first_is_told(tmp_path):
    a = of_ranks(tmp_path / "a", {}, {})
    b = of_ranks(
        tmp_path / "b",
        {"change": from_step(9, "indices", *ALL)},
        {"change": from_step(4, "indices", *ALL)},
    )
    found = diff_runs(a, b)
    assert found.headline.startswith("order differs first: from step 4 of rank 1")
    assert [one.name for one in found.first.differences] == [
        "step 4 of rank 1, indices",
        "step 9 of rank 0, indices",
    ]
    trace = next(one for one in found.sections if one.name == "step trace")
    assert trace.differences[0].name == "step 4 of rank 1, indices"


def test_samples_at_other_places_come_before_indices_that_part_later(compare):
    epoch = {"kind": "epoch", "epoch": 0, "steps": 10, "order": "1", "set": "2", "values": "v"}
    found = compare(
        {"lines": [epoch]},
        lines=[epoch],
        change=joined(from_step(0, *ALL), from_step(20, "indices")),
    )
    assert found.first.differences[0].name == "step 0, input"


# ---------------------------------------------------------------------------------- runs that go on


BEGAN = "began at step 0 in A and 10 in B"
RESUMED = {
    "first": 10,
    "env": environment(rng={"torch": {"digest": "2", "seeded": True}}),
    "begin": {"weights": {"w": "w10"}, "optimizer": ["o10"], "hyper": [{"lr": 0.05}]},
}


def test_a_run_that_goes_on_equals_the_uninterrupted_one(compare):
    lines = [evaluation(10 * i, loss=4.0 - i) for i in (1, 2, 3)]
    seeded = environment(rng={"torch": {"digest": "1", "seeded": True}})
    found = compare({"env": seeded, "lines": lines}, **RESUMED, lines=lines[1:])
    assert found.headline == "no difference: what was recorded is equal, 20 steps compared"
    assert (found.code, found.compared) == (0, 20)
    assert [section_of(found, name).unknown for name in ("initial weights", "seeds")] == [
        BEGAN,
        BEGAN,
    ]
    assert found.warnings == {
        "both": ["A began at step 0, B at step 10: nothing before step 10 was compared"]
    }
    assert "30 steps\n" in (said := call(found.a.path, found.b.path).output)
    assert "20 steps from step 10 on\n" in said


def test_a_run_that_goes_on_and_parts_differs(compare):
    found = compare(**RESUMED, change=from_step(10, "loss", "grads", "params"))
    assert (found.first.name, found.column.step) == ("step trace", 10)
    assert "whether the weights were equal before was not" in found.meaning
    lines = [evaluation(10 * i, loss=4.0 - i) for i in (1, 2, 3)]
    found = compare({"lines": lines}, **RESUMED, lines=[lines[1], evaluation(30, loss=1.5)])
    assert [(one.name, one.a, one.b) for one in found.first.differences] == [
        ("val loss, evaluation 2", "1.0", "1.5")
    ]
    begin = RESUMED["begin"] | {"hyper": [{"lr": 0.05, "weight_decay": 0.1}]}
    assert (
        compare(**RESUMED | {"begin": begin}).first.differences[0].name
        == "optimizer[0].weight_decay"
    )


def test_an_input_that_differs_where_a_run_goes_on_is_no_new_epoch(compare):
    assert (
        "epoch may not reach the workers"
        not in compare(**RESUMED, change=from_step(10, *ALL)).meaning
    )


def test_a_run_that_goes_on_is_compared_as_far_as_both_came(compare):
    found = compare({"steps": 12, "end": False}, **RESUMED)
    assert (found.code, found.compared) == (2, 2)
    assert found.headline == "equal as far as A came, step 12 of 30: killed, or still running"
    found = compare(**RESUMED, steps=20)
    assert (
        found.headline
        == "step trace differs first: number of steps of rank 0 is 20 in A and 10 in B"
    )


def test_a_run_and_the_one_that_went_on_where_it_ended_have_nothing_in_common(compare):
    found = compare({"steps": 10}, **RESUMED)
    assert (found.code, found.compared, found.first) == (2, 0, None)
    assert section_of(found, "step trace").unknown == "no step that both have"


# ------------------------------------------------------------------------------ ranks, ends, doubts


def test_the_rank_that_parts_first_is_named(tmp_path):
    for name, change in (("a", None), ("b", from_step(4, *ALL))):
        make_run(tmp_path / name, begin={"world": 2}, change=from_step(9, *ALL) if change else None)
        make_run(tmp_path / name, begin={"world": 2}, rank=1, change=change)
    found = diff_runs(tmp_path / "a", tmp_path / "b")
    assert (found.column.step, found.column.rank) == (4, 1)
    assert "from step 4 of rank 1" in found.headline


def test_a_rank_without_a_trace_is_told(compare):
    found = compare({"begin": {"world": 4}}, begin={"world": 4})
    assert found.warnings["A"] == ["of 4 ranks 3 left no trace: 1, 2, 3"]
    assert found.code == 2


def test_ranks_that_were_not_compared_are_not_called_equal(tmp_path):
    a, b = of_ranks(tmp_path / "a", {}, {}, {}), make_run(tmp_path / "b", begin={"world": 3})
    found = diff_runs(a, b)
    assert (found.code, found.as_json()["equal"], found.first) == (2, None, None)
    assert found.headline == "equal in what could be compared, 30 steps; not compared: ranks 1, 2"
    assert found.headline == diff_runs(b, a).headline
    assert call(a, b).exit_code == 2
    assert diff_runs(a, of_ranks(tmp_path / "c", {}, {}, {})).code == 0


def test_a_killed_run_is_compared_as_far_as_it_came(compare):
    found = compare(steps=20, end=False)
    assert not found
    assert found.compared == 20
    assert found.warnings == {"B": ["the trace has no end: the run was killed, or still runs"]}
    assert found.headline == "equal as far as B came, step 20 of 30: killed, or still running"
    assert (found.code, found.as_json()["equal"]) == (2, None)
    assert CliRunner().invoke(command, [str(found.a.path), str(found.b.path)]).exit_code == 2


def test_a_killed_run_that_differs_differs(compare):
    found = compare(steps=20, end=False, change=from_step(7, *ALL))
    assert (found.code, found.column.step) == (1, 7)


def test_two_killed_runs_are_equal_as_far_as_they_came(compare):
    found = compare({"end": False}, end=False)
    assert found.headline == "equal as far as both came, step 30 of 30: killed, or still running"


def test_runs_that_ended_at_different_steps_differ(compare):
    found = compare(steps=20)
    assert found.first.name == "step trace"
    assert (
        found.headline
        == "step trace differs first: number of steps of rank 0 is 30 in A and 20 in B"
    )


def warned(tmp_path, *lines, **more):
    run = make_run(tmp_path / "doubt", lines=lines, **more)
    return diff_runs(run, run).warnings.get("A", [])


def test_metrics_that_stand_still_are_told(tmp_path):
    assert warned(tmp_path, *(evaluation(n, mpjpe=102.152, loss=1.0 + n) for n in range(8))) == [
        "val mpjpe is 102.152 in all 8 evaluations: is it the trained model?"
    ]
    assert warned(tmp_path, *(evaluation(n, mpjpe=102.152) for n in range(2))) == []


def test_a_metric_that_an_evaluation_lacks_does_not_stand_still(tmp_path):
    lines = [evaluation(n, loss=1.0 + n) for n in range(8)]
    lines[0]["values"]["mpjpe"] = None
    assert warned(tmp_path, *lines) == []


def test_metrics_that_only_the_first_evaluation_has_are_not_sought_in_all_others(tmp_path):
    """Each of them in each of the others would be 20 thousand million steps."""
    first = {"step": 0, "values": {f"m{n}": None for n in range(20_000)}}
    run = RecordedRun(tmp_path, {}, None, {})
    run.evaluations[0, "val"] = [first, *[{"step": 1, "values": {}}] * 1_000_000]
    assert list(_constant_metrics(run)) == []


def test_evaluations_of_a_part_are_told(tmp_path):
    assert warned(tmp_path, evaluation(9, seen=2083, of=8332)) == [
        "val is made of 2,083 of 8,332 samples"
    ]
    assert warned(tmp_path, evaluation(9, seen=8332, of=8332)) == []


def ranks(tmp_path, values, seen, of=8332):
    for rank, value in enumerate(values):
        lines = [] if value is None else [evaluation(9, seen=seen, of=of, mpjpe=value)]
        make_run(tmp_path / "ranks", lines=lines, begin={"world": len(values)}, rank=rank)
    return diff_runs(tmp_path / "ranks", tmp_path / "ranks").warnings.get("A", [])


def test_what_ranks_saw_counts_together_only_where_their_values_were_put_together(tmp_path):
    assert ranks(tmp_path, [1.0, 1.0, 1.0, 1.0], 2083) == []
    assert ranks(tmp_path, [1.0, 2.0, 3.0, 4.0], 2083) == [
        "val on rank 0 is made of 2,083 of 8,332 samples"
    ]
    assert ranks(tmp_path, [1.0, None, None, None], 2083) == [
        "val on rank 0 is made of 2,083 of 8,332 samples"
    ]
    assert ranks(tmp_path, [1.0, 1.0, 1.0, 1.0], 2000) == ["val is made of 8,000 of 8,332 samples"]


def test_a_loss_that_is_no_number_is_told_and_compared(compare):
    found = compare(
        {"change": {n: {"loss": "nan"} for n in range(5, 30)}},
        change={n: {"loss": "nan"} for n in range(5, 30)},
    )
    assert not found
    assert found.warnings["A"] == ["the loss is not finite from step 5 on"]


def test_a_loss_that_stands_still_is_told(tmp_path):
    still = {n: {"loss": (2.5).hex()} for n in range(30)}
    assert warned(tmp_path, change=still) == ["the loss is the same number in all 30 steps"]


# ------------------------------------------------------------------------------------- hostile runs


def spoil(run, text):
    with (run / "trace-00000.jsonl").open("ab") as file:
        file.write(text)


def test_a_torn_last_line_is_ignored(tmp_path):
    a = make_run(tmp_path / "a", end=False)
    b = make_run(tmp_path / "b", end=False)
    spoil(b, json.dumps(step(30)).encode()[:40])
    found = diff_runs(a, b)
    assert not found
    assert found.compared == 30
    assert [line for said in found.warnings.values() for line in said if "could not" in line] == []


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe\n",
        b"[1, 2]\n",
        b"7\n",
        b"[" * 100_000 + b"\n",
        b'{"kind": 3}\n',
        b'{"kind": "step"}\n',
        b'{"kind": "step", "step": -1}\n',
        b'{"kind": "step", "step": 1e400}\n',
        b'{"kind": "step", "step": true}\n',
        b'{"kind": "eval", "name": "x", "step": 1, "values": [1]}\n',
        b"\0" * 99 + b"\n",
        b'{"kind": "step", "step": ' + b"9" * 5000 + b"}\n",
        b'{"kind": "note", "said": ' + b"[" * 900 + b"]" * 900 + b"}\n",
        b'{"kind": "end", "step": 1, "status": ' + b"[" * 900 + b"]" * 900 + b"}\n",
        json.dumps(step(30, random={str(n): "r" for n in range(65)})).encode() + b"\n",
        json.dumps(step(30, random={"x" * 1001: "r"})).encode() + b"\n",
    ],
)
def test_lines_that_nobody_recorded_are_left_out_and_told(tmp_path, text):
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    spoil(b, text)
    found = diff_runs(a, b)
    assert not found
    assert found.warnings["B"] == ["trace-00000.jsonl: 1 line could not be read and are left out"]


def test_more_generators_than_anybody_has_end_the_comparison(tmp_path):
    change = {n: {"random": {f"{n}.{m}": "r" for m in range(5)}} for n in range(30)}
    a, b = make_run(tmp_path / "a", change=change), make_run(tmp_path / "b", change=change)
    with pytest.raises(UsageError, match="rank 0: its steps name more than 64 random generators"):
        diff_runs(a, b)


def test_a_step_costs_no_more_the_more_columns_have_parted():
    """Each step made a set of all columns that had parted before: names times steps."""

    class Counted(list[ColumnDivergence]):
        walks = 0

        def __iter__(self):
            Counted.walks += 1
            return super().__iter__()

    parting = Divergence(0, columns=Counted())
    for number in range(50):
        parting.take(
            step(number, random={"torch": "a", "python": "a"}),
            step(number, random={"torch": "b", "python": "b"}),
        )
    assert [column.name for column in parting.columns] == ["random python", "random torch"]
    assert Counted.walks == 1  # the one above


@pytest.mark.parametrize(
    ("limit", "most", "said"),
    [
        ("_EVALUATIONS", 11, "has more than 11 values of eval"),
        ("_EVALUATED", 300, "or more than 300 bytes of them"),
        ("_STEPS", 29, "has more than 29 steps"),
        ("_STARTS", 100, "has more than 100 bytes of starts"),
    ],
)
def test_what_is_held_of_a_run_has_a_limit(tmp_path, monkeypatch, limit, most, said):
    a = make_run(
        tmp_path / "a",
        lines=[evaluation(n) | {"values": {"loss": "0x1p0", "each": ["x", "y"]}} for n in range(3)],
    )
    assert not diff_runs(a, a)
    monkeypatch.setattr(f"datacheck.repro.recorded.{limit}", most)
    with pytest.raises(UsageError, match=said):
        diff_runs(a, a)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("X" * 1_000, "X" * 1_000),  # as long as a value may be
        ("X" * 1_001, "X" * 1_000 + "..."),
        (["X"] * 32, ["X"] * 32),
        (["X"] * 33, str(["X"] * 33)),
        (["X" * 500] * 2, f"['{'X' * 500}', '{'X' * 494}..."),
    ],
)
def test_of_a_long_value_that_differs_the_beginning_is_kept(tmp_path, value, kept):
    """A line may have 16 MiB, of each of 65,536 ranks."""

    def filled(mark, template):
        return json.loads(json.dumps(template).replace("X", mark))

    a, b = (make_run(tmp_path / mark, change={29: {"input": filled(mark, value)}}) for mark in "vw")
    column = diff_runs(a, b).column
    assert (column.name, column.step) == ("input", 29)
    assert (column.a, column.b) == (filled("v", kept), filled("w", kept))


def test_a_difference_behind_the_part_that_is_kept_is_found(tmp_path):
    long = [0.1] * 5_000
    a, b = (
        make_run(tmp_path / f"{last}", change={29: {"lr": [*long, last]}}) for last in (0.1, 0.2)
    )
    assert (diff_runs(a, b).column.name, diff_runs(a, b).code) == ("lr", 1)


def test_the_differences_of_all_ranks_have_a_limit(tmp_path, monkeypatch):
    ranks = 5
    for rank in range(ranks):
        for mark in "ab":
            change = {29: {"input": mark * 1_000}}
            make_run(tmp_path / mark, rank=rank, change=change, begin={"world": ranks})
    a, b = tmp_path / "a", tmp_path / "b"
    # Two values of 1,000 letters each, and less than as much for everything else
    monkeypatch.setattr("datacheck.repro.steps._DIVERGENCES", ranks * 4_000)
    assert len(diff_runs(a, b).divergences) == ranks
    monkeypatch.setattr("datacheck.repro.steps._DIVERGENCES", ranks * 2_000)
    with pytest.raises(UsageError, match="their ranks differ in more than 10,000 bytes"):
        diff_runs(a, b)


def test_of_the_epochs_of_a_rank_only_those_of_differences_are_held(tmp_path):
    """Of each of 65,536 ranks a million epochs were held."""
    epochs = [{"kind": "epoch", "epoch": n, "values": "v", "set": "s"} for n in range(3)]
    a = make_run(tmp_path / "a", lines=epochs)
    b = make_run(
        tmp_path / "b",
        lines=epochs,
        change={15: {"input": "x", "random": {"torch": "y", "python": "z"}}},
    )
    (parting,) = diff_runs(a, b).divergences
    assert parting.begun == {1: 10}
    assert parting.shuffled == parting.permuted == [1]
    assert "random torch" not in {*parting.known, *parting.equal, *parting.unequal}
    (same,) = diff_runs(a, a).divergences
    assert same.begun == {}


def test_notes_have_a_limit_over_all_ranks_and_ends_have_one_each(tmp_path, monkeypatch):
    notes = [{"kind": "note", "said": f"note {n} " + "x" * 1_000} for n in range(3)]
    end = {"kind": "end", "step": 30, "status": "E" * 5_000}
    for rank in range(3):
        make_run(tmp_path / "a", rank=rank, lines=[*notes, end], end=False, begin={"world": 3})
    run = read_run(tmp_path / "a")
    assert sum(note.startswith("note") for note in run.notes) == 9
    assert {*map(len, run.ended.values())} == {200}
    # Of four notes the first three have fewer bytes, and each has more than 1,000
    monkeypatch.setattr("datacheck.repro.recorded._NOTED", 3_600)
    assert sum(note.startswith("note") for note in read_run(tmp_path / "a").notes) == 4


def test_the_name_of_an_evaluation_counts_for_each_of_its_values(tmp_path, monkeypatch):
    """Each that differs is a difference with that name."""
    a = make_run(
        tmp_path / "a",
        lines=[
            evaluation(1) | {"name": "n" * 900, "values": {str(i): "0x1p0" for i in range(100)}}
        ],
    )
    monkeypatch.setattr("datacheck.repro.recorded._EVALUATED", 120_000)
    assert not diff_runs(a, a)
    monkeypatch.setattr("datacheck.repro.recorded._EVALUATED", 110_000)
    with pytest.raises(UsageError, match="more than 110,000 bytes of them and their names"):
        diff_runs(a, a)


def test_many_small_evaluations_count_as_the_memory_that_they_take(tmp_path, monkeypatch):
    """A trace has 60 bytes for each; two runs that differ took 1.2 GB for a million."""
    runs = [
        make_run(
            tmp_path / name,
            lines=[evaluation(n) | {"name": "e", "values": {"m": n + i}} for n in range(2_000)],
        )
        for i, name in enumerate("ab", start=1)
    ]
    tracemalloc.start()
    difference = diff_runs(*runs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < sum(run.evaluated[1] for run in (difference.a, difference.b))
    monkeypatch.setattr("datacheck.repro.recorded._EVALUATED", 2_000 * 800)
    with pytest.raises(UsageError, match="more than 1,600,000 bytes of them and their names"):
        read_run(runs[0])


def test_a_run_has_a_limit_of_ranks_and_each_is_counted_once(tmp_path, monkeypatch):
    a = make_run(tmp_path / "a")
    for rank in range(1, 300):
        shutil.copy(a / "trace-00000.jsonl", a / f"trace-{rank:05}.jsonl")
    world, asked = RecordedRun.world, []
    monkeypatch.setattr(
        RecordedRun, "world", property(lambda run: asked.append(run) or world.fget(run))
    )
    diff_runs(a, a)
    assert len(asked) < 30  # each goes over all ranks
    monkeypatch.setattr("datacheck.repro.recorded._MOST_RANKS", 299)
    with pytest.raises(UsageError, match="has traces of more than 299 ranks"):
        diff_runs(a, a)


def test_of_lines_only_what_is_compared_is_held(tmp_path):
    """Of `[[],[],...]` each three bytes of a line take 64 of memory."""
    a = make_run(tmp_path / "a", lines=[evaluation(1, loss=1.0) | {"junk": [[]] * 9, "more": 1}])
    ((line,),) = read_run(a).evaluations.values()
    assert set(line) <= {"step", "seen", "of", "values"}


def test_each_value_of_a_start_counts_as_the_memory_that_it_takes(tmp_path, monkeypatch):
    a = make_run(tmp_path / "a")
    trace = a / "trace-00000.jsonl"
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    start = next(line for line in lines if line["kind"] == "start")
    before = read_run(a).held
    start["junk"] = [[]] * 1_000
    trace.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert read_run(a).held - before > 64_000
    monkeypatch.setattr("datacheck.repro.recorded._STARTS", 60_000)
    with pytest.raises(UsageError, match="bytes of starts"):
        read_run(a)


def test_the_weights_of_a_start_are_held_as_bytes(tmp_path, monkeypatch):
    """As mappings, those of 2,000 ranks with 1,000 tensors took 760 MB."""
    weights = {f"layer{n}": f"{n:016x}" for n in range(20_000)}
    runs = [
        make_run(tmp_path / name, begin={"weights": weights | {"layer7": name}}) for name in "ab"
    ]
    tracemalloc.start()
    run = read_run(runs[0])
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 2 * len(json.dumps(weights))
    assert run.initial(0, "weights") == weights | {"layer7": "a"}
    assert "weights.layer7" in diff_runs(*runs).headline
    monkeypatch.setattr("datacheck.repro.recorded._START_VALUES", 20_000)
    with pytest.raises(UsageError, match="more than 20,000 values in the start of a rank"):
        read_run(runs[0])


def test_a_state_that_orjson_cannot_write_is_held_as_it_is(tmp_path):
    weights = {"a": "\ud800", "b": 10**30}
    run = read_run(make_run(tmp_path / "a", begin={"weights": weights}))
    assert run.initial(0, "weights") == weights


def test_loaders_count_to_what_is_held_of_a_run(tmp_path):
    plain = read_run(make_run(tmp_path / "a")).held
    loaders = [{"kind": "loader", "junk": [[]] * 1_000}] * 2
    assert read_run(make_run(tmp_path / "b", lines=loaders)).held - plain > 128_000


def test_evaluations_are_read_once(tmp_path, monkeypatch):
    asked = []
    of = Trace.of
    monkeypatch.setattr(Trace, "of", lambda self, kind: asked.append(kind) or of(self, kind))
    a = make_run(tmp_path / "a", lines=[evaluation(n, loss=1.0) for n in range(4)])
    assert not diff_runs(a, a)
    assert {"step"} <= {*asked}
    assert "eval" not in asked


def test_a_huge_line_is_left_out_and_what_follows_is_read(tmp_path):
    a, b = make_run(tmp_path / "a", end=False), make_run(tmp_path / "b", end=False)
    spoil(b, b'{"kind": "' + b"x" * (20 << 20) + b'"}\n' + json.dumps(step(30)).encode() + b"\n")
    spoil(a, json.dumps(step(30)).encode() + b"\n")
    assert diff_runs(a, b).compared == 31


def test_steps_out_of_order_do_not_hide_what_follows(tmp_path):
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    spoil(b, json.dumps(step(3, input="other")).encode() + b"\n")
    assert not diff_runs(a, b)


@pytest.mark.parametrize(
    "numbers", [{5: 900}, {0: 900, 1: 901}, {5: 10**18, 6: 7}, {28: 29}, {12: 2**63}]
)
def test_a_damaged_number_of_a_step_hides_nothing_else(tmp_path, numbers):
    change = {old: {"step": new} for old, new in numbers.items()}
    a = make_run(tmp_path / "a")
    assert diff_runs(a, make_run(tmp_path / "b", change=change)).compared >= 29 - len(numbers)
    found = diff_runs(a, make_run(tmp_path / "c", change=joined(change, from_step(25, "loss"))))
    assert (found.column.name, found.column.step) == ("loss", 25)
    assert any("steps that were not compared" in line for line in found.warnings["both"])


def test_a_damaged_step_alone_is_no_other_number_of_steps(tmp_path):
    found = diff_runs(make_run(tmp_path / "a"), make_run(tmp_path / "b", change={5: {"step": 900}}))
    assert not found
    assert (found.code, found.headline) == (
        2,
        "equal in what could be compared, 29 steps; not compared: 1 step that one of them lacks; "
        "1 line of B with a step that is there twice or does not rise",
    )
    assert found.warnings["both"] == [
        "steps that were not compared: 1 only A has; the lines of the other are damaged, or it "
        "began elsewhere",
        "not compared: 1 line of B with a step that is there twice or does not rise",
    ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 6), max_size=9))
def test_the_most_lines_that_rise_are_kept(numbers):
    kept = _longest_rise(array("Q", numbers))
    found = (
        numbers if kept is None else [one for one, take in zip(numbers, kept, strict=True) if take]
    )
    ways = (
        way for size in range(len(numbers) + 1) for way in itertools.combinations(numbers, size)
    )
    assert all(one < other for one, other in itertools.pairwise(found))
    assert len(found) == max(
        len(way) for way in ways if all(one < other for one, other in itertools.pairwise(way))
    )


def test_a_second_file_of_a_rank_does_not_take_its_place(tmp_path):
    """Its name has one zero more, and was read instead of the trace that differs."""
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b", change=from_step(7, "loss"))
    shutil.copy(a / "trace-00000.jsonl", b / "trace-000000.jsonl")
    found = diff_runs(a, b)
    assert (found.code, found.column.step) == (1, 7)
    assert (
        "not compared: 1 file that no rank is named after (trace-000000.jsonl)"
        in found.warnings["B"]
    )


@pytest.mark.parametrize(
    "name", ["trace-000000.jsonl", "trace-0.jsonl", "trace-0000\u0660.jsonl", "trace-00001.jsonl"]
)
def test_a_file_that_is_named_like_a_trace_and_is_none_is_not_called_equal(tmp_path, name):
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    for run, text in ((a, "x"), (b, "y")):
        place = run / name
        if name == "trace-00001.jsonl":
            place.mkdir()
        else:
            place.write_text(text)
    found = diff_runs(a, b)
    assert found.code == 2
    assert found.headline == (
        "equal in what could be compared, 30 steps; not compared: 1 file that no rank is named "
        f"after ({name}) in A; 1 file that no rank is named after ({name}) in B"
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"kind": "step", "step": 30, "loss": "WHO"'], "1 line that could not be read in A"),
        (
            ['{"kind": "st\\u0065p", "step": 30, "loss": "WHO"}'],
            "1 line that could not be read in A",
        ),
        (['{"kind": "stop", "step": 30, "loss": "WHO"}'], "1 line that could not be read in A"),
        (
            ['{"kind": "step", "step": 30, "loss": "WHO"}'] * 2,
            "2 lines of A with a step that is there twice or does not rise",
        ),
        (
            ['{"kind": "step", "step": 31, "loss": "WHO"}', '{"kind": "step", "step": 30}'],
            "1 line of A with a step that is there twice or does not rise",
        ),
        (['{"kind": "step", "step": 30, "loss": [["WHO"]]}'], "nested values of loss"),
        (['{"kind": "step", "step": 30, "grad_norm": {"x": "WHO"}}'], "nested values of grad_norm"),
        (
            ['{"kind": "eval", "step": 30, "name": "val", "values": {"m": [["WHO"]], "n": 1}}'],
            "1 metric with nested values in A",
        ),
        (
            ['{"kind": "start", "version": 1, "weights": {"w": "WHO"}}'],
            "1 start after the first of a trace in A",
        ),
    ],
)
def test_lines_that_are_not_compared_are_not_called_equal(tmp_path, lines, said):
    """The runs differ in these lines only; A and B are damaged in the same way."""
    for mark in "ab":
        run = make_run(tmp_path / mark)
        spoil(run, "".join(f"{line}\n" for line in lines).replace("WHO", mark).encode())
    found = diff_runs(tmp_path / "a", tmp_path / "b")
    assert found.code == call(tmp_path / "a", tmp_path / "b").exit_code == 2
    assert found.headline.startswith("equal in what could be compared, ")
    assert said in found.headline.partition("not compared: ")[2].split("; ")
    assert any(
        said.removesuffix(" in A").removeprefix("1 line that ") in line
        for sentences in found.warnings.values()
        for line in sentences
    )


def test_a_gradient_norm_that_only_one_run_has_is_not_called_equal(tmp_path):
    bare = make_run(tmp_path / "bare", change={n: {"grad_norm": None} for n in range(30)})
    assert diff_runs(make_run(tmp_path / "a"), bare).lacks == ["grad_norm, which only A has"]


# A reader of JSON takes it, and to compare two of it ends in a RecursionError
DEEP = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize(
    "line",
    [
        '"step", "step": 30, "loss": DEEP',
        '"step", "step": 30, "input": DEEP',
        '"step", "step": 30, "lr": DEEP',
        '"step", "step": 30, "random": {"torch": DEEP}',
        '"step", "step": 30, "random": DEEP',
        '"eval", "step": 30, "name": "val", "values": {"loss": DEEP}',
        '"eval", "step": 30, "name": DEEP, "values": {}',
        '"epoch", "epoch": 0, "values": DEEP',
        '"loader", "unseen": DEEP',
    ],
)
def test_columns_that_are_nested_deep_end_in_no_crash(tmp_path, line):
    a = make_run(tmp_path / "a", end=False)
    b = make_run(tmp_path / "b", end=False, change={29: {"input": "other"}})
    for run in (a, b):
        spoil(run, f'{{"kind": {line.replace("DEEP", DEEP)}}}\n'.encode())
    found = diff_runs(a, b)
    assert (found.column.name, found.column.step) == ("input", 29)
    json.dumps(found.as_json())
    assert call(a, b).exit_code == 1
    assert not noise_floor([a, a, a], b).enough


@pytest.mark.parametrize(
    "sections",
    [
        ('"code": {"x": DEEP}', '"code": {"x": "c0"}'),
        ('"code": {"x": DEEP}', '"code": {"x": DEEP}'),
        ('"data": {"missing": DEEP}', '"data": {"missing": DEEP}'),
        ('"native": {"x": {"missing": DEEP}}',) * 2,
        ('"process": {"volatile": {"pid": DEEP, "host": 1, "time": 1, "seconds": 1}}',) * 2,
    ],
)
def test_an_environment_that_is_nested_deep_ends_in_no_crash(tmp_path, sections):
    runs = [make_run(tmp_path / str(i)) for i in range(2)]
    for run, section in zip(runs, sections, strict=True):
        (run / "env.json").write_text(f"{{{section.replace('DEEP', DEEP)}}}")
    json.dumps(diff_runs(*runs).as_json())
    assert call(*runs).exit_code in {0, 1}
    assert not noise_floor(runs, runs[1]).enough


@pytest.mark.parametrize(
    "value",
    [None, [], "x", {"data": 3}, {"process": {"env": []}}, {"packages": {"x": 1}}, {"code": []}],
)
def test_an_environment_of_any_shape_ends_in_no_crash(tmp_path, value):
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b", env=value)
    found = diff_runs(a, b)
    json.dumps(found.as_json())
    assert isinstance(CliRunner().invoke(command, [str(a), str(b)]).exception, SystemExit | None)


@pytest.mark.parametrize("name", ["env.json", "config.json"])
@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
def test_documents_that_cannot_be_read_are_told(tmp_path, name, text):
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    (b / name).write_bytes(text)
    found = diff_runs(a, b)
    assert any(name in line for line in found.warnings["B"])


@pytest.mark.parametrize(("gone", "which"), [("b", "A"), ("a", "B")])
def test_a_run_without_its_environment_is_not_equal_to_one_that_has_it(tmp_path, gone, which):
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    assert diff_runs(a, b).code == 0
    (tmp_path / gone / "env.json").unlink()
    found = diff_runs(a, b)
    assert found.code == 2
    assert found.headline.endswith(f"not compared: the environment, which only {which} has")
    assert found.as_json()["equal"] is None


def test_a_folder_of_runs_is_no_run_and_names_those_in_it(tmp_path):
    first = make_run(tmp_path / "runs/20260101-000000-abcdef")
    with pytest.raises(
        UsageError,
        match=r"runs: no recorded run.* In it are .*/runs/20260101-000000-abcdef: name one",
    ):
        diff_runs(first, tmp_path / "runs")
    later = [make_run(tmp_path / f"runs/{name}") for name in ("b1", "b2", "b3", "b4", "b5")]
    with pytest.raises(UsageError) as caught:
        diff_runs(first, tmp_path / "runs")
    assert f"In it are {', '.join(map(str, later))}, ...: name one of them." in str(caught.value)


def test_what_is_no_run_is_a_message(tmp_path):
    run = make_run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "gone", tmp_path / "empty", run / "env.json"):
        with pytest.raises(UsageError, match="A folder that a Recorder wrote is wanted"):
            diff_runs(run, path)
    nothing = make_run(tmp_path / "nothing")
    (nothing / "trace-00000.jsonl").write_bytes(b"")
    with pytest.raises(UsageError, match="nothing can be read"):
        diff_runs(run, nothing)
    # Nobody writes into it: to open it would be to wait
    os.mkfifo(tmp_path / "empty/trace-00000.jsonl")
    with pytest.raises(UsageError):
        diff_runs(run, tmp_path / "empty")


def test_another_version_is_a_message(tmp_path):
    a = make_run(tmp_path / "a")
    with pytest.raises(UsageError, match="recorded in version 2; this datacheck reads version 1"):
        diff_runs(a, make_run(tmp_path / "b", begin={"version": 2}))
    assert start()["version"] == 1


# ------------------------------------------------------------------------------------------ repeats


def repeats(tmp_path, *finals, each=None):
    return [
        make_run(
            tmp_path / f"r{i}", lines=[evaluation(10, loss=each or 1.0), evaluation(20, loss=final)]
        )
        for i, final in enumerate(finals)
    ]


def test_a_run_within_the_repeats_and_one_outside(tmp_path):
    runs = repeats(tmp_path, 7.5, 8.1, 7.9)
    (inside,) = repeats(tmp_path / "in", 7.86)
    found = noise_floor(runs, inside)
    spread = next(one for one in found.final if one.name == "val loss")
    assert (spread.low, spread.high, spread.value, spread.inside) == (7.5, 8.1, 7.86, True)
    assert not found.outside
    (outside,) = repeats(tmp_path / "out", 8.89)
    found = noise_floor(runs, outside)
    assert [one.name for one in found.outside] == ["val loss"]
    assert [(one.at, one.inside) for one in found.each] == [(0, True), (1, False)]
    assert "B lies outside of the 3 repeats in val loss" in found.headline
    # Of four runs of one version each is the highest or the lowest equally often
    assert "50%" in found.headline


@pytest.mark.parametrize("count", [1, 2])
def test_nothing_can_be_said_with_fewer_than_three_repeats(tmp_path, count):
    runs = repeats(tmp_path, *map(float, range(count)))
    (b,) = repeats(tmp_path / "b", 9.0)
    found = noise_floor(runs, b)
    assert found.headline.startswith("nothing can be said")
    run = CliRunner().invoke(command, [*map(str, runs), "--", str(b)])
    assert run.exit_code == 2
    assert run.output.startswith("nothing can be said")


def test_repeats_that_are_none_are_told(tmp_path):
    runs = repeats(tmp_path, 1.0, 2.0)
    runs.append(make_run(tmp_path / "r2", config={"lr": 5}, lines=[evaluation(20, loss=1.5)]))
    found = noise_floor(runs, runs[0])
    assert found.warnings["A3"] == ["differs from A1 in config: is it a repeat?"]


def test_one_run_given_three_times_is_one_repeat(tmp_path):
    a, b = repeats(tmp_path, 1.0, 2.0)
    (tmp_path / "link").symlink_to(a)
    found = noise_floor([a, a, tmp_path / "link"], b)
    assert (len(found.runs), found.enough) == (1, False)
    assert found.headline.startswith("nothing can be said: 1 repeat of A")
    assert found.warnings["all"][0] == f"{a} is {a} again, and counts once"


def began(second):
    volatile = {
        "pid": 7,
        "host": "h",
        "time": f"2026-01-01T00:00:0{second}Z",
        "seconds": {"code": 0.1},
    }
    return environment(process={"volatile": volatile})


def test_a_copy_of_a_run_is_no_other_repeat(tmp_path):
    lines = [evaluation(10, loss=1.0)]
    runs = [make_run(tmp_path / f"{i}", env=began(i), lines=lines) for i in range(3)]
    copy = make_run(tmp_path / "copy", env=began(1), lines=lines)
    b = make_run(tmp_path / "b", env=began(4), lines=lines)
    assert noise_floor(runs, b).enough
    assert not noise_floor([*runs[:2], copy], b).enough
    found = noise_floor(runs, copy)
    assert not found.enough
    assert found.headline == "nothing can be said: B is A2 itself, and lies within its own repeats"


def test_a_metric_of_one_repeat_alone_says_nothing(tmp_path):
    runs = repeats(tmp_path, 1.0, 2.0, 3.0)
    make_run(runs[0], lines=[evaluation(10, loss=1.0, rare=5.0), evaluation(20, loss=1.0)])
    b = make_run(
        tmp_path / "b", lines=[evaluation(10, loss=1.0, rare=6.0), evaluation(20, loss=2.0)]
    )
    found = noise_floor(runs, b)
    assert not found.outside
    assert "val rare: only 1 of 3 repeats have it" in found.warnings["all"]
    said = next(one for one in found.as_json()["final"] if one["name"] == "val rare")
    assert (said["inside"], said["repeats"]) == (None, 1)
    assert "not known" in CliRunner().invoke(command, [*map(str, runs), "--", str(b)]).output


def test_runs_of_unequal_length_are_held_together_where_all_have_come(tmp_path):
    def run(name, *losses, steps=30):
        lines = [evaluation(10 * i, loss=loss) for i, loss in enumerate(losses)]
        return make_run(tmp_path / name, steps, lines=lines)

    runs = [run("0", 9.0, 5.0, 1.0), run("1", 8.0, 4.0, 1.1), run("2", 8.5, 4.5, 1.2)]
    found = noise_floor(runs, run("b", 8.2, 4.2, steps=20))
    final = {one.name: one for one in found.final}
    assert (final["val loss"].low, final["val loss"].high, final["val loss"].value) == (
        4.0,
        5.0,
        4.2,
    )
    # Of step 19
    assert (final["loss"].low, final["loss"].high, final["loss"].value) == (20.0, 20.0, 20.0)
    assert not found.outside
    assert found.warnings["all"] == [
        "val loss: 3 evaluations in A, 2 in B; taken after 2",
        "loss: 30 steps in A, 20 in B; taken after 20",
    ]


def test_a_run_that_goes_on_is_held_against_the_repeats_at_its_own_steps(tmp_path):
    def run(name, *evaluations, first=0):
        lines = [evaluation(step, loss=loss) for step, loss in evaluations]
        return make_run(tmp_path / name, lines=lines, first=first)

    whole = [(0, 9.0), (10, 5.0), (20, 1.0)]
    runs = [run(f"{i}", *((step, loss + i / 10) for step, loss in whole)) for i in range(3)]
    found = noise_floor(runs, run("b", (10, 5.1), (20, 1.3), first=10))
    assert [(one.at, one.low, one.high, one.value) for one in found.each] == [
        (0, 5.0, 5.2, 5.1),
        (1, 1.0, 1.2, 1.3),
    ]
    assert [one.name for one in found.outside] == ["val loss"]
    found = noise_floor(runs, run("later", (25, 1.0), first=10))
    assert "val loss" not in {one.name for one in found.final}
    assert (
        "val loss: 3 evaluations in A, 1 in B; they have no step in common" in found.warnings["all"]
    )


def test_epochs_of_another_length_are_held_together_by_their_number(tmp_path):
    def run(name, *evaluations):
        return make_run(
            tmp_path / name, lines=[evaluation(step, loss=loss) for step, loss in evaluations]
        )

    runs = [run(f"{i}", (10, 9.0 + i), (20, 5.0 + i), (30, 1.0 + i)) for i in range(3)]
    found = noise_floor(runs, run("b", (5, 9.5), (10, 5.5), (16, 50.0)))  # twice the batch
    assert [one.value for one in found.each] == [9.5, 5.5, 50.0]
    assert [one.inside for one in found.each] == [True, True, False]
    assert [one.name for one in found.outside] == ["val loss"]


def test_a_repeat_that_ended_early_takes_no_metric_from_the_others(tmp_path):
    def run(name, *steps, first=0, end=True):
        lines = [evaluation(step, loss=float(step)) for step in steps]
        return make_run(tmp_path / name, lines=lines, first=first, end=end)

    runs = [run(f"{i}", 10, 20, 30) for i in range(3)]
    found = noise_floor([*runs, run("short", 10, end=False)], run("b", 20, 30, first=15))
    (spread,) = (one for one in found.final if one.name == "val loss")
    assert (spread.low, spread.high, spread.value, spread.repeats) == (30.0, 30.0, 30.0, 3)
    assert found.enough


def test_repeats_that_are_not_finite_say_nothing(tmp_path):
    runs = repeats(tmp_path, 1.0, math.nan, 3.0)
    (b,) = repeats(tmp_path / "b", 2.0)
    found = noise_floor(runs, b)
    assert [one.name for one in found.judged] == ["loss"]
    assert not found.outside


# -------------------------------------------------------------------------------------- the command


def call(*words):
    return CliRunner().invoke(command, list(map(str, words)))


def test_the_command_says_the_headline_first_and_ends_with_0_or_1(tmp_path):
    a, same = make_run(tmp_path / "a"), make_run(tmp_path / "same")
    b = make_run(tmp_path / "b", change=from_step(12, *ALL), config={"lr": 3})
    run = call(a, same)
    assert (run.exit_code, run.output.splitlines()[0]) == (
        0,
        "no difference: what was recorded is equal, 30 steps compared",
    )
    run = call(a, b)
    assert (run.exit_code, run.output.splitlines()[0]) == (
        1,
        "config differs first: config.lr is 0.1 in A and 3 in B",
    )
    assert len(run.output.splitlines()) <= 40
    said = json.loads(call(a, b, "--format", "json").output)
    assert said["first"] == "config"
    assert (said["steps"]["first"]["name"], said["steps"]["first"]["step"]) == ("input", 12)


def test_the_command_takes_repeats_before_the_dashes(tmp_path):
    runs = repeats(tmp_path, 7.5, 8.1, 7.9)
    (inside,) = repeats(tmp_path / "in", 7.86)
    (outside,) = repeats(tmp_path / "out", 8.89)
    assert call(*runs, "--", inside).exit_code == 0
    run = call(*runs, "--format", "json", "--", outside)
    assert run.exit_code == 1
    assert json.loads(run.output)["enough"] is True


@pytest.mark.parametrize(
    "words", [["a"], ["a", "b", "c"], ["a", "--"], ["a", "b", "--", "c", "d"], []]
)
def test_a_wrong_number_of_runs_is_a_wrong_request(words):
    assert call(*words).exit_code == 2


def test_a_name_that_a_terminal_would_act_on_is_spelled_out(tmp_path):
    a = make_run(tmp_path / "a", config={"x\x1b[31m": 1})
    b = make_run(tmp_path / "b", config={"x\x1b[31m": 2})
    assert "\x1b" not in call(a, b).output


def test_digests_of_data_are_shown_whole(compare):
    a, b = ({"a": {"kind": "folder", "digest": mark * 32}} for mark in "12")
    found = compare({"env": environment(data=a)}, env=environment(data=b))
    assert (
        found.headline
        == f"data differs first: a is digest {'1' * 32} in A and digest {'2' * 32} in B"
    )
    found = compare({"env": environment(data=a)}, env=environment(data={}))
    assert found.headline == f"data differs first: a is folder {'1' * 32} in A and none in B"


def nested(depth, leaf):
    for _ in range(depth):
        leaf = {"x": leaf}
    return leaf


def test_a_deep_configuration_is_compared(tmp_path):
    a, b = (make_run(tmp_path / str(leaf), config=nested(900, leaf)) for leaf in (1, 2))
    found = diff_runs(a, b)
    assert [(one.a, one.b) for one in found.first.differences] == [(1, 2)]
    c = make_run(tmp_path / "c", config={"y": 1})
    deep = next(one for one in diff_runs(a, c).first.differences if one.name == "config.x")
    assert (deep.a, deep.b) == ("nested deeper than 32 levels", None)
    assert call(a, c).exit_code == call(a, b, "--format", "json").exit_code == 1


WHOLE = [evaluation(n, loss=0.5 + n) for n in (9, 19, 29)]


@pytest.mark.parametrize(
    ("change", "lines", "lacks"),
    [
        ({}, WHOLE[:1], ["2 evaluations of val, which only A has"]),
        ({}, WHOLE[:2], ["1 evaluation of val, which only A has"]),
        (
            {},
            [evaluation(9, name="test", loss=1.0)],
            ["3 evaluations of val, which only A has", "1 evaluation of test, which only B has"],
        ),
        (
            {},
            [evaluation(n, acc=1.0 * n) for n in (9, 19, 29)],
            ["val loss, which only A has", "val acc, which only B has"],
        ),
        ({n: {"loss": None, "lr": None} for n in range(30)}, WHOLE, ["loss, lr, which only A has"]),
        ({n: {"grads": None} for n in range(30) if n % 10}, WHOLE, []),  # digested less often
    ],
)
def test_what_only_one_of_both_recorded_is_not_called_equal(tmp_path, change, lines, lacks):
    one = make_run(tmp_path / "one", lines=WHOLE)
    other = make_run(tmp_path / "other", change=change, lines=lines)
    found, turned = diff_runs(one, other), diff_runs(other, one)
    assert found.lacks == lacks
    names = str.maketrans("AB", "BA")
    assert turned.lacks == sorted(
        (said.translate(names) for said in lacks), key=lambda said: said[-5]
    )
    for one in (found, turned):
        assert (bool(one), one.code) == (False, 2 if lacks else 0)
        assert not lacks or one.headline.startswith(
            "equal in what could be compared, 30 steps; not compared: "
        )


def test_evaluations_before_the_later_run_began_are_not_missed(tmp_path):
    whole = make_run(tmp_path / "whole", lines=[evaluation(n, loss=0.5 + n) for n in (10, 20, 30)])
    later = make_run(tmp_path / "later", first=20, lines=[evaluation(30, loss=30.5)])
    assert diff_runs(whole, later).lacks == diff_runs(later, whole).lacks == []
