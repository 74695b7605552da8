import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.row_keys import NumberedKeys, keys_from_runs, keys_to_runs
from datacheck.model.table import Table, concatenate
from datacheck.workers.wire import decode, encode

_PATH = st.sampled_from(["a.jsonl", "a", "b/ä.jsonl", "a.jsonl.gz", "a:1", "a:"])
_NUMBER = st.one_of(st.integers(0, 12), st.integers(0, 10**12 - 1))
_FILES = st.lists(st.tuples(_PATH, st.lists(_NUMBER, max_size=5)), max_size=5)


def written(files):
    return [f"{path}:{number:012d}" for path, numbers in files for number in numbers]


@given(_FILES)
def test_keys_are_the_texts_that_a_format_writes(files):
    keys, texts = NumberedKeys.joined([NumberedKeys.of(*file) for file in files]), written(files)
    assert list(keys) == texts == [keys[i] for i in range(len(texts))]
    assert list(keys[1:3]) == texts[1:3]
    if isinstance(keys, NumberedKeys):
        octets, stops = keys.octets()
        assert octets.tobytes().decode() == "".join(texts)
        assert stops.tolist() == np.cumsum([len(text.encode()) for text in texts]).tolist()
        index = np.arange(len(texts))[::-2]
        assert list(keys.take(index)) == [texts[i] for i in index]


@given(_FILES, st.data())
def test_keys_that_come_as_texts_are_joined_as_what_they_say(files, data):
    parts = [
        NumberedKeys.of(*file) if data.draw(st.booleans()) else written([file]) for file in files
    ]
    assert list(NumberedKeys.joined(parts)) == written(files)


def test_a_bad_line_among_a_million_makes_no_texts_of_the_others():
    keys = NumberedKeys.joined([NumberedKeys.of("a", [0, 2]), ["a:000000000001", "b:000000000007"]])
    assert isinstance(keys, NumberedKeys)
    assert list(keys) == ["a:000000000000", "a:000000000002", "a:000000000001", "b:000000000007"]
    for other in ("a", "a:00000000001", "a:00000000000\u0661", "a:-00000000001", "a 000000000001"):
        assert list(NumberedKeys.joined([NumberedKeys.of("a", [0]), [other]])) == [
            "a:000000000000",
            other,
        ]


@given(_FILES)
def test_tables_of_numbered_samples_come_in_bytewise_order_and_travel(files):
    tables = []
    for number, (path, numbers) in enumerate(files):
        count = len(numbers)
        status, nbytes = np.full(count, number % 3, np.int8), np.zeros(count, np.int64)
        tables.append(
            Table(
                keys=NumberedKeys.of(path, numbers),
                files=[path] * count,
                inner=[""] * count,
                splits=[""] * count,
                groups=[""] * count,
                status=status,
                reasons=[""] * count,
                nbytes=nbytes,
            )
        )
    merged = concatenate(
        [Table.from_wire(decode(b"".join(encode(table.as_wire())))) for table in tables]
    )
    rows = [
        (key, path, n % 3)
        for n, (path, numbers) in enumerate(files)
        for key in written([(path, numbers)])
    ]
    rows.sort(key=lambda row: row[0].encode())
    assert [
        (k, f, s) for k, f, s in zip(merged.keys, merged.files, merged.status.tolist(), strict=True)
    ] == rows


def test_a_number_of_more_than_twelve_digits_is_still_a_text():
    assert list(NumberedKeys.of("a", [0, 10**12])) == ["a:000000000000", "a:1000000000000"]


def test_keys_equal_the_same_texts_only():
    keys = NumberedKeys.of("a", [0, 1])
    assert keys == ["a:000000000000", "a:000000000001"]
    assert keys != ["a:000000000000"]
    assert keys != [0, 1]


@given(_FILES, st.lists(st.text(max_size=20), max_size=2))
def test_runs_are_the_keys_that_they_stand_for(files, others):
    for keys in (written(files), written(files) + others, others + written(files)):
        assert keys_from_runs(json.loads(json.dumps(keys_to_runs(keys)))) == keys


def test_keys_of_a_whole_file_are_one_run():
    keys = list(NumberedKeys.of("a.npy", range(7, 10_007)))
    assert keys_to_runs(keys) == [["a.npy:", 7, 10_000]]
    assert keys_to_runs(keys[:5] + keys[6:]) == [["a.npy:", 7, 5], ["a.npy:", 13, 9_994]]
    assert keys_to_runs([*keys[:2], "b.npy:000000000009"]) == [["a.npy:", 7, 2], ["b.npy:", 9, 1]]
    assert keys_to_runs(["a.npz", *keys[:2]]) == ["a.npz", *keys[:2]]
