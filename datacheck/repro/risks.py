"""Judges what a process leaves unpinned: each risk with its value, reason and remedy, by profile.

It needs only a capture and observations of the run, so a capture of another machine can be judged
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from datacheck.repro.checks import (
    DETERMINISTIC,
    FILLED,
    NO_BENCHMARK,
    NO_TF32,
    REDUCED,
    THREADS,
    WORKSPACE,
    WORKSPACES,
    CheckRow,
    RiskContext,
    kernel_rows,
    level_of,
    library_rows,
    loader_rows,
    package_rows,
    version,
)


def judge(
    capture: Mapping[str, Any], profile: str = "same-machine", seen: Mapping[str, Any] | None = None
) -> list[CheckRow]:
    """Return all checks, risks first.

    Args:
        capture: the sections of `datacheck.repro.capture`.
        profile: "fast": settings that cost no speed, so that two runs see the same data and draw
            the same numbers; "same-machine": two runs on this machine give the same bits; "strict":
            also settings that differ between machines.
        seen: observations of a run (`seeded`, `loaders`, `kernels`); nothing if none was run.

    Raises:
        UsageError: the profile does not exist.
    """
    facts = RiskContext(capture, seen or {}, level_of(profile))
    judges = (
        _uncaptured,
        _process,
        _seeds,
        _cpu,
        _gpu,
        _precision,
        package_rows,
        library_rows,
        loader_rows,
        kernel_rows,
    )
    rows = [row for judged in judges for row in judged(facts)]
    order = {"risk": 0, "unknown": 1, "note": 2, "ok": 3}
    return sorted(rows, key=lambda row: order[row.state])


# -------------------------------------------------------------------------------------- the process


_JUDGED = (
    "process",
    "interpreter",
    "packages",
    "native",
    "code",
    "hardware",
    "blas",
    "gpu",
    "container",
    "rng",
    "data",
)


def _uncaptured(facts: RiskContext) -> Iterator[CheckRow]:
    """Yield sections that could not be captured: a risk in them would go unnoticed."""
    for name in _JUDGED:
        entry = facts.capture.get(name, {})
        if isinstance(entry.get("missing"), str):
            yield CheckRow(
                name,
                entry["missing"],
                "unknown",
                "This section could not be captured, so it was not judged.",
            )
    for name, entry in facts.section("data").items():
        if isinstance(entry, dict) and "missing" in entry:
            yield CheckRow(
                f"data {name}",
                entry["missing"],
                "unknown",
                "Whether they are the same data cannot be told.",
            )


def _process(facts: RiskContext) -> Iterator[CheckRow]:
    if "missing" not in facts.capture.get("process", {}):
        yield from _started(facts)
    git = facts.capture.get("git", {})
    if "missing" in git:
        yield CheckRow(
            "git",
            git["missing"],
            "note",
            "Nothing says which version this code is; its digests are captured.",
        )
    else:
        dirty = bool(git.get("dirty"))
        yield facts.row(
            "git",
            f"{str(git.get('commit'))[:12]}{' with changes' if dirty else ''}",
            dirty,
            "strict",
            "The commit is not the code that runs.",
            do="Commit the changes.",
        )


def _started(facts: RiskContext) -> Iterator[CheckRow]:
    value = facts.section("process").get("hash_seed", "random")
    late = value == "random" and "PYTHONHASHSEED" in facts.env
    yield facts.row(
        "PYTHONHASHSEED",
        f"{value}{', set when Python had started' if late else ''}",
        value == "random",
        "fast",
        "The order of sets of texts, and hash(text), are other ones in each process. Only a "
        "variable that is there "
        "before Python starts changes it.",
        shell="export PYTHONHASHSEED=0",
    )
    preload = facts.env.get("LD_PRELOAD")
    if preload:
        yield CheckRow(
            "LD_PRELOAD",
            preload,
            "note",
            "Puts other functions in the place of those of all libraries.",
        )


_SEEDED = {
    "random": ("random.seed(0)", "Python's random"),
    "numpy": ("numpy.random.seed(0)", "NumPy's global generator"),
    "torch": ("torch.manual_seed(0)", "PyTorch's generator"),
    "cuda": ("torch.cuda.manual_seed_all(0)", "PyTorch's generators of the GPUs"),
}


def _seeds(facts: RiskContext) -> Iterator[CheckRow]:
    generators = facts.section("rng")
    for name, (line, words) in _SEEDED.items():
        if name not in generators:
            continue
        seeded = facts.seen.get("seeded", {}).get(name, generators[name].get("seeded"))
        value = {True: "seeded", False: "not seeded", None: "cannot be told"}[seeded]
        reason = (
            f"{words} starts from random bits: weights, order and augmentation are other ones in "
            f"each run."
        )
        if not facts.seen.get("ran") and not seeded:
            yield CheckRow(
                f"seed of {name}",
                "no script was run",
                "note",
                f"Whether {words} is seeded shows when one runs.",
            )
            continue
        yield facts.row(
            f"seed of {name}",
            value,
            None if seeded is None else not seeded,
            "fast",
            reason,
            python=line,
        )
    for place in facts.seen.get("generators", ()):
        yield CheckRow(
            "default_rng()",
            f"without a seed, {place}",
            "risk",
            "It starts from random bits in each run.",
            do="Give it a seed: numpy.random.default_rng(0).",
        )


# -------------------------------------------------------------------------------- kernels and flags


def _cpu(facts: RiskContext) -> Iterator[CheckRow]:
    torch = facts.torch
    if not torch:
        reason = facts.capture.get("torch", {}).get("missing", "PyTorch is not loaded")
        status_text = "not loaded" if reason == "PyTorch is not loaded" else reason
        yield CheckRow("PyTorch", status_text, "unknown", "Its switches could not be looked at.")
        return
    threads = torch.get("get_num_threads")
    pinned = "OMP_NUM_THREADS" in facts.env or "MKL_NUM_THREADS" in facts.env
    unknown = "missing" in facts.capture.get("process", {})
    lines = " ".join(f"{name}={threads}" for name in THREADS)
    yield facts.row(
        "threads",
        f"{threads}{'' if pinned or unknown else ', as many as the machine has'}",
        None if unknown else not pinned,
        "strict",
        "Sums over many numbers, and some matrix products, have other last bits with another "
        "number of threads.",
        shell=f"export {lines}",
        python=f"torch.set_num_threads({threads})",
    )
    on, warns = (
        torch.get(f"{n}deterministic_algorithms_{w}enabled")
        for n, w in (("are_", ""), ("is_", "warn_only_"))
    )
    single_threaded = threads == 1 and not facts.gpu
    cause = (
        "On a GPU scatter, index_add, index_put, interpolate and convolutions backward add in any "
        "order"
        if (facts.gpu)
        else "On the CPU index_put_(accumulate=True), the usual way to voxelise, adds in any order "
        "with several threads"
    )
    reason = f"{cause}: other bits in each run."
    if on and warns:
        reason = (
            "Operations that have no deterministic kernel run nevertheless, and only warn, each "
            "once."
        )
    value = ("on, warn_only" if warns else "on") if on else "off"
    yield facts.row(
        "deterministic algorithms",
        value,
        not facts.deterministic and not single_threaded,
        "same-machine",
        reason,
        python=DETERMINISTIC,
    )
    filled = torch.get("utils.deterministic.fill_uninitialized_memory", True)
    yield facts.row(
        "fill_uninitialized_memory",
        filled,
        bool(on) and not filled,
        "strict",
        "Memory of torch.empty holds what was there before.",
        python=FILLED,
    )
    yield facts.row(
        "flush_denormal",
        torch.get("flush_denormal"),
        bool(torch.get("flush_denormal")),
        "strict",
        "Smallest numbers become 0 in this thread: a library built with -ffast-math does that to "
        "the whole process "
        "when it is loaded, and whether threads have it depends on when they were started.",
        do="Find the library (datacheck repro capture, section native), or set "
        "torch.set_flush_denormal yourself.",
    )
    ranks = torch.get("distributed")
    if ranks:
        chosen = facts.env.get("NCCL_ALGO", "chosen by NCCL")
        yield facts.row(
            "NCCL_ALGO",
            f"{chosen}, {ranks['world_size']} ranks",
            "NCCL_ALGO" not in facts.env,
            "strict",
            "Sums over ranks hang on their number and on the order in which NCCL adds, which it "
            "chooses itself.",
            shell="export NCCL_ALGO=Ring",
        )
    if torch.get("inductor.max_autotune"):
        yield facts.row(
            "inductor max_autotune",
            "on",
            not facts.deterministic,
            "same-machine",
            "torch.compile measures which kernel is fastest, and takes another one on another day.",
            python="torch._inductor.config.max_autotune = False",
        )


def _gpu(facts: RiskContext) -> Iterator[CheckRow]:
    torch = facts.torch
    if not facts.gpu:
        if torch:
            yield CheckRow(
                "GPU",
                "none that PyTorch can use",
                "note",
                "Switches of cuDNN, cuBLAS, TF32 were not judged.",
            )
        return
    benchmark = torch.get("backends.cudnn.benchmark")
    yield facts.row(
        "cudnn.benchmark",
        benchmark,
        bool(benchmark),
        "same-machine",
        "cuDNN measures which algorithm is fastest and takes another one on another day, whatever "
        "the seed; "
        "Lightning's Trainer(benchmark=True) sets it.",
        python=NO_BENCHMARK,
    )
    either = facts.torch.get("backends.cudnn.deterministic") or torch.get(
        "are_deterministic_algorithms_enabled"
    )
    yield facts.row(
        "cudnn.deterministic",
        torch.get("backends.cudnn.deterministic"),
        not either,
        "same-machine",
        "Convolutions may take algorithms that add in any order, above all backward. Deterministic "
        "algorithms imply "
        "it.",
        python="torch.backends.cudnn.deterministic = True",
    )
    yield from _workspace(facts)
    used = [
        n
        for n in ("flash", "mem_efficient", "cudnn")
        if torch.get(f"backends.cuda.{n}_sdp_enabled")
    ]
    yield facts.row(
        "attention (SDPA)",
        ", ".join(used) or "math",
        bool(used) and not facts.deterministic,
        "same-machine",
        "Backward of flash, memory-efficient and cuDNN attention adds in any order unless "
        "deterministic algorithms are "
        "on and raise (warn_only leaves them as they are).",
        python=DETERMINISTIC,
    )


def _workspace(facts: RiskContext) -> Iterator[CheckRow]:
    """Judge CUBLAS_WORKSPACE_CONFIG: does this version require it, and was it set in time?

    Reference: pytorch#85447 (workspaces per handle and stream), pytorch#161749 (merged 2025-10-03:
    the requirement and its check are gone, in 2.10 and later), pytorch#15359 (no effect if it is
    set too late).
    """
    cuda = facts.section("gpu").get("cuda")
    value = facts.env.get(WORKSPACE, "not set")
    if not cuda or version(cuda) < (10, 2) or version(str(facts.torch.get("version"))) >= (2, 10):
        yield CheckRow(WORKSPACE, f"{value}, not needed by this version", "ok")
        return
    line = f"export {WORKSPACE}={WORKSPACES[0]}"
    conjunction = "while" if facts.deterministic else "once"
    reason = (
        f"PyTorch before 2.10 raises in the first matrix product {conjunction} deterministic algorithms "
        f"are on."
    )
    late = facts.seen.get("workspace_late")
    if value in WORKSPACES and late:
        reason, value = (
            "It was set when CUDA had started already: cuBLAS does not read it again.",
            f"{value}, too late",
        )
    bad = value not in WORKSPACES
    yield facts.row(WORKSPACE, value, bad, "same-machine", reason, shell=line)


def _precision(facts: RiskContext) -> Iterator[CheckRow]:
    torch = facts.torch
    if not facts.gpu:
        return
    conv = torch.get("backends.cudnn.conv.fp32_precision")
    tf32 = {
        "convolutions": conv == "tf32"
        if conv is not None
        else bool(torch.get("backends.cudnn.allow_tf32")),
        "matrix products": "tf32" in {torch.get("backends.cuda.matmul.fp32_precision")}
        or torch.get("backends.cuda.matmul.allow_tf32") is True,
    }
    on = [name for name, used in tf32.items() if used]
    yield facts.row(
        "TF32",
        ", ".join(on) or "off",
        bool(on),
        "strict",
        "float32 is computed with 10 bits of mantissa on GPUs that can: equal from run to run, "
        "other results on other "
        "GPUs. PyTorch has it on for convolutions by default.",
        python=NO_TF32,
    )
    for name in REDUCED:
        value = torch.get(f"backends.cuda.matmul.{name}")
        if value is not None:
            yield facts.row(
                name,
                value,
                value is True,
                "strict",
                "Sums of products may be rounded on the way, as the GPU likes.",
                python=f"torch.backends.cuda.matmul.{name} = False",
            )
