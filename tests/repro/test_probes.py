"""Workers that are asked tell their seeds and their epoch; nothing of the process is changed by asking."""

# ruff: noqa: NPY002  global generators are what scripts draw from

import random
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from datacheck import CachedDataset
from datacheck.errors import UsageError
from datacheck.repro import pin
from datacheck.repro.captures import capture
from datacheck.repro.checks import (
    ProbedDataset,
    device_results,
    kernels,
    loader_settings,
    probe_loader,
)
from datacheck.repro.risks import judge


class Numbers(torch.utils.data.Dataset):
    def __init__(self, draw=lambda: 0.0):
        self.draw = draw
        self.epoch = 3

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return {"x": torch.full((2,), float(index)), "noise": self.draw()}

    def set_epoch(self, epoch):
        self.epoch = epoch


def loader(dataset, **options):
    return torch.utils.data.DataLoader(dataset, batch_size=2, **{"num_workers": 1, **options})


@pytest.mark.parametrize(
    ("draw", "drew", "differ"),
    [
        (lambda: 0.0, [], False),
        (random.random, ["random"], True),
        (np.random.rand, ["numpy"], True),
    ],
)
def test_global_generators_make_samples_depend_on_the_workers(draw, drew, differ):
    said = probe_loader(loader(Numbers(draw)))
    assert said["drew"] == drew
    assert (said["by_workers"] > 0) is differ
    assert said["same_seeds"] == []


class Slots:
    __slots__ = ("value",)

    def __init__(self):
        self.value = random.random()


@pytest.mark.parametrize(
    ("draw", "kinds"),
    [
        (lambda: {random.random()}, ["set"]),
        (Slots, ["Slots"]),
        (lambda: [np.array([random.random()], object), Slots()], ["Slots", "ndarray"]),
    ],
)
def test_values_of_which_only_the_type_is_known_are_not_told_as_equal(draw, kinds):
    said = probe_loader(loader(Numbers(draw)))
    assert (said["by_workers"], said["opaque"]) == (0, kinds)
    (row,) = (row for row in judged(said) if "samples differ" in row.value)
    assert row.state == "unknown"
    assert ", ".join(kinds) in row.why


def picture(*, palette=(0, 0, 0, 9, 9, 9), mode="P"):
    made = Image.new(mode, (3, 2))
    if mode == "P":
        made.putpalette(palette)
    return made


def test_images_are_compared_by_what_they_show(tmp_path):
    def draw():
        return Image.fromarray(np.full((2, 2, 3), np.random.randint(256), np.uint8))

    said = probe_loader(loader(Numbers(draw)))
    assert (said["opaque"], said["by_workers"] > 0) == ([], True)
    assert probe_loader(loader(Numbers(picture)))["by_workers"] == 0
    one = ProbedDataset([picture()])[0]
    assert one["opaque"] == []
    assert ProbedDataset([picture()])[0]["digest"] == one["digest"]
    others = [picture(palette=(0, 0, 0, 9, 9, 8)), picture(mode="L"), np.zeros((2, 3), np.uint8)]
    assert all(ProbedDataset([other])[0]["digest"] != one["digest"] for other in others)
    assert (
        ProbedDataset([picture(mode="HSV")])[0]["digest"]
        != ProbedDataset([picture(mode="RGB")])[0]["digest"]
    )
    Image.effect_noise((64, 64), 9).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:900])
    with Image.open(tmp_path / "cut.png") as cut:
        assert ProbedDataset([cut])[0]["opaque"]  # and no crash: nobody has used it yet


def test_a_difference_is_told_beside_values_of_which_only_the_type_is_known():
    said = probe_loader(loader(Numbers(lambda: ({1}, random.random()))))
    assert said["by_workers"] > 0
    (row,) = (row for row in judged(said) if "samples differ" in row.value)
    assert row.state == "note"  # a risk from same-machine on


def one_seed(worker):
    np.random.seed(7)


def test_workers_with_one_seed_are_told():
    said = probe_loader(loader(Numbers(np.random.rand), worker_init_fn=one_seed))
    assert said["same_seeds"] == ["numpy"]
    assert any(row.state == "risk" and "same seed of numpy" in row.value for row in judged(said))


def judged(probe):
    shown = {
        "dataset": "Numbers",
        "workers": 1,
        "shuffles": False,
        "generator": False,
        "probe": probe,
    }
    return judge({"torch": {"get_num_threads": 1}}, "fast", {"ran": True, "loaders": [shown]})


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize(("persistent", "there"), [(True, 3), (False, 4)])
def test_an_epoch_that_does_not_reach_workers_is_told(persistent, there, part):
    dataset = Numbers()
    asked = torch.utils.data.Subset(dataset, [5, 4, 3]) if part else dataset
    said = probe_loader(loader(asked, persistent_workers=persistent))
    assert said["epoch"] == [4, there]
    assert dataset.epoch == 3
    found = next(row for row in judged(said) if row.name.startswith("epoch"))
    assert found.state == ("risk" if persistent else "ok")


def test_an_epoch_of_a_cached_dataset_reaches_persistent_workers(tmp_path, repository):
    with tarfile.open(repository / "tests/golden/1-plain.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    dataset = CachedDataset(tmp_path / "arrays")
    said = probe_loader(loader(dataset, persistent_workers=True))
    assert (said["epoch"], said["by_workers"], said["drew"], dataset.epoch) == ([1, 1], 0, [], 0)


def test_what_a_loader_is_set_to():
    batches = torch.utils.data.BatchSampler(
        torch.utils.data.RandomSampler(Numbers()), 2, drop_last=False
    )
    said = loader_settings(torch.utils.data.DataLoader(Numbers(), batch_sampler=batches))
    assert (said["dataset"], said["workers"], said["shuffles"], said["generator"]) == (
        "Numbers",
        0,
        True,
        False,
    )
    seeded = loader(Numbers(), shuffle=True, generator=torch.Generator())
    assert (loader_settings(seeded)["shuffles"], loader_settings(seeded)["generator"]) == (
        True,
        True,
    )
    assert loader_settings(loader(Numbers()))["shuffles"] is False


def test_a_dataset_that_raises_could_not_be_asked():
    def broken():
        msg = "no such file"
        raise OSError(msg)

    said = probe_loader(loader(Numbers(broken)))
    assert said["missing"] == "OSError: no such file"
    assert any(row.state == "unknown" and "could not be asked" in row.why for row in judged(said))


def test_probes_leave_the_process_as_it_was():
    before = (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
    )
    said = kernels()
    probe_loader(loader(Numbers(np.random.rand)))
    after = (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
    )
    assert before == after
    assert set(said) == {"index_put(accumulate=True) on the CPU", "sum of 3 million numbers"}


def test_deterministic_algorithms_make_the_repeats_equal():
    torch.use_deterministic_algorithms(True)
    try:
        assert kernels()["index_put(accumulate=True) on the CPU"] == {"results": 1}
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_is_computed_on_a_gpu_can_be_computed():
    torch.use_deterministic_algorithms(True)
    try:
        said = device_results(torch, "cpu", 1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert said == {name: {"results": 1} for name in ("convolution", "scatter_add", "attention")}


def test_digests_of_samples():
    values = {"a": torch.arange(3), "b": [np.ones(2), "text", 1.5, None, (b"x", torch.tensor(2.0))]}
    same = {
        "a": torch.tensor([0, 1, 2]),
        "b": [np.ones(2), "text", 1.5, None, (b"x", torch.tensor(2.0))],
    }
    one, other = ProbedDataset([values, values])[1], ProbedDataset([same])[0]
    assert one["digest"] == other["digest"]
    for other in (
        values | {"a": torch.arange(3).float()},
        values | {"a": torch.arange(3)[None]},
        values | {"c": 1},
        values | {"b": []},
        values | {"a": torch.zeros(0)},
        {"b": values["b"], "a": torch.tensor([0, 1, 3])},
    ):
        assert ProbedDataset([other])[0]["digest"] != one["digest"]


@pytest.fixture
def unpinned(monkeypatch):
    """A process whose switches are put back afterwards, and that was started without a hash seed."""
    monkeypatch.setattr("datacheck.repro.process._hash_seed", lambda: "random")
    for name in ("PYTHONHASHSEED", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "9")  # so that what is set here is put back
        monkeypatch.delenv(name)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.allow_tf32 = True
    for name in ("fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction"):
        setattr(torch.backends.cuda.matmul, f"allow_{name}", True)
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


@pytest.mark.parametrize("profile", ["fast", "same-machine", "strict"])
def test_pinning_says_and_sets_what_the_profile_asks_for(unpinned, profile):
    torch.backends.cudnn.benchmark = profile != "fast"
    said = pin(profile, seed=5)
    ran = {"ran": True, "seeded": {"random": True}}
    found = capture()
    left = {row.name for row in judge(found, profile, ran) if row.state == "risk"}
    # No switch, and whether this checkout is clean is none either
    assert left - {"git"} == {"PYTHONHASHSEED"}
    assert any("PYTHONHASHSEED=0 for processes started from here" in line for line in said)
    assert torch.are_deterministic_algorithms_enabled() is (profile != "fast")
    assert torch.backends.cudnn.benchmark is False
    assert torch.backends.cudnn.allow_tf32 is (profile != "strict")
    assert torch.initial_seed() == 5
    assert random.random() == random.Random(5).random()
    assert np.random.rand() == np.random.RandomState(5).rand()


def test_pinning_without_a_seed_leaves_the_generators(unpinned):
    before = random.getstate()
    assert "Generators were not seeded: give seed=." in pin("fast")
    assert random.getstate() == before


@pytest.mark.parametrize(
    ("profile", "seed"), [("paranoid", None), ("fast", -1), ("fast", 1.5), ("fast", 1 << 32)]
)
def test_a_wrong_pin_is_refused(unpinned, profile, seed):
    with pytest.raises(UsageError):
        pin(profile, seed=seed)
