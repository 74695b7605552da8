import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.row_keys import NumberedKeys
from datacheck.model.table import Measured, Table, Texts, concatenate
from datacheck.workers.wire import decode, encode


def table(keys, **columns):
    n = len(keys)
    return Table(
        keys=list(keys),
        files=list(keys),
        inner=[""] * n,
        splits=[""] * n,
        groups=["g"] * n,
        status=np.zeros(n, np.int8),
        reasons=[""] * n,
        nbytes=np.zeros(n, np.int64),
        columns={name: Measured(np.array(v), np.ones(n, bool)) for name, v in columns.items()},
    )


@given(st.lists(st.lists(st.text(max_size=4), max_size=5), max_size=4))
def test_rows_of_all_tables_come_in_bytewise_key_order_and_none_is_lost(groups):
    merged = concatenate([table(keys) for keys in groups])
    expected = sorted(
        (k for keys in groups for k in keys), key=lambda k: k.encode("utf-8", "surrogatepass")
    )
    assert merged.keys == expected


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 4))
def test_how_the_rows_were_cut_does_not_matter(keys, cut):
    values = {k: float(ord(k)) for k in keys}
    parts = [keys[:cut], keys[cut:]]
    merged = concatenate([table(p, **{"x:m": [values[k] for k in p]}) for p in parts if p])
    np.testing.assert_array_equal(merged.columns["x:m"].values, [97, 98, 99, 100])


def test_a_column_that_was_not_measured_is_marked_and_never_looks_like_a_number():
    merged = concatenate([table(["b"], **{"x:m": [5]}), table(["a"])])
    column = merged.columns["x:m"]
    np.testing.assert_array_equal(column.present, [False, True])
    rows = merged.rows(np.arange(2), "x")
    np.testing.assert_array_equal(rows.measured("m"), [False, True])
    np.testing.assert_array_equal(rows.measured("m", "nothing"), [False, False])
    assert rows.where(rows.measured("m")).keys == ["b"]


def test_a_name_with_a_colon_is_taken_as_it_is():
    merged = table(["a"], **{"x:m": [1], ":id": [2], "y:m": [3]})
    rows = merged.rows(np.arange(1), "x")
    assert (rows["m"][0], rows[":id"][0], rows["y:m"][0]) == (1, 2, 3)


def test_vectors_of_different_width_are_padded():
    merged = concatenate([table(["a"], **{"x:v": [[1, 2, 3]]}), table(["b"], **{"x:v": [[4, 5]]})])
    np.testing.assert_array_equal(merged.columns["x:v"].values, [[1, 2, 3], [4, 5, 0]])


def test_a_table_crosses_a_process_border_unchanged():
    sent = table(["b", "a"], **{"x:m": [np.nan, 2], ":v": [[1, 2], [3, 4]], ":t": [True, False]})
    sent.columns["x:worst"] = Measured(np.array(["rgb", ""], dtype=object), np.array([True, False]))
    got = Table.from_wire(decode(b"".join(encode(sent.as_wire()))))
    assert (got.keys, got.files, got.groups, list(got.columns)) == (
        sent.keys,
        sent.files,
        sent.groups,
        list(sent.columns),
    )
    assert got.files[0] is got.keys[0]
    for name, column in sent.columns.items():
        np.testing.assert_array_equal(got.columns[name].values, column.values)
        np.testing.assert_array_equal(got.columns[name].present, column.present)
        assert got.columns[name].values.dtype == column.values.dtype


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=20))
def test_a_column_of_texts_gives_back_what_it_was_made_of(texts):
    column = Texts.of(texts)
    assert list(column) == texts
    assert column.words == list(dict.fromkeys(texts))
    assert column.present() == sorted(set(texts))


@given(st.integers(0, 12), st.data())
def test_rows_hold_what_stands_at_their_places_and_nobody_can_write_to_the_table(count, data):
    index = np.array(
        data.draw(st.lists(st.integers(0, 11), max_size=12)) if count else range(12), dtype=np.int64
    )
    values, present = np.arange(24).reshape(12, 2), np.arange(12) % 3 > 0
    names = [f"{i:02d}" for i in range(12)]
    table = Table(
        names, names, *[["x", "y"] * 6] * 4, np.zeros(12, np.int8), np.zeros(12, np.int64)
    )
    table.columns["x:a"] = Measured(values, present)
    rows = table.rows(index, "x")
    assert rows["a"].tolist() == values[index].tolist()
    assert rows.measured("a").tolist() == present[index].tolist()
    assert rows.keys == list(rows.files) == [names[i] for i in index]
    assert list(rows.groups) == [["x", "y"][i % 2] for i in index]
    assert not rows["a"].flags.writeable
    assert rows.measured("a").flags.writeable


@given(
    st.lists(st.sampled_from([0, 1, 63, 64, 65, 200]), min_size=1, max_size=3),
    st.sampled_from([0.0, -0.0, np.nan, 2.5, 7, True, "", "ä"]),
    st.booleans(),
    st.sampled_from([0, 1, 3]),
)
def test_columns_that_say_the_same_of_all_rows_travel_and_join_like_others(
    sizes, value, other, width
):
    tables, expected = [], []
    for number, size in enumerate(sizes):
        one = -value if other and number == 1 and isinstance(value, float) else value
        kind = object if isinstance(value, str) else None
        values = np.full((size, width) if width and kind is None else size, one, dtype=kind)
        present = np.full(size, not (other and number == 2))
        made = table([f"{number}:{i:03}" for i in range(size)])
        made.columns["x:m"] = Measured(values, present)
        tables.append(Table.from_wire(decode(b"".join(encode(made.as_wire())))))
        expected.append((values, present))
    merged = concatenate(tables)
    if len(merged):
        found = merged.columns["x:m"]
        values, present = (np.concatenate(parts) for parts in zip(*expected, strict=True))
        np.testing.assert_array_equal(found.present, present)
        np.testing.assert_array_equal(found.values, values)
        if values.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found.values), np.signbit(values))
        assert found.values.dtype == values.dtype


def test_texts_that_are_the_same_in_every_part_stay_one_text():
    def part(key, text):
        return Table.from_wire(
            decode(
                b"".join(encode(table([key] * 70, **{"x:t": np.full(70, text, object)}).as_wire()))
            )
        )

    same = concatenate([part("a", "text"), part("b", "text")]).columns["x:t"]
    assert same.values.tolist() == ["text"] * 140
    assert same.values.strides == (
        0,
    )  # one object, and judges see at once that they need not look at all of them
    other = concatenate([part("a", "text"), part("b", "json")]).columns["x:t"]
    assert other.values.tolist() == ["text"] * 70 + ["json"] * 70


def as_sent(value):
    return decode(b"".join(encode(value)))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=70))
def test_every_table_is_what_is_sent_for_one(keys):
    count = len(keys)
    one = table(
        keys,
        **{"x:m": np.arange(count), "x:wide": np.ones((count, 64)), "x:t": np.array(keys, object)},
    )
    one.nbytes = np.full(count, 2**62)
    assert Table.is_wire(as_sent(one.as_wire()))
    one.keys = one.files = NumberedKeys.of("a", range(count))
    assert Table.is_wire(as_sent(one.as_wire()))


WRONG = {
    "status": lambda data: data | {"status": np.full(2, 3, np.int8)},
    "rows": lambda data: data | {"nbytes": data["nbytes"][1:]},
    "negative": lambda data: data | {"nbytes": data["nbytes"] - 1},
    "wide": lambda data: data | {"columns": {"x:m": [np.zeros((2, 4097)), np.ones(2, bool)]}},
    "of no width": lambda data: data | {"columns": {"x:m": [np.zeros((2, 0)), np.ones(2, bool)]}},
    "complex": lambda data: data | {"columns": {"x:m": [np.zeros(2, complex), np.ones(2, bool)]}},
    "present": lambda data: data | {"columns": {"x:m": [np.zeros(2), np.zeros(2)]}},
    "no text": lambda data: data | {"texts": data["texts"] | {"keys": [["a", 5], None]}},
    "number": lambda data: (
        data | {"texts": data["texts"] | {"groups": [["g"], np.ones(2, np.int32)]}}
    ),
    "many rows of few bytes": lambda data: (
        data
        | {
            "texts": data["texts"]
            | {"keys": [["k:"], np.zeros(2, np.int32), np.broadcast_to(np.int64(0), 2)]}
        }
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_no_table_is_told(wrong):
    with pytest.raises(ValueError, match="rows of another form"):
        Table.from_wire(wrong(table(["a", "b"], **{"x:m": [1, 2]}).as_wire()))


def test_of_a_column_that_is_of_another_kind_in_some_tables_these_know_nothing():
    merged = concatenate(
        [
            table(["a"], **{"x:m": [1.0]}),
            table(["b"], **{"x:m": ["text"]}),
            table(["c"], **{"x:m": [[1.0]]}),
        ]
    )
    np.testing.assert_array_equal(merged.columns["x:m"].present, [True, False, False])
