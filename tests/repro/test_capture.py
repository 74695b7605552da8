"""A capture says what a process is, the same twice, and names what was changed; secrets stay out."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import xxhash

from datacheck.cache.find import find_caches
from datacheck.cache.manifest import write_manifest
from datacheck.repro import capture as capture_here
from datacheck.repro import code as code_module
from datacheck.repro import hardware as native_module
from datacheck.repro import manifest
from datacheck.repro.captures import SECTIONS, differences
from datacheck.repro.code import InstalledPackages, code, installed
from datacheck.repro.process import masked, process

LIBRARY = Path(find_spec("_bisect").origin)  # a small one that has a build id, whatever compiled it
SAY = (
    "\nimport json, sys, datacheck.repro\njson.dump(datacheck.repro.capture(), open(sys.argv[1], "
    "'w'))\n"
)


@pytest.fixture
def captured(tmp_path, repository, forked_python):
    """Capture a process of its own that runs some lines first; the sections as they were written."""
    count = 0

    def captured(lines="", *, env=None, cwd=None, args=(), python=forked_python):
        nonlocal count
        count += 1
        script = tmp_path / "script" / "train.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(lines + SAY)
        out = tmp_path / f"{count}.json"
        kept = {
            k: v for k, v in os.environ.items() if k not in {"PYTHONHASHSEED", "OMP_NUM_THREADS"}
        }
        kept["PYTHONPATH"] = os.pathsep.join([str(repository), *(env or {}).pop("paths", [])])
        command = [python, str(script), str(out), *args]
        subprocess.run(
            command, cwd=cwd or tmp_path, env=kept | (env or {}), check=True, timeout=800
        )
        return json.loads(out.read_text())

    return captured


def names(a, b):
    return [(d.section, d.name) for d in differences(a, b)]


def test_two_processes_of_the_same_give_no_difference(captured, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    lines = "import torch, numpy\ntorch.manual_seed(0); numpy.random.seed(0)\n"
    a = captured(lines, cwd=tmp_path / "real", python=sys.executable)
    b = captured(lines, cwd=tmp_path / "link", python=sys.executable)
    assert tuple(a) == SECTIONS
    assert differences(a, b) == []
    assert a["process"]["cwd"] == b["process"]["cwd"] == str(tmp_path / "real")
    assert a["process"]["volatile"]["pid"] != b["process"]["volatile"]["pid"]


def install(folder, version, *, value=0):
    """Lay down a package as pip does: a module and its RECORD."""
    info = folder / f"planted-{version}.dist-info"
    info.mkdir(parents=True)
    module = folder / "planted.py"
    module.write_text(f"value = {value}\n")
    digest = urlsafe_b64encode(sha256(module.read_bytes()).digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(
        f"planted.py,sha256={digest},{module.stat().st_size}\n{info.name}/RECORD,,\n"
    )
    return str(folder)


def test_another_version_of_a_package_is_named(captured, tmp_path):
    old, new, changed = (
        install(tmp_path / v, v[:3], value=i) for i, v in enumerate(("1.0", "2.0", "1.0-changed"))
    )
    a, b, c = (
        captured("import planted\n", env={"paths": [place]}) for place in (old, new, changed)
    )
    assert names(a, b) == [("packages", "planted")]
    assert (a["packages"]["planted"]["version"], b["packages"]["planted"]["version"]) == (
        "1.0",
        "2.0",
    )
    assert names(a, c) == [("packages", "planted")]  # the same version of other files
    assert "planted.py" not in a["code"]


def test_a_package_that_nobody_imports_comes_last(captured, tmp_path):
    old, new = (install(tmp_path / v, v) for v in ("1.0", "2.0"))
    a = captured("", env={"paths": [old]})
    b = captured("", env={"paths": [new], "NCCL_ALGO": "Ring"})
    assert names(a, b) == [("flags", "$NCCL_ALGO"), ("packages", "planted")]


def test_the_library_that_is_loaded_is_named(captured, tmp_path):
    built = tmp_path / "_ext.so"
    shutil.copy(LIBRARY, built)
    with built.open("rb") as file:
        said = native_module.build_id(file)
    lines = f"import ctypes\nctypes.CDLL({str(built)!r})\n"
    a = captured(lines)
    data = built.read_bytes()
    planted = bytearray.fromhex(said)
    planted[0] ^= 255
    # A byte of the note, as another build has
    built.write_bytes(data.replace(bytes.fromhex(said), bytes(planted)))
    b = captured(lines)
    assert names(a, b) == [("native", "_ext.so")]
    assert a["native"]["_ext.so"] == {
        "digest": xxhash.xxh3_128_hexdigest(data),
        "build_id": said,
        "intact": None,
        "owner": None,
    }
    assert b["native"]["_ext.so"]["build_id"] == planted.hex()


def test_a_library_of_a_package_is_held_against_its_record(captured, tmp_path):
    folder = tmp_path / "site"
    info = folder / "pointnet2-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(LIBRARY, folder / "_pointnet2.so")
    digest = urlsafe_b64encode(sha256(LIBRARY.read_bytes()).digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(f"_pointnet2.so,sha256={digest},1\n")
    lines = f"import ctypes\nctypes.CDLL({str(folder / '_pointnet2.so')!r})\n"
    whole = captured(lines, env={"paths": [str(folder)]})["native"]["_pointnet2.so"]
    assert (whole["owner"], whole["intact"]) == ("pointnet2", True)
    with (folder / "_pointnet2.so").open("ab") as file:
        file.write(b"\0")
    assert (
        captured(lines, env={"paths": [str(folder)]})["native"]["_pointnet2.so"]["intact"] is False
    )


def test_a_library_that_was_replaced_after_it_was_loaded_is_told(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(
        f"7f0-7f1 r-xp 00000000 fe:00 1    {LIBRARY}\n"
        "7f2-7f3 r-xp 00000000 fe:00 2    /opt/my code/_ext.so (deleted)\n"
        "7f4-7f5 r--p 00000000 fe:00 3    /opt/data.so\n"
    )
    said = native_module.native(InstalledPackages(), str(maps))
    assert sorted(said) == sorted(["_ext.so", LIBRARY.name])
    assert said["_ext.so"] == {
        "missing": "the file was replaced or removed after it was loaded",
        "owner": None,
    }
    assert said[LIBRARY.name]["owner"] == "interpreter"


def test_another_number_of_threads_is_named(captured):
    lines = "import sys, torch\ntorch.set_num_threads(int(sys.argv[2]))\n"
    a, b = captured(lines, args=["1"]), captured(lines, args=["3"])
    assert [(d.section, d.name, d.a, d.b) for d in differences(a, b)] == [
        ("flags", "torch.get_num_threads", 1, 3)
    ]


def test_a_switch_and_a_variable_are_named(captured):
    lines = "import sys, torch\ntorch.backends.cudnn.benchmark = sys.argv[2] == 'yes'\n"
    a = captured(lines, args=["no"])
    b = captured(lines, args=["yes"], env={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    assert names(a, b) == [
        ("flags", "torch.backends.cudnn.benchmark"),
        ("flags", "$CUBLAS_WORKSPACE_CONFIG"),
    ]


def test_code_is_what_was_imported_and_nobody_installed(captured, tmp_path):
    place = tmp_path / "script"
    (place / "models").mkdir(parents=True)
    (place / "models/__init__.py").touch()
    (place / "models/dit.py").write_text("width = 1\n")
    (place / "unused.py").touch()
    a = captured("import models.dit, click\n")
    assert a["code"]["models/dit.py"] == xxhash.xxh3_128_hexdigest(b"width = 1\n")
    assert sorted(a["code"]) == ["models/__init__.py", "models/dit.py", "train.py"]
    (place / "models/dit.py").write_text("width = 2\n")
    assert names(a, captured("import models.dit, click\n")) == [("code", "models/dit.py")]


def git(folder, *words):
    named = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *named, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def test_the_state_of_the_repository(captured, tmp_path):
    script = tmp_path / "script"
    assert captured()["git"] == {"missing": "the script lies in no git repository"}
    (script / "notes").write_text("one\n")
    git(script, "init", "-q")
    git(script, "add", ".")
    git(script, "commit", "-qm", "first")
    clean = captured()
    commit = git(script, "rev-parse", "HEAD").strip()
    assert clean["git"] == {"commit": commit, "dirty": False, "diff": None, "submodules": {}}
    (script / "out").write_text("a result: git does not track it\n")
    assert differences(clean, captured()) == []
    (script / "notes").write_text("two\n")
    dirty = captured()
    assert names(clean, dirty) == [("git", "diff"), ("git", "dirty")]
    (script / "notes").write_text("three\n")
    assert names(dirty, captured()) == [("git", "diff")]
    assert captured(env={"PATH": "/nowhere"})["git"] == {"missing": "git is not installed"}


SECRETS = {
    "HF_TOKEN": "hush-1",
    "NCCL_API_KEY": "hush-2",
    "CUDA_SECRET": "hush-3",
    "TORCH_PASSWORD": "hush-4",
    "HDF5_PLUGIN": "https://me:hush-5@host/x",
    "OMP_ODD": "ghp_hush6hush6hush6",
    "PL_X": "AKIAhush7HUSH7HUSH7",
}


def test_secrets_are_left_out(captured):
    plain = {"TOKENIZERS_PARALLELISM": "false", "NCCL_ALGO": "Ring", "UNRELATED": "hush-8"}
    args = [
        "--api-key=hush-9",
        "--token",
        "hush-10",
        "--url",
        "s3://me:hush-11@host/bucket",
        "--lr",
        "0.1",
    ]
    said = captured(env=SECRETS | plain, args=args)
    assert "hush" not in json.dumps(said).lower()
    assert said["process"]["env"]["TOKENIZERS_PARALLELISM"] == "false"
    assert said["process"]["env"]["NCCL_ALGO"] == "Ring"
    assert set(SECRETS) <= set(said["process"]["dropped"])
    assert said["process"]["argv"][2:] == [
        "--api-key=***",
        "--token",
        "***",
        "--url",
        "***",
        "--lr",
        "0.1",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config", '{"lr": 1, "password": "hush"}'], ["--config", "***"]),
        (['--config={"password": "hu=sh"}'], ["--config=***"]),
        (["logger={api_key:hush}"], ["logger=***"]),
        (["--tokens", "hush", "hush2", "--lr", "1"], ["--tokens", "***", "***", "--lr", "1"]),
        (["--token", "-hush", "-n", "4"], ["--token", "***", "-n", "4"]),
        (["--token", "hush", "lr=0.1", "out"], ["--token", "***", "lr=0.1", "***"]),
        (["--pass", "hush"], ["--pass", "***"]),
        (["db=postgres://u:hu/sh@h"], ["db=***"]),
        (["redis://:hu/sh@h"], ["***"]),
        (["trainer.hubToken=hush", "+auth.user=hush"], ["trainer.hubToken=***", "+auth.user=***"]),
        (["--max-tokens", "512", "--tokenizer=gpt2", "obs_key=image"], None),
        (
            ["--data", "https://host:80/x", "s3://bucket/a:b", "--author", "me", "--pass-through"],
            None,
        ),
    ],
)
def test_a_command_line_shows_settings_and_no_secrets(words, said):
    assert masked(words) == (words if said is None else said)


def test_what_cannot_be_had_says_why(monkeypatch):
    def broken(*_):
        msg = "no luck\nat all"
        raise RuntimeError(msg)

    monkeypatch.setattr("datacheck.repro.captures.native", broken)
    monkeypatch.setattr("datacheck.repro.captures.process", broken)
    said = capture_here(data=["/nowhere/at/all"])
    assert said["native"] == {"missing": "RuntimeError: no luck"}
    assert said["process"]["missing"] == "RuntimeError: no luck"
    assert "no such file" in said["data"]["all"]["missing"]
    assert said["hardware"]["cpus"] == os.cpu_count()
    monkeypatch.undo()
    other = capture_here()
    assert ("native", "native") in names(said, other)


def test_a_capture_changes_nothing_and_loads_nothing(captured):
    lines = """
import random, sys
import numpy
import datacheck.repro
before = random.getstate(), str(numpy.random.get_state()), dict(__import__("os").environ)
datacheck.repro.capture()
assert before == (random.getstate(), str(numpy.random.get_state()), dict(__import__("os").environ))
assert not {"torch", "zarr", "dask", "yaml", "pydantic"} & set(sys.modules)
"""
    assert captured(lines, python=sys.executable)["torch"] == {"missing": "PyTorch is not loaded"}


def test_random_states_count_where_they_were_seeded(captured):
    seeded = "import torch, numpy\ntorch.manual_seed({0}); numpy.random.seed({0})\n"
    unseeded = captured("import torch\n")
    assert [unseeded["rng"][name]["seeded"] for name in ("random", "numpy", "torch")] == [
        None,
        False,
        False,
    ]
    a, b = captured(seeded.format(1)), captured(seeded.format(2))
    assert names(a, b) == [("code", "train.py"), ("rng", "numpy"), ("rng", "torch")]
    assert ("rng", "torch") not in names(a, unseeded)


def test_installed_packages_with_their_twins(monkeypatch, tmp_path):
    first, second = (
        install(tmp_path / name, version) for name, version in (("a", "1.0"), ("b", "0.9"))
    )
    (tmp_path / "a/planted-1.0.dist-info/direct_url.json").write_text(
        '{"dir_info": {"editable": true}}'
    )
    (tmp_path / "b/old.egg-info").mkdir()
    (tmp_path / "b/old.egg-info/PKG-INFO").write_text(
        "Metadata-Version: 2.1\nName: Old_Name\nVersion: 3\n"
    )
    monkeypatch.setattr(sys, "path", [first, second])
    found = installed()
    assert found.packages["planted"]["version"] == "1.0"
    assert found.packages["planted"]["shadowed"] == ["0.9"]
    assert found.packages["planted"]["editable"] is True
    assert found.packages["old-name"] == {"version": "3", "record": None}
    assert found.owner(str(tmp_path / "a/planted.py")).package == "planted"


def test_what_is_installed_is_read_again_where_it_changed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "1.0")
    info, egg = tmp_path / "planted-1.0.dist-info", tmp_path / "old.egg-info"
    egg.write_text("Metadata-Version: 1.0\nName: old\nVersion: 1.0\n")
    before = installed().packages
    assert "editable" not in before["planted"]
    before["planted"]["loaded"] = "by who has it"  # the next one gets its own
    (info / "RECORD").write_text(f"planted.py,sha256={'A' * 43},5\n")
    (info / "direct_url.json").write_text('{"dir_info": {"editable": true}}')
    egg.write_text("Metadata-Version: 1.0\nName: old\nVersion: 2.0\n")
    after = installed().packages
    assert after["planted"]["record"] != before["planted"]["record"]
    assert after["planted"]["editable"] is True
    assert "loaded" not in after["planted"]
    assert (before["old"]["version"], after["old"]["version"]) == ("1.0", "2.0")
    (info / "RECORD").unlink()
    assert installed().packages["planted"]["record"] is None


def test_a_module_that_is_gone_is_no_longer_loaded(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "1.0")
    module = ModuleType("planted")
    module.__file__ = str(tmp_path / "planted.py")
    monkeypatch.setitem(sys.modules, "planted", module)
    assert installed().packages["planted"]["loaded"] is True
    monkeypatch.delitem(sys.modules, "planted")
    assert "loaded" not in installed().packages["planted"]


def test_where_a_package_is_installed_does_not_count(monkeypatch, tmp_path):
    records = []
    for name in ("a", "b"):
        place = Path(install(tmp_path / name, "1.0"))
        with (place / "planted-1.0.dist-info/RECORD").open(
            "a"
        ) as file:  # a command names its interpreter
            digest = urlsafe_b64encode(sha256(name.encode()).digest()).rstrip(b"=").decode()
            file.write(
                f"../../../bin/planted,sha256={digest},20\n__pycache__/planted.cpython-311.pyc,,\n"
            )
        monkeypatch.setattr(sys, "path", [str(place)])
        records.append(installed().packages["planted"]["record"])
    assert records[0] == records[1] is not None


def test_a_manifest_of_a_cache_says_nothing_about_other_files_beside_it(tmp_path, repository):
    with tarfile.open(repository / "tests/golden/1-plain.tar.xz") as archive:
        archive.extractall(tmp_path / "cache", filter="data")
    cache = next(iter(find_caches(tmp_path / "cache")))
    alone, data = tmp_path / "alone", tmp_path / "data"
    alone.mkdir()
    write_manifest(alone, {}, "0" * 32)
    data.mkdir()
    shutil.copy(cache / "manifest.json", data)

    def digests():
        said = capture_here(data=[cache, alone, data])["data"]
        return [(entry["kind"], entry["digest"]) for entry in said.values()]

    for folder in (alone, data):
        (folder / "0.npy").write_bytes(bytes(100))
    before = digests()
    assert [kind for kind, _ in before] == ["cache", "folder", "folder"]
    for folder in (alone, data, cache):
        (folder / "0.npy").write_bytes(b"\1" * 100)
    after = digests()
    assert [kind for kind, _ in after] == ["folder"] * 3
    assert not {*before} & {*after}


def test_data_are_told_by_their_digests(tmp_path, repository, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tarfile.open(repository / "tests/golden/1-plain.tar.xz") as archive:
        archive.extractall(tmp_path / "cache", filter="data")
    cache = next(iter(find_caches(tmp_path / "cache")))
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.npy").write_bytes(bytes([i]) * 100)
    manifest.write(manifest.make(folder), tmp_path / "before.json")
    places = [cache, folder, folder / "0.npy", tmp_path / "before.json"]
    a = capture_here(data=places)["data"]
    assert (
        a[cache.name]["content_root"]
        == json.loads((cache / "manifest.json").read_text())["content_root"]
    )
    assert [said["kind"] for said in a.values()] == ["cache", "folder", "file", "manifest"]
    assert a["data"]["digest"] == a["before.json"]["digest"] == manifest.make(folder).root
    (folder / "1.npy").write_bytes(bytes([1]) * 99 + b"\2")
    b = capture_here(data=places)
    assert names({"data": a}, {"data": b["data"]}) == [("data", "data")]
    (folder / "1.npy").write_bytes(bytes([1]) * 100)
    assert capture_here(data=places)["data"] == a


def test_data_of_one_name_are_all_told(tmp_path):
    places = [tmp_path / path / "data" for path in ("a/x", "b/x", "c/x", "c/none")]
    for i, place in enumerate(places):
        place.mkdir(parents=True)
        (place / "0.npy").write_bytes(bytes([i]))
    said = capture_here(data=[*places, places[0]])["data"]
    assert list(said) == ["data", "x/data", "c/x/data", "none/data"]
    assert [one["digest"] for one in said.values()] == [
        manifest.make(place).root for place in places
    ]


def of_data(**digests):
    return {
        "data": {name: {"kind": "folder", "digest": digest} for name, digest in digests.items()}
    }


def test_data_under_another_name_are_found_by_their_digest():
    assert differences(of_data(v1="0", more="1"), of_data(v2="0", more="1")) == []
    assert names(of_data(v1="0"), of_data(v2="2")) == [("data", "v1 in A, v2 in B")]
    assert names(of_data(v1="0", old="1"), of_data(v2="0", more="3")) == [
        ("data", "old in A, more in B")
    ]
    assert names(of_data(v1="0"), of_data()) == [("data", "v1")]
    assert names(of_data(v1="0", v2="0"), of_data(v3="0")) == [("data", "v2")]
    cache = {"data": {"x": {"kind": "cache", "digest": "0", "content_root": "1"}}}
    assert names(cache, of_data(x="0")) == [("data", "x")]


@pytest.mark.parametrize("name", ["none", "threads", "started", "missing"])
def test_nothing_is_overlooked_for_its_name(name):
    for section in ("packages", "data", "native"):
        one, other = ({section: {name: {"digest": digest, "loaded": True}}} for digest in "01")
        assert names(one, other) == [(section, name)]


def test_which_gpu_was_given_does_not_count_but_how_many(captured):
    def given(**env):
        return {"process": {"env": env}}

    assert names(given(CUDA_VISIBLE_DEVICES="0"), given(CUDA_VISIBLE_DEVICES="3")) == []
    assert names(given(), given(CUDA_VISIBLE_DEVICES="3")) == []
    assert names(given(CUDA_VISIBLE_DEVICES="0"), given(CUDA_VISIBLE_DEVICES="0,1")) != []
    assert names(given(), given(CUDA_VISIBLE_DEVICES="")) == [("flags", "$CUDA_VISIBLE_DEVICES")]
    assert names(given(CUDA_VISIBLE_DEVICES="1,-1,2"), given(CUDA_VISIBLE_DEVICES="-1")) != []
    env = {
        "NVIDIA_VISIBLE_DEVICES": "GPU-1",
        "CUDA_MPS_PIPE_DIRECTORY": "/one",
        "CUDA_MPS_LOG_DIRECTORY": "/two",
    }
    assert not set(captured(env=env)["process"]["env"]) & set(env)


def test_a_damaged_library_loses_no_other(tmp_path):
    head = bytearray(LIBRARY.read_bytes()[:64])
    head[32:40] = b"\xff" * 8  # the table of its parts begins beyond what a file can have
    broken = tmp_path / "broken.so"
    broken.write_bytes(head)
    maps = tmp_path / "maps"
    maps.write_text(f"7f0-7f1 r-xp 0 fe:00 1    {LIBRARY}\n7f2-7f3 r-xp 0 fe:00 2    {broken}\n")
    said = native_module.native(InstalledPackages(), str(maps))
    assert said["broken.so"]["digest"] == xxhash.xxh3_128_hexdigest(head)
    assert said["broken.so"]["build_id"] is None
    assert said[LIBRARY.name]["build_id"]


def test_libraries_of_one_name_are_all_told(tmp_path):
    paths = [tmp_path / path / "build/_ext.so" for path in "abc"]
    for i, path in enumerate(paths):
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes([i]))
    maps = tmp_path / "maps"
    maps.write_text("".join(f"7f0-7f1 r-xp 0 fe:00 1    {path}\n" for path in paths))
    said = native_module.native(InstalledPackages(), str(maps))
    assert sorted(said) == ["_ext.so", "build/_ext.so", "c/build/_ext.so"]
    assert {one["digest"] for one in said.values()} == {
        xxhash.xxh3_128_hexdigest(bytes([i])) for i in range(3)
    }


def test_code_of_one_name_is_all_told(monkeypatch, tmp_path):
    for i, folder in enumerate("abc"):
        path = tmp_path / folder / "lib/planted_twin.py"
        path.parent.mkdir(parents=True)
        path.write_text(f"x = {i}\n")
        module = ModuleType(f"planted_{i}")
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    said = {
        name: digest
        for name, digest in code(InstalledPackages()).items()
        if name.endswith("planted_twin.py")
    }
    assert said == {
        name: xxhash.xxh3_128_hexdigest(f"x = {i}\n".encode())
        for i, name in enumerate(
            ("planted_twin.py", "lib/planted_twin.py", "c/lib/planted_twin.py")
        )
    }


def test_the_script_is_told_whatever_it_is_called_and_that_a_notebook_is_not_known(
    monkeypatch, tmp_path
):
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert code(InstalledPackages())["__main__"] == "missing"
    main.__file__ = str(tmp_path / "train")
    Path(main.__file__).write_text("x = 1\n")
    said = code(InstalledPackages())
    assert said["train"] == xxhash.xxh3_128_hexdigest(b"x = 1\n")
    assert "__main__" not in said


@pytest.mark.parametrize(
    "name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ROCBLAS_LAYER", "HIPBLASLT_TUNING"]
)
def test_variables_of_libraries_that_compute_are_kept(monkeypatch, name):
    monkeypatch.setenv(name, "AVX2")
    assert process()["env"][name] == "AVX2"


# --------------------------------------------------------------------------------- without a script


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository in the working folder, where no script runs."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(code_module, "_apart", lambda _: False)
    git(here, "init", "-q")
    (here / "a.txt").write_text("one\n")
    git(here, "add", ".")
    git(here, "commit", "-qm", "first")
    return here


def test_what_git_says_of_a_file_outside_is_not_passed_on(checkout, tmp_path):
    (tmp_path / "outside").write_text("SECRET password=hunter2\n")
    for ref in (checkout / ".git/refs/heads").iterdir():
        ref.unlink()
    (checkout / ".git/packed-refs").symlink_to(tmp_path / "outside")
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert "hunter2" in asked.stderr
    assert code_module.git() == {"missing": "git fails here; git status says why"}


def test_a_repository_without_a_commit_is_said(checkout):
    shutil.rmtree(checkout / ".git")
    git(checkout, "init", "-q")
    assert code_module.git() == {"missing": "the repository has no commit"}


def test_settings_that_change_while_git_is_asked_start_nothing(checkout, tmp_path, monkeypatch):
    (checkout / ".gitattributes").write_text("* filter=evil\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "second")
    (checkout / "a.txt").write_text("two\n")
    ran = tmp_path / "ran"
    real, asked = code_module._git_chunks, []

    def changed(folder, words, environment):
        if asked:  # each but the first question meets the filter
            git(checkout, "config", "filter.evil.clean", f"touch {ran}; cat")
        asked.append(words)
        return real(folder, words, environment)

    monkeypatch.setattr(code_module, "_git_chunks", changed)
    said = code_module.git()
    assert (said["dirty"], len(asked) > 3) == (True, True)
    assert not ran.exists()
    git(checkout, "diff", "--stat")  # the control
    assert ran.exists()


def test_no_file_outside_counts_as_one_of_the_repository(checkout, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    git(checkout, "config", "core.worktree", str(outside))
    found = []
    for text in ("one\n", "secret\n"):
        (outside / "a.txt").write_text(text)
        found.append(code_module.git())
    assert found[0] == found[1]
    assert found[0]["dirty"] is False


@pytest.mark.parametrize("kind", ["subfolder", "worktree", "sha256", "crlf", "split index"])
def test_repositories_of_all_kinds_are_seen_as_git_sees_them(checkout, tmp_path, monkeypatch, kind):
    place = checkout
    if kind == "sha256":
        place = tmp_path / "long"
        place.mkdir()
        git(place, "init", "-q", "--object-format=sha256")
        (place / "a.txt").write_text("one\n")
        git(place, "add", ".")
        git(place, "commit", "-qm", "first")
    if kind == "worktree":
        git(checkout, "worktree", "add", "-q", str(tmp_path / "second"))
        place = tmp_path / "second"
    if kind == "crlf":
        git(place, "config", "core.autocrlf", "true")
        (place / "a.txt").write_bytes(b"one\r\n")
    if kind == "split index":
        git(place, "update-index", "--split-index")
    if kind == "subfolder":
        (place / "deep").mkdir()
        monkeypatch.chdir(place / "deep")
    else:
        monkeypatch.chdir(place)
    commit = git(place, "rev-parse", "HEAD").strip()
    assert code_module.git() == {"commit": commit, "dirty": False, "diff": None, "submodules": {}}
    (place / "a.txt").write_text("two\n")
    diff = subprocess.run(
        ["git", "diff", "--binary", "HEAD"], cwd=place, check=True, capture_output=True
    ).stdout
    assert code_module.git()["diff"] == xxhash.xxh3_128_hexdigest(diff)
