"""What judges of a process ask for (`Facts`) and what they answer (`Row`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from datacheck.errors import UsageError

PROFILES = ("fast", "same-machine", "strict")  # each asks for all that the one before it asks for
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
REDUCED = (  # attributes of torch.backends.cuda.matmul; an old PyTorch has some of them
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
# the lines that `repro check` prints and `pin` runs
DETERMINISTIC = "torch.use_deterministic_algorithms(True)"
NO_BENCHMARK = "torch.backends.cudnn.benchmark = False"
FILLED = "torch.utils.deterministic.fill_uninitialized_memory = True"
NO_TF32 = 'torch.set_float32_matmul_precision("highest"); torch.backends.cudnn.allow_tf32 = False'


@dataclass(frozen=True)
class Row:
    """One thing that was looked at.

    Args:
        name, value: what, and what it is.
        state: "risk"; "note" (a risk in a stricter profile, or a fact to know); "ok"; "unknown": it could not be told.
        why: why it matters; of "ok" why it does not, or "".
        shell: the line that mends it before Python starts, "" where there is none.
        python: the line that mends it in the script, "" where there is none.
        do: what to do where no single line mends it.
    """

    name: str
    value: str
    state: str
    why: str = ""
    shell: str = ""
    python: str = ""
    do: str = ""

    def as_json(self) -> dict[str, str]:
        """Return it as a JSON value."""
        return asdict(self)


@dataclass(frozen=True)
class Facts:
    """A capture, what was seen of the run, and the profile, as the judges ask for them."""

    capture: Mapping[str, Any]
    seen: Mapping[str, Any]
    level: int

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a section, empty where it could not be had."""
        said: Mapping[str, Any] = self.capture.get(name, {})
        return {} if isinstance(said.get("missing"), str) else said

    @property
    def env(self) -> Mapping[str, str]:
        """Variables of the process."""
        found: Mapping[str, str] = self.section("process").get("env", {})
        return found

    @property
    def torch(self) -> Mapping[str, Any]:
        """Switches of PyTorch, empty where it is not loaded."""
        return self.section("torch")

    @property
    def gpu(self) -> bool:
        """Whether PyTorch of this process can compute on a GPU."""
        gpu = self.section("gpu")
        built = bool(gpu.get("cuda") or gpu.get("hip"))
        return (
            bool(self.torch)
            and built
            and bool(gpu.get("devices"))
            and self.env.get("CUDA_VISIBLE_DEVICES") not in {"", "-1"}
        )

    @property
    def deterministic(self) -> bool:
        """Whether operations without a deterministic kernel raise."""
        on = bool(self.torch.get("are_deterministic_algorithms_enabled"))
        return on and not self.torch.get("is_deterministic_algorithms_warn_only_enabled")

    def row(self, name: str, value: Any, bad: bool | None, since: str, why: str, **mend: str) -> Row:  # noqa: FBT001
        """Return what is said of one thing; `since`: the first profile in which it is a risk; None: not known."""
        said = value if isinstance(value, str) else str(value)
        if bad is None:
            return Row(name, said, "unknown", why, **mend)
        if not bad:
            return Row(name, said, "ok")
        return Row(name, said, "risk" if self.level >= PROFILES.index(since) else "note", why, **mend)


def level_of(profile: str) -> int:
    """Return the place of a profile in `PROFILES`.

    Raises:
        UsageError: there is none of that name.
    """
    if profile not in PROFILES:
        msg = f"no profile is called {profile!r}; there are {', '.join(PROFILES)}"
        raise UsageError(msg)
    return PROFILES.index(profile)


def version(text: str) -> tuple[int, int]:
    """Return (major, minor) of a version, (0, 0) where it is none."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)
