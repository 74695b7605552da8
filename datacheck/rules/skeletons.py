"""Joint orders and bone lengths that rules know by name (``skeleton: mano21_ho3d``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A hand of one root and chains of joints.

    Args:
        name: as in schemas.
        chains: per finger its joints from the root to the tip.
        lengths: per finger its bone lengths from the root on [m], of an average hand.
    """

    name: str
    chains: Mapping[str, tuple[int, ...]]
    lengths: Mapping[str, tuple[float, ...]]

    @cached_property
    def joints(self) -> int:
        """Number of joints."""
        return 1 + max(j for chain in self.chains.values() for j in chain)

    @cached_property
    def bones(self) -> tuple[Pair, ...]:
        """(parent, child) of every bone, chain by chain."""
        return tuple(pair for chain in self.chains.values() for pair in pairwise(chain))

    @cached_property
    def bone_names(self) -> tuple[str, ...]:
        """Name of every bone: finger and number from the root."""
        return tuple(f"{finger} {i + 1}" for finger, chain in self.chains.items() for i in range(len(chain) - 1))

    @cached_property
    def table(self) -> tuple[float, ...]:
        """Average length of every bone [m]."""
        return tuple(length for finger in self.chains for length in self.lengths[finger])

    @cached_property
    def median(self) -> float:
        """Median of the average bone lengths [m]."""
        ordered = sorted(self.table)
        return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2

    @cached_property
    def ends(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(last joints before the tips, tips), finger by finger."""
        return tuple(c[-2] for c in self.chains.values()), tuple(c[-1] for c in self.chains.values())

    @cached_property
    def others(self) -> tuple[Skeleton, ...]:
        """Known orders of the same joints."""
        return tuple(s for s in SKELETONS.values() if s.joints == self.joints and s.name != self.name)

    def taken_from(self, other: Skeleton) -> tuple[int, ...]:
        """Return where each joint of this order stands in another one."""
        places = [0] * self.joints
        for finger, chain in self.chains.items():
            for mine, theirs in zip(chain, other.chains[finger], strict=True):
                places[mine] = theirs
        return tuple(places)

    def swap(self, a: str, b: str) -> tuple[int, ...]:
        """Return the joints with two fingers exchanged, root excepted."""
        places = list(range(self.joints))
        for one, other in zip(self.chains[a][1:], self.chains[b][1:], strict=True):
            places[one], places[other] = other, one
        return tuple(places)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs of joints whose distances tell orders apart: the bones first, then what other orders take for bones."""
        lasts, tips = self.ends
        wanted = [*self.bones, *((last, tip) for last in lasts for tip in tips)]
        wanted += [pair for other in self.others for pair in other.bones]
        return tuple(dict.fromkeys(wanted))


# Mean-shape MANO hand, measured; facts, not the model.
_MANO = {
    "index": (0.0906, 0.0330, 0.0222, 0.0255),
    "middle": (0.0947, 0.0317, 0.0233, 0.0263),
    "pinky": (0.0818, 0.0211, 0.0189, 0.0200),
    "ring": (0.0861, 0.0288, 0.0248, 0.0258),
    "thumb": (0.0386, 0.0308, 0.0271, 0.0354),
}

_HO3D = {
    "index": (0, 1, 2, 3, 17),
    "middle": (0, 4, 5, 6, 18),
    "pinky": (0, 7, 8, 9, 20),
    "ring": (0, 10, 11, 12, 19),
    "thumb": (0, 13, 14, 15, 16),
}
_TIPS_LAST = {"index": 16, "middle": 17, "pinky": 18, "ring": 19, "thumb": 20}  # fingers in the order of their chains
_OPENPOSE = {
    "thumb": (0, 1, 2, 3, 4),
    "index": (0, 5, 6, 7, 8),
    "middle": (0, 9, 10, 11, 12),
    "ring": (0, 13, 14, 15, 16),
    "pinky": (0, 17, 18, 19, 20),
}

SKELETONS: dict[str, Skeleton] = {
    "mano21_ho3d": Skeleton("mano21_ho3d", _HO3D, _MANO),
    "mano21": Skeleton("mano21", {f: (*c[:-1], _TIPS_LAST[f]) for f, c in _HO3D.items()}, _MANO),
    "mano21_openpose": Skeleton("mano21_openpose", _OPENPOSE, _MANO),
}
