"""Digests of the states of global random generators."""

from __future__ import annotations

import ctypes
import random
from array import array
from typing import Any

import numpy as np

from datacheck.digest import digest64
from datacheck.registry import require

_WORDS = 624  # of a Mersenne twister


class RandomStates:
    """Tells the states of the global generators of Python, NumPy and PyTorch, step by step; nothing is drawn."""

    def __init__(self) -> None:
        self._told: tuple[Any, bytes, str] | None = None  # NumPy's generator, its memory, their digest

    def digests(self) -> dict[str, str]:
        """Return a digest of the state of each generator."""
        torch = require("torch", "torch")
        version, words, gauss = random.getstate()
        found = {
            "python": _digest(array("I", words), f"{version} {gauss}".encode()),
            "numpy": self._of_numpy(),
            "torch": _digest(torch.get_rng_state().numpy()),
        }
        if torch.cuda.is_initialized():
            found["cuda"] = _digest(*(state.numpy() for state in torch.cuda.get_rng_state_all()))
        return found

    def _of_numpy(self) -> str:
        """Return the digest of NumPy's; it takes longer to tell than all others, so only where it can be another.

        Notes:
            A number of a normal distribution is kept beside its words, for the next call: while one is, it is asked.
            Unseen is only a state that is set, with such a number, to the words that it has.
        """
        generator = np.random.get_bit_generator()  # type: ignore[attr-defined]  # its stubs leave it out
        if type(generator) is not np.random.MT19937:  # somebody has set another
            return _digest(repr(np.random.get_state(legacy=False)).encode())  # noqa: NPY002  transforms draw from it
        now = ctypes.string_at(generator.ctypes.state_address, 4 * _WORDS + 4)
        if self._told is None or self._told[:2] != (generator, now):
            state: Any = np.random.get_state(legacy=True)  # noqa: NPY002
            name, keys, place, kept, number = state
            told = _digest(keys, f"{name} {[place, kept, number]}".encode())
            sure = not kept and now == keys.tobytes() + np.int32(place).tobytes()
            self._told = (generator, now, told) if sure else None
            return told
        return self._told[2]


def _digest(*state: Any) -> str:
    return f"{digest64(b''.join(state)):016x}"
