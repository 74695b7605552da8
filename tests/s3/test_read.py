"""A cache in a bucket is read as one in a folder: nothing more is fetched than needed, nothing is served unchecked."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil

import numpy as np
import obstore
import pytest
import torch
import zarr
from torch.utils.data import DataLoader

from datacheck import CachedDataset, open_cache
from datacheck.cache import objects, obstore_client, row_readers
from datacheck.cache.codec import Codec
from datacheck.cache.diff import diff
from datacheck.cache.find import choose_cache, find_caches
from datacheck.cache.verify import verify
from datacheck.errors import CorruptionError, StorageError, UsageError
from tests.cache.make import KEY, make_cache
from tests.s3.conftest import fresh
from tests.s3.make import (
    SPECS,
    committed,
    copied,
    delete,
    everything,
    files_of,
    flip,
    get,
    listed,
    opened,
    put,
    samples,
)
from tests.s3.server import SECRET

WRITTEN = samples()


@pytest.fixture(scope="module", params=["plain", "zstd"])
def folder(request, tmp_path_factory):
    codec = Codec.parse("none" if request.param == "plain" else request.param)
    return make_cache(
        tmp_path_factory.mktemp("cache"),
        SPECS,
        WRITTEN,
        k=4,
        codec=codec,
        valid=[i != 5 for i in range(13)],
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return make_cache(tmp_path_factory.mktemp("plain"), SPECS, WRITTEN, k=4)


@pytest.fixture(scope="module")
def plain_place(plain, server):
    """A committed cache that no test changes, in the folders of its pipeline."""
    return committed(plain, f"{fresh()}/tiny/all/{KEY}")


@pytest.fixture(scope="module")
def place(folder, server):
    """A committed cache that no test changes."""
    return committed(folder, fresh())


@pytest.mark.parametrize(
    ("module", "limit"), [(objects, "CACHE_OBJECTS"), (obstore_client, "_NAME_LETTERS")]
)
def test_a_bucket_that_lists_too_much_below_a_cache_is_refused(place, monkeypatch, module, limit):
    assert verify(place, depth="quick") == []
    monkeypatch.setattr(module, limit, 5)
    (problem,) = verify(place, depth="quick")
    assert "more than" in problem.what
    assert "letters of their names" in problem.what


@pytest.mark.parametrize("checks", ["manifest", "touch", "always", "full"])
def test_every_value_comes_back(folder, place, checks):
    cache = open_cache(place, verify=checks)
    assert (cache.path, len(cache), cache.manifest) == (place, 13, open_cache(folder).manifest)
    for order in ([12, 0, 5, 5, 3], [], list(range(13))):
        for name in ("image", "pose"):
            expected = np.array([WRITTEN[i][name] for i in order], SPECS[name].dtype).reshape(
                -1, *SPECS[name].item
            )
            np.testing.assert_array_equal(cache.gather(name, order), expected)
        values, lengths = cache.gather_ragged("points", order)
        assert lengths.tolist() == [len(WRITTEN[i]["points"]) for i in order]
        np.testing.assert_array_equal(
            values, np.concatenate([np.zeros((0, 3)), *(WRITTEN[i]["points"] for i in order)])
        )
        assert cache.texts("say", order) == [WRITTEN[i]["say"] for i in order]
        assert cache.present("score", order).tolist() == ["score" in WRITTEN[i] for i in order]
        assert cache.keys(order) == [f"sample/{i:06d}" for i in order]
    assert cache.origin(3) == [{"file": "sample/000003.npy"}]
    assert np.flatnonzero(~cache.usable).tolist() == [5]


def test_a_folder_that_was_copied_is_read_too(plain, url):
    cache = open_cache(copied(plain, url), verify="full")
    np.testing.assert_array_equal(cache.gather("pose", [7]), [WRITTEN[7]["pose"]])
    assert verify(url, "values") == []


def test_one_sample_costs_one_request_of_its_own_size(plain_place, proxy):
    cache = open_cache(plain_place)
    cache.gather("image", [0])  # the digests of the field
    before = len(proxy.seen)
    np.testing.assert_array_equal(cache.gather("image", [9]), [WRITTEN[9]["image"]])
    assert [line.split("?")[0] for line in proxy.seen[before:]] == [
        f"GET /{files_of(plain_place).removeprefix('s3://')}/fields/image/c.2.0.0 HTTP/1.1"
    ]
    before = len(proxy.seen)
    cache.gather("image", [4, 5, 6, 7])  # neighbours
    assert len(proxy.seen) == before + 1


def test_what_is_asked_for_together_is_bounded(plain_place, monkeypatch):
    cache = open_cache(plain_place)
    monkeypatch.setattr(row_readers, "_REQUEST_BYTES", 100_000)
    np.testing.assert_array_equal(cache.gather("image", range(13)), [s["image"] for s in WRITTEN])
    values, _ = cache.gather_ragged("points", range(13))
    np.testing.assert_array_equal(values, np.concatenate([s["points"] for s in WRITTEN]))


def test_zarr_reads_the_same_through_obstore(place):
    store, prefix = opened(files_of(place))
    group = zarr.open_group(zarr.storage.ObjectStore(store, read_only=True), path=prefix, mode="r")
    np.testing.assert_array_equal(group["fields/image"][:], [s["image"] for s in WRITTEN])
    start, length = (int(group[f"rows/P/{what}"][7]) for what in ("start", "length"))
    np.testing.assert_array_equal(
        group["fields/points"][start : start + length], WRITTEN[7]["points"]
    )


def test_an_attempt_copied_to_a_disk_is_a_cache(plain_place, tmp_path):
    for path, raw in everything(files_of(plain_place)).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(raw)
    assert verify(tmp_path, "values") == []


def test_two_caches_are_compared_wherever_they_are(plain, url, tmp_path):
    other = [dict(s) for s in WRITTEN]
    other[6]["pose"] = other[6]["pose"] + 1
    committed(make_cache(tmp_path, SPECS, other, k=4), url)
    found = diff(open_cache(plain), open_cache(url))
    assert {key: list(of) for key, of in found.changed.items()} == {"sample/000006": ["pose"]}


# ----------------------------------------------------------------------------------------- training


@pytest.mark.parametrize(("workers", "how"), [(0, None), (2, "fork"), (1, "spawn")])
def test_loaders_serve_what_was_written(plain_place, workers, how):
    dataset = CachedDataset(plain_place, fields=["image", "points"])
    dataset[0]  # obstore's threads run in this process: a forked child cannot use them
    options = {"multiprocessing_context": how, "persistent_workers": True} if workers else {}
    from datacheck.torch import collate_ragged

    loader = DataLoader(
        dataset, batch_size=4, num_workers=workers, collate_fn=collate_ragged, **options
    )
    for _ in range(2):
        images = torch.cat([batch["image"] for batch in loader])
        np.testing.assert_array_equal(images.numpy(), [s["image"] for s in WRITTEN])
    np.testing.assert_array_equal(dataset[3]["points"], WRITTEN[3]["points"])


def asked_in_a_fork(cache, answers):
    for _ in range(2):
        answers.put(cache.gather("pose", [2]))
        child, _ = objects._helper(os.getpid())
        child._process.kill()  # it is started again
    with pytest.raises(UsageError, match="there is no such bucket"):
        open_cache("s3://not-there/x")


def test_a_forked_process_asks_through_a_program_of_its_own(plain_place):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=asked_in_a_fork, args=(open_cache(plain_place), answers))
    child.start()
    for _ in range(2):
        np.testing.assert_array_equal(answers.get(timeout=800), [WRITTEN[2]["pose"]])
    child.join(800)
    assert child.exitcode == 0


def test_a_pickled_cache_is_opened_where_it_arrives(plain_place):
    cache = pickle.loads(pickle.dumps(open_cache(plain_place)))  # noqa: S301
    np.testing.assert_array_equal(cache.gather("pose", [2]), [WRITTEN[2]["pose"]])


# ------------------------------------------------------------------------------------------ finding


def test_caches_are_found_by_listing(plain, url, tmp_path):
    one, other = f"{url}/a/all/{'1' * 16}", f"{url}/a/train/{'2' * 16}"
    committed(plain, one)
    copied(plain, other)
    copied(plain, f"{url}/a/val/{'3' * 16}/{'e' * 32}")  # an attempt that was not committed
    copied(plain, f"{url}/.trash/all/{'4' * 16}")
    assert list(find_caches(url)) == [one, other]
    assert choose_cache(url, "train") == other
    with pytest.raises(UsageError, match=f"2 finished caches.*\n    {one}\n    {other}"):
        open_cache(url)
    with pytest.raises(UsageError, match="split 'test': no finished cache; there is all, train"):
        open_cache(url, split="test")
    for place in (f"{url}/a/val", f"{url}/a/val/{'3' * 16}", f"{url}/a/val/{'3' * 16}/{'e' * 32}"):
        with pytest.raises(UsageError, match="no finished cache"):
            open_cache(place)
    assert len(open_cache(files_of(one))) == 13  # that one was


def test_more_objects_than_one_page_of_a_listing(tmp_path, url):
    from datacheck.model.sample import ArraySpec

    specs = {f"f{i}": ArraySpec("float32", ()) for i in range(4)}
    folder = make_cache(tmp_path, specs, [dict.fromkeys(specs, np.float32(1))] * 250, k=1)
    assert len(open_cache(committed(folder, url)).manifest.files) > 1000
    assert verify(url, "quick") == []
    delete(f"{files_of(url)}/samples/valid/c.0")  # on the second page
    assert [p.file for p in verify(url, "quick")] == ["samples/valid/c.0"]


# ------------------------------------------------------------------------------------------- damage


def test_verify_says_nothing_of_a_whole_cache(place):
    url = place
    put(f"{url}/{'f' * 32}/fields/image/c.0.0.0", b"of a builder that is gone")
    assert [verify(url, depth) for depth in ("quick", "full", "values")] == [[], [], []]
    assert verify(url, subset=(1, 2)) + verify(url, subset=(2, 2)) == []


def test_a_flipped_bit_is_told_as_in_a_folder(folder, url, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    files = files_of(committed(copy, url))
    for name in ("fields/image/c.1.0.0", "rows/P/start/c.0", "samples/valid/c.0", "zarr.json"):
        path = copy / name
        whole = path.read_bytes()
        raw = bytearray(whole)
        raw[11] ^= 4
        path.chmod(0o644)
        path.write_bytes(bytes(raw))
        put(f"{files}/{name}", bytes(raw))
        assert verify(url) == verify(copy) != [], name
        path.write_bytes(whole)
        put(f"{files}/{name}", whole)


def test_no_damaged_chunk_is_served(folder, url):
    committed(folder, url)
    shards = listed(files_of(url))
    for field in ("image", "pose", "points", "say"):
        shard = next(path for path in shards if path.startswith(f"fields/{field}/c.1"))
        cache = open_cache(url)
        flip(f"{files_of(url)}/{shard}", 12)
        gather = cache.gather if SPECS[field].dim is None else cache.gather_ragged
        gather(field, [0, 1])
        with pytest.raises(CorruptionError, match=f"{shard}.*shard 1.*samples? 4"):
            gather(field, [0, 4])


def test_objects_that_are_short_or_gone_are_told(plain, url):
    committed(plain, url)
    cache, name = open_cache(url), f"{files_of(url)}/fields/image/c.0.0.0"
    raw = get(name)
    for size in (100_000, 10, 0):
        put(name, raw[:size])
        with pytest.raises(CorruptionError, match=r"c\.0\.0\.0: it ends too early"):
            cache.gather("image", [1])
        assert [(p.file, p.stop) for p in verify(url, "quick")] == [("fields/image/c.0.0.0", 4)]
        with pytest.raises(CorruptionError, match="bytes, the manifest says"):
            open_cache(url)
    delete(name)
    with pytest.raises(CorruptionError, match=r"c\.0\.0\.0: it is not there"):
        cache.gather("image", [1])
    assert [p.what for p in verify(url)] == ["missing"]
    put(f"{files_of(url)}/more", b"x")
    assert "more" in {p.file for p in verify(url, "quick")}


def test_every_flip_of_the_commit_is_told(plain, url):
    committed(plain, url)
    raw = get(f"{url}/commit.json")
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << at % 7
        put(f"{url}/commit.json", bytes(damaged))
        with pytest.raises((CorruptionError, UsageError)):
            open_cache(url)


def test_a_manifest_that_was_not_committed_is_not_believed(plain, url, tmp_path):
    committed(plain, url)
    other = make_cache(tmp_path, SPECS, samples(13, seed=1), k=4)
    put(f"{files_of(url)}/manifest.json", (other / "manifest.json").read_bytes())
    with pytest.raises(CorruptionError, match="not the one that was committed"):
        open_cache(url)
    (problem,) = verify(url)
    assert problem.file == "manifest.json"


# ----------------------------------------------------------------------------------------- refusals


def quiet(error: pytest.ExceptionInfo) -> bool:
    """Whether nothing of the credentials is said, not even by what it was raised from."""
    chain, one = [], error.value
    while one is not None:
        chain.append(str(one))
        one = one.__cause__ or one.__context__
    return not any(
        SECRET in text or "Signature" in text.replace("SignatureDoesNotMatch", "") for text in chain
    )


def test_wrong_credentials(plain_place, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{SECRET}x")
    for call in (open_cache, verify, CachedDataset, lambda place: list(find_caches(place))):
        with pytest.raises(StorageError, match=r"s3://caches.*refuses.*AWS_ACCESS_KEY_ID") as error:
            call(plain_place)
        assert quiet(error)


def test_no_such_bucket(url):
    for call in (open_cache, verify, CachedDataset):
        with pytest.raises(UsageError, match=r"s3://not-there.*: there is no such bucket"):
            call("s3://not-there/x")


def test_no_such_cache(url):
    with pytest.raises(UsageError, match=r"no finished cache\. Build it first"):
        open_cache(url)
    with pytest.raises(UsageError, match=r"no manifest\.json, so this is no finished cache"):
        verify(url)


def test_no_server(url, hasty, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match="cannot be reached"):
        open_cache(url)


def test_a_server_that_does_not_answer(url, hasty, server):
    with server.frozen(), pytest.raises(StorageError, match="cannot be reached"):
        open_cache(url)


def test_a_busy_server(url, hasty, proxy):
    proxy.lose = lambda _: "503"
    with pytest.raises(StorageError, match="the server is busy"):
        open_cache(url)


def test_a_connection_that_breaks_is_made_again(plain_place, proxy):
    lost = []

    def lose(data):
        if b"c.2.0.0" in data and len(lost) < 2:
            lost.append(1)
            return ["answer", "request"][len(lost) - 1]
        return ""

    proxy.lose = lose
    cache = open_cache(plain_place)
    np.testing.assert_array_equal(cache.gather("image", [9]), [WRITTEN[9]["image"]])
    assert len(lost) == 2


def test_http_may_be_forbidden(url, monkeypatch):
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    with pytest.raises(StorageError, match="AWS_ALLOW_HTTP forbids"):
        open_cache(url)


@pytest.mark.parametrize(
    "wrong", ["ftp://caches/x", "s3://", "s3://a:b@caches/x", "s3://caches//x", "s3://caches/../x"]
)
def test_urls_that_are_none(wrong):
    for call in (open_cache, verify, CachedDataset):
        with pytest.raises(UsageError) as error:
            call(wrong)
        assert "a:b" not in str(error.value)


def test_without_obstore(url, monkeypatch):
    import sys

    from datacheck.errors import MissingDependencyError

    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'datacheck\[s3\]'"):
        open_cache(url)


def test_obstore_itself_would_refuse(url):
    """The control of `test_wrong_credentials`: what the library says does repeat what was sent."""
    store, prefix = opened("s3://not-there/x")
    with pytest.raises(FileNotFoundError, match=r"127\.0\.0\.1"):
        obstore.get(store, prefix)
