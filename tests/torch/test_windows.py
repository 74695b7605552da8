"""Windows hold the steps that a loop over whole episodes finds; many of them cost nothing."""

from __future__ import annotations

import itertools
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.cache import parsing
from datacheck.cache.codec import Codec
from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset, Windows
from tests.cache.make import make_cache

LENGTHS = [5, 0, 1, 8, 2, 13]
SPECS = {
    "action": ArraySpec("float32", (2,), "T"),
    "step": ArraySpec("int64", (), "T"),
    "task": ArraySpec("int64"),
}


def episodes(lengths):
    rng = np.random.default_rng(3)
    return [
        {
            "action": rng.random((n, 2), np.float32),
            "step": 1000 * e + np.arange(n) + 1,
            "task": np.int64(e),
        }
        for e, n in enumerate(lengths)
    ]


WRITTEN = episodes(LENGTHS)


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """The episodes mapped, and compressed."""
    folder = tmp_path_factory.mktemp("episodes")
    return [
        make_cache(folder / str(i), SPECS, WRITTEN, k=2, codec=c)
        for i, c in enumerate([Codec(), Codec("zstd")])
    ]


def items_by_hand(cut, before, behind):
    """Every item as (episode, step): the definition, written as loops."""
    for episode, n in enumerate(LENGTHS):
        least = before + 1 + behind if cut.pad == "none" else cut.length or 1
        if n == 0 or (n < least and cut.short == "drop"):
            continue
        if cut.pad != "none":
            steps = range(0, n, cut.stride)
        elif n < least:
            steps = [min(before, n - 1)]
        else:
            steps = [t for t in range(before, n, cut.stride) if t + behind < n]
        yield from ((episode, step) for step in steps)


def served_by_hand(episode, step, offsets, pad):
    """Values and is_pad of one field around a step, one by one."""
    values, outside = [], []
    for offset in offsets:
        wanted = step + offset
        outside.append(not 0 <= wanted < len(episode))
        value = episode[min(max(wanted, 0), len(episode) - 1)]
        values.append(np.zeros_like(value) if outside[-1] and pad == "zero" else value)
    return np.stack(values), outside


offsets = st.lists(st.integers(-15, 15), min_size=1, max_size=5)


@given(
    st.one_of(st.none(), st.integers(1, 6)),
    st.integers(1, 4),
    st.sampled_from(["none", "edge", "zero", None]),
    st.sampled_from(["drop", "pad"]),
    st.integers(0, 3),
    st.one_of(st.none(), offsets),
    st.one_of(st.none(), offsets),
    st.booleans(),
)
def test_windows_are_those_of_a_loop_over_whole_episodes(
    caches, length, stride, pad, short, history, action, step, packed
):
    deltas = {name: some for name, some in (("action", action), ("step", step)) if some is not None}
    history = 0 if length is None else history
    cut = Windows(length, stride, pad, short, history=history, delta_indices=deltas)
    assert cut.pad == (pad or ("edge" if deltas else "none"))
    of_length = list(range(-history, length)) if length else None
    chosen = {name: deltas.get(name, of_length) for name in ("action", "step")}
    farthest = [0, -history, (length or 1) - 1, *itertools.chain(*deltas.values())]
    expected = list(items_by_hand(cut, -min(farthest), max(farthest)))
    if not expected:
        with pytest.raises(
            UsageError, match=rf"none of the 6 valid episodes has {cut.least} steps"
        ):
            CachedDataset(caches[packed], windows=cut)
        return
    data = CachedDataset(caches[packed], windows=cut)
    assert len(data) == len(expected)
    batch = data[list(range(len(data)))[::-1]]
    for place, (episode, at) in enumerate(expected[::-1]):
        assert batch["task"][place] == episode  # the index asked is the index served
        for name, around in chosen.items():
            if around is None:
                np.testing.assert_array_equal(
                    batch[name][place].numpy(), WRITTEN[episode][name][at]
                )
                assert f"{name}_is_pad" not in batch
                continue
            values, is_pad = served_by_hand(WRITTEN[episode][name], at, around, cut.pad)
            np.testing.assert_array_equal(batch[name][place].numpy(), values)
            assert batch[f"{name}_is_pad"][place].tolist() == is_pad


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(("frame_stack", "seq_length"), [(1, 1), (1, 4), (3, 1), (2, 3)])
def test_history_and_length_are_the_frame_stack_and_seq_length_of_robomimic(
    caches, frame_stack, seq_length, padded
):
    """SequenceDataset: n - (frame_stack - 1) - (seq_length - 1) items of an episode, or n padded with the edge."""
    how = {"pad": "edge", "short": "pad"} if padded else {"pad": "none", "short": "drop"}
    cut = Windows(seq_length, history=frame_stack - 1, **how)
    data = CachedDataset(caches[0], windows=cut)
    expected, real = [], []
    for demo in WRITTEN:
        n = len(demo["step"])
        for index in range(n if padded else n - (frame_stack - 1) - (seq_length - 1)):
            at = index if padded else index + frame_stack - 1
            begin, end = max(0, at - (frame_stack - 1)), min(n, at + seq_length)
            pad = (max(0, frame_stack - 1 - at), max(0, at + seq_length - n))
            expected.append(np.pad(demo["step"][begin:end], pad, mode="edge"))
            real.append(np.pad(np.ones(end - begin, bool), pad))
    batch = data[list(range(len(data)))]
    np.testing.assert_array_equal(batch["step"].numpy(), np.stack(expected))
    np.testing.assert_array_equal(~batch["step_is_pad"].numpy(), np.stack(real))


def test_delta_timestamps_are_those_of_lerobot(caches):
    """Seconds times fps, clamped to the episode, <key>_is_pad beside them; other fields are the frame alone."""
    cut = Windows(delta_timestamps={"action": [-0.2, 0, 0.1]}, fps=10)
    data = CachedDataset(caches[0], windows=cut)
    assert len(data) == sum(LENGTHS)
    first, last = data[0], data[4]
    np.testing.assert_array_equal(first["action"].numpy(), WRITTEN[0]["action"][[0, 0, 1]])
    assert first["action_is_pad"].tolist() == [True, False, False]
    np.testing.assert_array_equal(last["action"].numpy(), WRITTEN[0]["action"][[2, 4, 4]])
    assert last["action_is_pad"].tolist() == [False, False, True]
    assert (int(last["step"]), last["step"].shape) == (5, ())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"delta_timestamps": {"action": [0.15]}, "fps": 10}, r"0\.15 s is no multiple of 1/10 s"),
        ({"delta_timestamps": {"action": [0.1]}}, "need fps"),
        ({"delta_timestamps": {"action": [float("nan")]}, "fps": 10}, "no multiple"),
        ({"delta_indices": {"action": [0.5]}}, "whole number of steps"),
        ({"delta_indices": {"action": []}}, "no step of action"),
        (
            {"delta_indices": {"action": [0]}, "delta_timestamps": {"action": [0]}, "fps": 1},
            "give one of them",
        ),
        ({"delta_indices": {"action": [1 << 40]}}, "steps away"),
        ({"delta_indices": {"action": 3}}, "a list for each field is wanted"),
        ({"delta_timestamps": [0.1], "fps": 10}, "a list for each field is wanted"),
        ({"delta_timestamps": {"action": ["a"]}, "fps": 10}, "action: a s is no multiple"),
        ({"delta_timestamps": {"action": [1e300]}, "fps": 1e300}, "no multiple"),
        ({"delta_timestamps": {"action": [0.1]}, "fps": "10"}, "need fps"),
        ({"history": 2}, "needs a length"),
        ({"length": 2.5}, r"length: 2\.5 is no whole number of steps"),
        ({"length": True}, "length: True is no whole number"),
        ({"length": 2, "stride": 1.5}, r"stride: 1\.5"),
        ({"length": 2, "stride": None}, "stride: None"),
        ({"length": 2, "history": 0.5}, r"history: 0\.5"),
        ({"length": 2, "history": -1}, "0 or more"),
    ],
)
def test_wrong_deltas_are_refused(said, message):
    with pytest.raises(UsageError, match=message):
        Windows(**said)


def test_a_cache_asks_for_no_more_than_a_batch_may_take(tmp_path, monkeypatch):
    """One episode of five steps is a window of a million, where its edge pads it."""
    cut = {"dim": "T", "length": 3, "stride": 1, "pad": "edge", "short": "pad"}
    folder = make_cache(tmp_path, SPECS, WRITTEN, k=2, windows=cut)
    dataset = CachedDataset(folder)
    monkeypatch.setattr(parsing, "WINDOWS_BYTES", 900)
    # 2 fields of 3 steps of 8 bytes, and 64 beside each
    assert dataset[[0, 1]]["action"].shape == (2, 3, 2)
    with pytest.raises(
        UsageError, match=r"3 windows .* take 1,296 bytes; at most 900 .*\(at most 2\), .*windows="
    ):
        dataset[[0, 1, 2]]
    assert CachedDataset(folder, fields=["step"])[[0, 1, 2]]["step"].shape == (3, 3)
    assert CachedDataset(folder, windows=Windows(**cut))[[0, 1, 2]]["action"].shape == (3, 3, 2)
    assert CachedDataset(folder, windows=False, fields=["task"])[[0, 1, 2, 3, 4, 5]][
        "task"
    ].shape == (6,)


@pytest.mark.parametrize("cut", [{"length": 3}, {"length": None}])
def test_windows_that_overlap_are_counted_each(tmp_path, monkeypatch, cut):
    """Of a million stored steps a batch of windows at stride 1 is a multiple."""
    said = {"dim": "T", "stride": 1, "pad": "none", "short": "drop", **cut}
    dataset = CachedDataset(make_cache(tmp_path, SPECS, WRITTEN, k=2, windows=said))
    # Of 2 fields, as above
    monkeypatch.setattr(parsing, "WINDOWS_BYTES", most := 2 * 2 * 72 * (cut["length"] or 1))
    assert len(dataset[[0, 1]]["action"]) == 2
    with pytest.raises(
        UsageError,
        match=rf"3 windows .* take {most * 3 // 2:,} bytes; at most {most:,} .*\(at most 2\)",
    ):
        dataset[[0, 1, 2]]


def test_a_batch_parses_no_steps_again(caches, monkeypatch):
    """A cache may declare a million, of which each field of each batch made lists."""
    dataset = CachedDataset(
        caches[0], windows=Windows(delta_indices={"action": [-1, 0], "step": [0, 2]})
    )
    first = dataset[[1, 2]]["step"].tolist()
    parsed = []
    monkeypatch.setattr(
        "datacheck.cache.windows._check_whole", lambda what, step: parsed.append(what) or step
    )
    assert dataset[[1, 2]]["step"].tolist() == first == [[2, 4], [3, 5]]
    assert parsed == []
    with pytest.raises(ValueError, match="read-only"):
        dataset.windows.offsets("step")[0] = 5
    Windows(delta_indices={"action": [3]})
    assert len(parsed) == 3  # the control: stride, history, and the step


def test_deltas_of_fields_that_are_not_served_are_refused(caches):
    for name in ("reward", "task"):
        with pytest.raises(
            UsageError, match=rf"no field {name} along T is served; there is action, step"
        ):
            CachedDataset(caches[0], windows=Windows(delta_indices={name: [0]}))
    with pytest.raises(UsageError, match="there is action"):
        CachedDataset(caches[0], fields=["action"], windows=Windows(delta_indices={"step": [0]}))


_WORKER = """
import multiprocessing.spawn
import sys
from torch.utils.data import DataLoader, Dataset
from datacheck.torch import CachedDataset, Windows

def own():
    # KiB of memory that is no file, as the process itself has it mapped: its private pages would
    # also count those that a forked worker shares until its parent writes to them
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))

class Asking(Dataset):
    def __init__(self, data):
        self.data, self.first = data, None
    def __len__(self):
        return len(self.data)
    def __getitems__(self, items):
        if self.first is None:
            self.first = own()
        self.data.__getitems__(items)
        return [own() - self.first]

multiprocessing.spawn.set_executable(sys.argv[3])
data = CachedDataset(sys.argv[1], windows=Windows(8), fields=["step"])
loader = DataLoader(
    Asking(data), batch_size=1000, shuffle=True, num_workers=1, collate_fn=list, multiprocessing_context=sys.argv[2]
)
if __name__ == "__main__":
    grown = [some[0] for some, _ in zip(loader, range(100))]
    print(len(data), max(grown))
"""


@pytest.fixture(scope="module")
def long_cache(tmp_path_factory):
    """A cache of 20,000 episodes with 500 windows of eight steps each."""
    place = tmp_path_factory.mktemp("long")
    episodes = [{"step": np.zeros(507, np.int8)}] * 20_000
    make_cache(place / "data", {"step": ArraySpec("int8", (), "T")}, episodes, k=4096)
    return place / "data"


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_ten_million_windows_cost_less_than_ten_megabytes_of_a_worker(
    tmp_path, long_cache, forked_python, start
):
    script = tmp_path / "worker.py"
    script.write_text(_WORKER)
    run = subprocess.run(
        [forked_python, str(script), str(long_cache), start, forked_python],
        capture_output=True,
        text=True,
        check=True,
    )
    windows, grown = map(int, run.stdout.split())
    assert windows == 10_000_000
    assert grown < 10 * 1024
