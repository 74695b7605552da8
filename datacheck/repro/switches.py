"""Switches of a training: settings of PyTorch, environment variables, words of the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from datacheck.errors import UsageError

_CACHE = re.compile("cache", re.IGNORECASE)
_PAIRS = (("true", "false"), ("yes", "no"), ("on", "off"), ("1", "0"))
_OTHER = dict(_PAIRS) | {off: on for on, off in _PAIRS}
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


@dataclass(frozen=True)
class Switch:
    """A switch to turn: one of `NAMES`, or the user's own.

    Args:
        name: of the switch, of an environment variable (in capitals), or of a word of the command
            line.
        old, new: its values in the baseline and in the trial; for a variable or word, "" means
            absent.
        given: whether it is the user's own.
    """

    name: str
    old: Any
    new: Any
    given: bool = True

    @classmethod
    def parse(cls, text: str) -> Switch:
        """Parse ``name=OLD:NEW``; OLD ends at the first colon."""
        name, equals, values = text.partition("=")
        old, colon, new = values.partition(":")
        if not (name.strip("-") and equals and colon) or old == new:
            msg = f"--switch {text}: name=OLD:NEW is wanted, with two values that differ"
            raise UsageError(msg)
        return cls(name, old, new)

    @property
    def variable(self) -> bool:
        """Whether it is an environment variable."""
        return _VARIABLE.fullmatch(self.name) is not None


def toggle_caches(words: Sequence[str]) -> list[str]:
    """Return a command line with each word that turns a cache on or off inverted.

    Notes:
        Such a word has "cache" in its name and a value like true, off or 1
        (``data.use_cached=true``, ``--cache off``), or no value (``--no-cache``): the latter is
        removed.
    """
    toggled_words = list(words)
    position = 0
    while position < len(toggled_words):
        name, equals, value = toggled_words[position].partition("=")
        if _CACHE.search(name) and equals and value.lower() in _OTHER:
            toggled_words[position] = f"{name}={_toggled(value)}"
        elif _CACHE.search(name) and name.startswith("-") and not equals:
            next_word = toggled_words[position + 1] if position + 1 < len(toggled_words) else "-"
            if next_word.lower() in _OTHER:
                toggled_words[position + 1] = _toggled(next_word)
            elif next_word.startswith("-"):
                del toggled_words[position]
                continue
        position += 1
    return toggled_words


def _toggled(value: str) -> str:
    opposite = _OTHER[value.lower()]
    return (
        opposite.upper()
        if value.isupper()
        else opposite.capitalize()
        if value[0].isupper()
        else opposite
    )


def set_word(words: list[str], environment: dict[str, str], switch: Switch, value: str) -> None:
    """Set a variable, or a word of the command line; an empty value removes it."""
    if switch.variable:
        environment.pop(switch.name, None)
        if value:
            environment[switch.name] = value
        return
    position = find_word(words, switch.name)
    if position is None:
        words += [f"{switch.name}={value}"] * bool(value)
    elif "=" in words[position]:
        words[position : position + 1] = [f"{words[position].partition('=')[0]}={value}"] * bool(
            value
        )
    else:
        words[position : position + 2] = [words[position], value] * bool(value)


def find_word(words: Sequence[str], name: str) -> int | None:
    """Return the position of ``name=value``, or of ``--name value``; None if there is none."""
    for position, word in enumerate(words):
        if word.startswith(f"{name}=") or (
            name.startswith("-") and word == name and position + 1 < len(words)
        ):
            return position
    return None


_GPU = "no GPU that PyTorch can use is here"
_TRIED_WORKERS = 2


@dataclass(frozen=True)
class TorchSwitch:
    """A switch of PyTorch.

    Args:
        name: its name for the user.
        read: returns its current value, given the module torch.
        write: sets it.
        turn: returns the value to try, given the current one.
        gpu: whether it has no effect without CUDA.
    """

    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    turn: Callable[[Any], Any]
    gpu: bool = False


def _attribute(name: str, path: str) -> TorchSwitch:
    *above, attribute = path.split(".")

    def holder(torch: Any) -> Any:
        for part in above:
            torch = getattr(torch, part)
        return torch

    return TorchSwitch(
        name,
        lambda torch: getattr(holder(torch), attribute),
        lambda torch, value: setattr(holder(torch), attribute, value),
        lambda value: not value,
        gpu=True,
    )


def _read_attention(torch: Any) -> str:
    cuda = torch.backends.cuda
    return (
        "fast kernels" if cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled() else "math"
    )


def _write_attention(torch: Any, value: str) -> None:
    fast = value != "math"
    torch.backends.cuda.enable_flash_sdp(fast)
    torch.backends.cuda.enable_mem_efficient_sdp(fast)
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(fast)
    torch.backends.cuda.enable_math_sdp(True)  # noqa: FBT003  PyTorch's own signature


TORCH_SWITCHES = {
    flip.name: flip
    for flip in (
        _attribute("cudnn.benchmark", "backends.cudnn.benchmark"),
        _attribute("cudnn.allow_tf32", "backends.cudnn.allow_tf32"),
        _attribute("matmul.allow_tf32", "backends.cuda.matmul.allow_tf32"),
        TorchSwitch(
            "deterministic",
            lambda torch: torch.are_deterministic_algorithms_enabled(),
            lambda torch, value: torch.use_deterministic_algorithms(value, warn_only=value),
            lambda value: not value,
        ),
        TorchSwitch(
            "attention",
            _read_attention,
            _write_attention,
            lambda value: "math" if value != "math" else "fast kernels",
        ),
        TorchSwitch(
            "threads",
            lambda torch: torch.get_num_threads(),
            lambda torch, value: torch.set_num_threads(value),
            lambda value: 1 if value > 1 else 2,
        ),
    )
}
WORKERS = "workers"
CACHE = "cache"  # words of the command line
NAMES = (*TORCH_SWITCHES, WORKERS, CACHE)


def values(torch: Any) -> dict[str, Any]:
    """Return the value of each switch; {"missing": "why"} if it cannot be turned here."""
    switch_values: dict[str, Any] = {}
    for flip in TORCH_SWITCHES.values():
        if flip.gpu and not torch.cuda.is_available():
            switch_values[flip.name] = {"missing": _GPU}
            continue
        try:
            switch_values[flip.name] = flip.read(torch)
        except (AttributeError, RuntimeError) as error:
            # An old PyTorch, or two ways to set TF32 that were mixed.
            switch_values[flip.name] = {"missing": str(error).partition("\n")[0]}
    return switch_values


def tried_value(name: str, value: Any) -> Any:
    """Return the value to try for a switch with this value."""
    if name == WORKERS:
        return 0 if any(value) else _TRIED_WORKERS
    return TORCH_SWITCHES[name].turn(value)


def apply(torch: Any, name: str, value: Any) -> None:
    """Set a switch of `TORCH_SWITCHES` unless it has the value; scripts may have changed it."""
    if TORCH_SWITCHES[name].read(torch) != value:
        TORCH_SWITCHES[name].write(torch, value)


def with_workers(options: dict[str, Any], count: int) -> None:
    """Set the number of workers in a DataLoader's arguments; drop arguments that need workers."""
    options["num_workers"] = count
    if not count:
        for name in ("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"):
            options.pop(name, None)
