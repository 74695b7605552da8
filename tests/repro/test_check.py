"""Risks are facts: judged by version, switch and profile, shown by probes, mended by the lines that are printed."""

import importlib.util
import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest

from datacheck.cli.repro_capture import _summary_lines
from datacheck.errors import UsageError
from datacheck.plugins import resolve
from datacheck.repro.checks import PROFILES
from datacheck.repro.inner import ImportHook
from datacheck.repro.risks import judge

COMMAND = "import sys; from datacheck.cli.main import main; sys.executable = {!r}; main()"

SEED = {  # the run of seed 000: PyTorch 2.0.1, CUDA 11.7, Lightning's benchmark=True, a PointNet2 built by hand
    "process": {"hash_seed": "random", "env": {}},
    "packages": {"torch": {"version": "2.0.1", "record": "a", "loaded": True}},
    "native": {
        "pointnet2_ops/_ext.cpython-39-x86_64-linux-gnu.so": {
            "digest": "5f" * 16,
            "build_id": None,
            "owner": None,
            "intact": None,
        }
    },
    "code": {"train_lightning.py": "1" * 32, "models/backbone/pointnet2.py": "2" * 32},
    "git": {"commit": "c" * 40, "dirty": False, "diff": None, "submodules": {}},
    "gpu": {
        "devices": [{"name": "NVIDIA GeForce RTX 4090"}],
        "cuda": "11.7",
        "hip": None,
        "started": True,
    },
    "torch": {
        "version": "2.0.1",
        "get_num_threads": 16,
        "are_deterministic_algorithms_enabled": False,
        "is_deterministic_algorithms_warn_only_enabled": False,
        "backends.cudnn.benchmark": True,
        "backends.cudnn.deterministic": False,
        "backends.cudnn.allow_tf32": True,
        "backends.cuda.matmul.allow_tf32": False,
        "backends.cuda.flash_sdp_enabled": True,
        "backends.cuda.mem_efficient_sdp_enabled": True,
        "flush_denormal": False,
        "backends.cuda.matmul.allow_fp16_reduced_precision_reduction": True,
    },
    "rng": {name: {"digest": "0", "seeded": True} for name in ("random", "numpy", "torch", "cuda")},
}
RAN = {"ran": True, "seeded": {"random": True, "numpy": True}}


def changed(**sections):
    said = deepcopy(SEED)
    for name, values in sections.items():
        said[name] |= values
    return said


def risks(capture, profile="same-machine", seen=RAN):
    return {row.name for row in judge(capture, profile, seen) if row.state == "risk"}


def row(capture, name, profile="same-machine", seen=RAN):
    return next(row for row in judge(capture, profile, seen) if row.name == name)


def test_the_seed_run_is_explained():
    assert risks(SEED) == {
        "PYTHONHASHSEED",
        "deterministic algorithms",
        "cudnn.benchmark",
        "cudnn.deterministic",
        "attention (SDPA)",
        "CUBLAS_WORKSPACE_CONFIG",
        "pointnet2_ops",
    }
    assert risks(SEED, "fast") == {"PYTHONHASHSEED"}
    more = {"threads", "TF32", "allow_fp16_reduced_precision_reduction"}
    assert risks(SEED, "strict") == risks(SEED) | more


PINNED = {
    "process": {
        "hash_seed": "0",
        "env": {"OMP_NUM_THREADS": "16", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
    },
    "torch": {
        "are_deterministic_algorithms_enabled": True,
        "backends.cudnn.benchmark": False,
        "backends.cudnn.allow_tf32": False,
        "backends.cuda.matmul.allow_fp16_reduced_precision_reduction": False,
    },
}


def test_a_pinned_run_has_no_risk_but_what_no_switch_reaches():
    assert risks(changed(**PINNED), "strict") == {"pointnet2_ops"}
    alone = changed(**PINNED)
    alone[
        "native"
    ] = {}  # models/backbone/pointnet2.py is the user's own model, and no such package
    for profile in PROFILES:
        assert risks(alone, profile) == set()


@pytest.mark.parametrize(
    ("version", "cuda", "needed"),
    [
        ("1.13.1+cu116", "11.6", True),
        ("2.0.1", "11.7", True),
        ("2.9.1+cu128", "12.8", True),
        ("2.10.0+cu128", "12.8", False),
        ("2.13.0", "13.0", False),
        ("2.0.1", "10.1", False),
        ("2.0.1", None, False),
    ],
)
def test_which_version_needs_a_workspace(version, cuda, needed):
    said = changed(
        torch={"version": version, "are_deterministic_algorithms_enabled": True},
        gpu={"cuda": cuda, "hip": "6"},
    )
    assert ("CUBLAS_WORKSPACE_CONFIG" in risks(said)) is needed
    if needed:
        assert "raises in the first matrix product" in row(said, "CUBLAS_WORKSPACE_CONFIG").why


@pytest.mark.parametrize("value", [":4096:8", ":16:8"])
def test_a_workspace_that_comes_too_late_is_a_risk(value):
    said = changed(process={"env": {"CUBLAS_WORKSPACE_CONFIG": value}})
    assert "CUBLAS_WORKSPACE_CONFIG" not in risks(said)
    found = row(said, "CUBLAS_WORKSPACE_CONFIG", seen=RAN | {"workspace_late": True})
    assert (found.state, found.value) == ("risk", f"{value}, too late")
    assert "CUBLAS_WORKSPACE_CONFIG" in risks(
        changed(process={"env": {"CUBLAS_WORKSPACE_CONFIG": ":1024:2"}})
    )


def test_warnings_do_not_pin():
    torch = {
        "are_deterministic_algorithms_enabled": True,
        "is_deterministic_algorithms_warn_only_enabled": True,
    }
    found = row(changed(torch=torch), "deterministic algorithms")
    assert (found.state, found.value) == ("risk", "on, warn_only")
    assert "attention (SDPA)" in risks(changed(torch=torch))
    assert "cudnn.deterministic" not in risks(changed(torch=torch))


def test_a_hash_seed_that_is_set_by_the_script_does_nothing(check, tmp_path):
    write(tmp_path, "import os\nos.environ['PYTHONHASHSEED'] = '0'\n")
    _, out, _ = check("check", "--", "train.py")
    assert "risk    PYTHONHASHSEED = random, set when Python had started" in out
    _, out, _ = check("check", "--", "train.py", env={"PYTHONHASHSEED": "7"})
    assert "PYTHONHASHSEED = 7" in next(line for line in out.splitlines() if line.startswith("ok "))


def test_ranks_are_told_in_the_strict_profile():
    said = changed(torch={"distributed": {"backend": "nccl", "world_size": 8}})
    assert "NCCL_ALGO" in risks(said, "strict") - risks(said)
    assert "NCCL_ALGO" not in risks(said | {"process": {"env": {"NCCL_ALGO": "Ring"}}}, "strict")


def test_one_thread_and_no_gpu_need_no_switch():
    said = changed(torch={"get_num_threads": 1}, gpu={"devices": []})
    assert "deterministic algorithms" not in risks(said)
    assert "deterministic algorithms" in risks(
        changed(torch={"get_num_threads": 2}, gpu={"devices": []})
    )
    assert "pointnet2_ops" not in risks(said)


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("pointnet2_cuda.cpython-38-x86_64-linux-gnu.so", "pointnet2_ops"),
        ("torch_scatter/_scatter_cuda.so", "torch_scatter"),
        ("MinkowskiEngineBackend/_C.so", "MinkowskiEngine"),
        ("torchsparse/backend.so", "torchsparse"),
        ("spconv/core_cc.so", "spconv"),
        ("nvdiffrast_plugin.so", "nvdiffrast"),
        ("flash_attn_2_cuda.so", "flash_attn"),
        ("xformers/_C_flashattention.so", "xformers"),
        ("pytorch3d/_C.so", "pytorch3d"),
    ],
)
def test_a_risky_package_is_known_by_its_library(library, name):
    said = deepcopy(SEED)
    said["native"] = {
        library: {"digest": "1" * 32, "build_id": None, "owner": None, "intact": None}
    }
    assert name in risks(said)
    by_package = deepcopy(SEED) | {"native": {}}
    assert name not in risks(by_package)
    by_package["packages"][name.lower().replace("_", "-")] = {
        "version": "1",
        "record": None,
        "loaded": True,
    }
    assert name in risks(by_package)


def test_an_install_that_is_not_what_was_recorded():
    said = changed(
        native={
            "torch/lib/libtorch_cpu.so": {
                "digest": "1" * 32,
                "build_id": None,
                "owner": "torch",
                "intact": False,
            }
        }
    )
    assert "torch/lib/libtorch_cpu.so" in risks(said, "fast")
    said["packages"]["torch"]["shadowed"] = ["1.13.1"]
    assert row(said, "torch").value == "2.0.1 hides 1.13.1"


def test_what_could_not_be_looked_at_is_not_passed():
    said = {name: {"missing": "no luck"} for name in SEED}
    states = {row.name: row.state for row in judge(said, "strict")}
    assert states["PyTorch"] == "unknown"
    assert {row.state for row in judge(SEED, "strict", {}) if row.name.startswith("seed of")} == {
        "ok"
    }
    unseeded = changed(rng={"random": {"digest": "0", "seeded": None}})
    # No script was run: nothing to be judged
    assert row(unseeded, "seed of random", seen={}).state == "note"
    with pytest.raises(UsageError, match="there are fast, same-machine, strict"):
        judge(SEED, "paranoid")


# ------------------------------------------------------------------------------------- real scripts

SCRIPT = """
import sys
import torch
print("arguments", sys.argv[1:], __name__)

class Points(torch.utils.data.Dataset):
    epoch = 0
    def set_epoch(self, epoch): self.epoch = epoch
    def __len__(self): return 12
    def __getitem__(self, i): return torch.full((3,), float(i)) {noise}

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Points(), batch_size=4, num_workers=1, persistent_workers={persistent})
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for batch in loader:
            model(batch).sum().backward()
            optimizer.step()
            print("stepped", flush=True)
    print("trained")
"""


@pytest.fixture
def check(tmp_path, repository, forked_python):
    """Run `datacheck repro`; returns (exit code, standard output, standard error)."""

    def check(*words, env=None, python=forked_python):
        kept = {
            k: v
            for k, v in os.environ.items()
            if k not in {"PYTHONHASHSEED", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
        }
        kept |= {"PYTHONPATH": str(repository)} | (env or {})
        run = subprocess.run(
            [forked_python, "-c", COMMAND.format(python), "repro", *map(str, words)],
            cwd=tmp_path,
            env=kept,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        return run.returncode, run.stdout, run.stderr

    return check


def write(tmp_path, text):
    (tmp_path / "train.py").write_text(text)


def test_a_script_is_run_to_its_first_step_and_judged(check, tmp_path):
    write(tmp_path, SCRIPT.format(noise="+ torch.rand(3)", persistent=True))
    code, out, err = check("check", "--", "train.py", "--lr", "3", python=sys.executable)
    assert code == 1, err
    assert "arguments ['--lr', '3'] __main__" in out
    assert "stepped" not in out
    assert "judged after 1 step of an optimizer" in out
    assert "seed of torch = not seeded" in out
    assert "of 4 samples differ between 1 and 2 workers" in out
    assert "epoch of loader 1 = 1 here, 0 in workers" in out


def test_what_could_not_be_told_is_no_success(check, tmp_path):
    write(tmp_path, "import random, numpy\nrandom.seed(1)\nnumpy.random.seed(1)\n")
    code, out, err = check(
        "check", "--profile", "fast", "--", "train.py", env={"PYTHONHASHSEED": "0"}
    )
    assert "unknown PyTorch = not loaded" in out, err
    assert "no risk seen, " in out
    assert code == 2


def test_probes_that_end_the_process_are_not_passed(check, tmp_path):
    text = SCRIPT.format(noise="", persistent=False).replace(
        "model =", "torch.randn = die\n    model ="
    )
    write(tmp_path, "def die(*_, **__):\n    import os\n    os.kill(os.getpid(), 9)\n" + text)
    _, out, err = check("check", "--format", "json", "--", "train.py")
    (found,) = (row for row in json.loads(out)["rows"] if row["name"] == "probes")
    assert (found["state"], found["value"]) == ("unknown", "ended with signal 9"), err
    _, out, _ = check("check", "--no-probe", "--format", "json", "--", "train.py")
    assert not any(row["name"] == "probes" for row in json.loads(out)["rows"])


def test_who_only_asks_for_torch_does_not_blind_the_watch(check, tmp_path):
    asked = (
        "import importlib.util\nassert importlib.util.find_spec('torch')\n"  # as transformers does
    )
    write(tmp_path, asked + SCRIPT.format(noise="", persistent=False))
    code, out, err = check("check", "--no-probe", "--", "train.py")
    assert code == 1, err
    assert "judged after 1 step of an optimizer" in out
    assert "stepped" not in out


def test_a_module_is_told_once_when_it_is_imported_however_often_it_was_looked_for(
    tmp_path, monkeypatch
):
    (tmp_path / "planted_module.py").write_text("VALUE = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    told = []
    finder = ImportHook("planted_module", told.append)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "planted_module", raising=False)
    assert all(importlib.util.find_spec("planted_module") for _ in range(2))
    assert (told, sys.meta_path[0]) == ([], finder)
    module = resolve("planted_module")
    assert [one.VALUE for one in told] == [7]
    assert told[0] is module
    assert finder not in sys.meta_path


def test_the_printed_lines_pin_the_script(check, tmp_path):
    text = SCRIPT.format(noise="", persistent=False)
    write(tmp_path, text)
    code, out, err = check("check", "--print-fix", "--", "train.py")
    assert code == 1, err
    lines = [line for line in out.splitlines() if line and not line.startswith("#")]
    exports = dict(
        line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export ")
    )
    write(
        tmp_path, "\n".join(line for line in lines if not line.startswith("export ")) + "\n" + text
    )
    code, out, err = check("check", "--", "train.py", env=exports)
    assert code == 0, (out, err)
    assert "\npinned," in out


def test_json_holds_rows_and_capture_and_nothing_else_is_on_the_output(check, tmp_path):
    write(
        tmp_path,
        "import random, numpy\nrandom.seed(1)\n"
        "numpy.random.default_rng(1)\nnumpy.random.default_rng()\nprint('noise')\n",
    )
    code, out, err = check("check", "--format", "json", "--profile", "fast", "--", "train.py")
    said = json.loads(out)
    assert (code, said["profile"], said["seen"]["stopped"]) == (1, "fast", "at its end")
    assert "noise" in err
    states = {row["name"]: row["state"] for row in said["rows"]}
    assert (states["seed of random"], states["seed of numpy"], states["PyTorch"]) == (
        "ok",
        "risk",
        "unknown",
    )
    assert [row["value"] for row in said["rows"] if row["name"] == "default_rng()"] == [
        "without a seed, train.py:4"
    ]
    assert said["capture"]["torch"] == {"missing": "PyTorch is not loaded"}
    assert "OPENBLAS_NUM_THREADS" not in said["capture"]["process"]["env"]
    assert sorted(said["capture"]["code"]) == ["train.py"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise ValueError('of the script')", "the script ended with exit code 1"),
        ("import sys; sys.exit(3)", "the script ended with exit code 3"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "the process ended with signal 9",
        ),
    ],
)
def test_a_script_that_fails_could_not_be_looked_at(check, tmp_path, text, said):
    write(tmp_path, text)
    code, _, err = check("check", "--no-probe", "--", "train.py")
    assert (code, said in err) == (2, True), err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "other.py"], "other.py: no such script"),
        (["--", "-m"], "-m: which module?"),
        (["--loader", "a:b", "--", "train.py"], "--loader goes without a script"),
    ],
)
def test_a_wrong_request_is_one_message(check, tmp_path, words, said):
    write(tmp_path, "")
    code, _, err = check("check", *words)
    assert (code, said in err, err.count("\n")) == (2, True, 1), err


def test_a_script_that_never_steps_is_stopped(check, tmp_path):
    write(tmp_path, "import time\ntry:\n    time.sleep(200)\nfinally:\n    print('went on')\n")
    code, out, err = check("check", "--seconds", "1", "--", "train.py")
    assert code == 1, err
    assert "judged after 1 s" in out
    assert "went on" not in out


def test_modules_and_interpreters_are_taken_as_python_takes_them(check, tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/__init__.py").touch()
    (tmp_path / "pkg/train.py").write_text(
        "import sys\nprint(sys.argv[1:], sys.flags.optimize, __name__)\n"
    )
    code, out, err = check("check", "--", sys.executable, "-O", "-m", "pkg.train", "--x")
    assert code == 1, err
    assert "['--x'] 1 __main__" in out


def test_without_a_script_the_environment_is_judged(check, tmp_path):
    (tmp_path / "mine.py").write_text(
        SCRIPT.format(noise="", persistent=False).replace(
            "if __name__",
            "def make():\n    return torch.utils.data.DataLoader(Points(), num_workers=2)\nif "
            "__name__",
        )
    )
    code, out, err = check("check", "--loader", "mine:make")
    assert code == 1, err
    assert "judged before any script" in out
    assert "PYTHONHASHSEED = random" in out
    assert "seed of torch = no script was run" in out
    assert "loader 1 = 0 of 4 samples differ between 1 and 2 workers" in out


def test_capture_writes_json(check, tmp_path):
    code, out, err = check("capture", "-o", "env.json", "--data", "train.py")
    assert code == 0, err
    assert "compiled libraries" in out
    assert "not captured: git: the script lies in no git repository" in out
    said = json.loads((tmp_path / "env.json").read_text())
    assert said["torch"]["get_num_threads"] >= 1
    assert "missing" in said["data"]["train.py"]


@pytest.mark.parametrize(
    ("many", "words"),
    [
        (1, "1 package, 1 file of code"),
        (2, "2 packages, 2 files of code"),
        (0, "0 packages, 0 files"),
    ],
)
def test_what_was_captured_is_counted(many, words):
    said = {"packages": ["p"] * many, "native": {"missing": "no maps"}, "code": ["c"] * many}
    said["process"] = {"volatile": {"seconds": {"all": 0.25}}}
    first, last = _summary_lines(
        Path("env.json"), {"capture": said, "seen": {"stopped": "before any script"}}
    )
    assert first.startswith(f"env.json: {words}")
    assert last == "not captured: native: no maps"


def test_a_script_sees_what_python_would_give_it(check, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below/beside.py").touch()
    text = """
import json, sys, multiprocessing
import beside

class Mine: pass

def answer(queue):
    queue.put(type(Mine()).__module__)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=answer, args=(queue,))
    child.start()
    print(json.dumps([sys.argv, __file__, sys.path[0], __spec__, sys.modules["__main__"].Mine is Mine, queue.get()]))
"""
    (tmp_path / "below/train.py").write_text(text)
    plain = subprocess.run(
        [sys.executable, "below/train.py", "a"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    _, out, err = check("check", "--no-probe", "--", "below/train.py", "a")
    assert out.startswith(plain), (plain, out, err)


def test_a_capture_replaces_captures_alone(check, tmp_path):
    write(tmp_path, "print('mine')\n")
    code, _, err = check("capture", "-o", "train.py", "--", "train.py")
    assert (code, "train.py: exists and was not written by datacheck repro capture" in err) == (
        2,
        True,
    )
    assert (tmp_path / "train.py").read_text() == "print('mine')\n"
    for _ in range(2):
        code, _, err = check("capture", "-o", "env.json", "--", "train.py")
        assert code == 0, err
    code, _, err = check("capture", "-o", "nowhere/env.json")
    assert (code, "nowhere/env.json: its folder does not exist" in err) == (2, True)


def test_a_script_that_raises_is_captured_and_told(check, tmp_path):
    write(tmp_path, "import json\nraise KeyError('planted')\n")
    code, out, err = check("capture", "--", "train.py")
    assert code == 2
    assert "train.py" in json.loads(out)["code"]
    assert "the script ended with exit code 1; the result shows its state at that moment" in err
    code, out, err = check("capture", "-o", "env.json", "--", "train.py")
    assert (code, "as it was where it raised" in out) == (2, True)
    assert (tmp_path / "env.json").is_file()


@pytest.mark.parametrize("name", ["process", "packages", "native", "code", "rng", "gpu"])
def test_a_section_that_could_not_be_captured_is_unknown(name):
    said = SEED | {name: {"missing": "OSError: planted"}}
    found = row(said, name)
    assert (found.state, found.value) == ("unknown", "OSError: planted")
    assert "PYTHONHASHSEED" not in risks(said) or name != "process"
    assert "threads" not in risks(said, "strict") or name != "process"


def test_a_package_that_is_called_missing_hides_no_other():
    more = {
        "missing": {"version": "1", "record": "b"},
        "spconv": {"version": "2", "record": "c", "loaded": True},
    }
    assert "spconv" in risks(changed(packages=more))


def test_data_that_could_not_be_digested_are_unknown():
    said = SEED | {
        "data": {"train": {"missing": "no such file"}, "val": {"kind": "folder", "digest": "0"}}
    }
    unknown = [(one.name, one.value) for one in judge(said, "fast", RAN) if one.state == "unknown"]
    assert ("data train", "no such file") in unknown
    assert not any(name == "data val" for name, _ in unknown)
