"""A hand that moves: 21 joints with the bone lengths of the MANO mean shape, rigid while the fingers bend.

HO3D order: 0 wrist; 1-3 index; 4-6 middle; 7-9 pinky; 10-12 ring; 13-15 thumb; tips 16 thumb, 17 index, 18 middle,
19 ring, 20 pinky.
"""

from __future__ import annotations

import numpy as np

from datacheck.testing.synth.draw import Array, curves, rotation

# (first joint, tip, bone lengths [m], direction of the knuckle in the palm [deg], of the finger [deg])
FINGERS = {
    "index": (1, 17, (0.0906, 0.0330, 0.0222, 0.0255), 14.0, 6.0),
    "middle": (4, 18, (0.0947, 0.0317, 0.0233, 0.0263), 2.0, 1.0),
    "pinky": (7, 20, (0.0818, 0.0211, 0.0189, 0.0200), -23.0, -12.0),
    "ring": (10, 19, (0.0861, 0.0288, 0.0248, 0.0258), -10.0, -5.0),
    "thumb": (13, 16, (0.0386, 0.0308, 0.0271, 0.0354), 48.0, 34.0),
}


def articulated(rng: np.random.Generator, frames: int, scale: float = 1.0) -> Array:
    """Return a hand whose fingers open and close, in its own frame (wrist at the origin, fingers along +x).

    Shapes:
        returns: float64 (frames, 21, 3) [m]

    Args:
        scale: the subject's hand over the mean hand.
    """
    joints = np.zeros((frames, 21, 3))
    for first, tip, bones, knuckle, along in FINGERS.values():
        bend = 0.45 + 0.35 * curves(rng, frames, 3)  # rad at each joint
        spread = np.deg2rad(along) + 0.06 * curves(rng, frames, 1)[:, 0]
        u = np.stack([np.cos(spread), np.sin(spread), np.zeros(frames)], axis=1)
        down = np.broadcast_to([0.0, 0.0, -1.0], (frames, 3))
        if first == 13:  # the thumb closes across the palm
            down = 0.6 * down + 0.8 * np.stack([np.sin(spread), -np.cos(spread), np.zeros(frames)], axis=1)
        at = np.broadcast_to(bones[0] * _planar(knuckle), (frames, 3))
        joints[:, first] = at
        angle = np.zeros(frames)
        for place, bone, extra in zip((first + 1, first + 2, tip), bones[1:], bend.T, strict=True):
            angle = angle + 0.75 * extra
            at = at + bone * (np.cos(angle)[:, None] * u + np.sin(angle)[:, None] * down)
            joints[:, place] = at
    return joints * scale


def _planar(degrees: float) -> Array:
    return np.array([np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees)), 0.0])


def placed(rng: np.random.Generator, hand: Array, turn: Array) -> Array:
    """Return the hand turned by `turn` and put in view of a camera that looks along -z (OpenGL).

    Shapes:
        hand: float (frames, 21, 3) [m]
        turn: float (frames, 3) rotation vectors [rad]
        returns: float64 (frames, 21, 3) [m]: camera frame, x right, y up, the whole hand at z < 0
    """
    frames = len(hand)
    turned = np.einsum("tij,tkj->tki", rotation(turn), hand)
    turned -= turned.mean(axis=1, keepdims=True)
    depth = rng.uniform(0.48, 0.72) + 0.06 * curves(rng, frames, 1)[:, 0]
    aside = 0.16 * curves(rng, frames, 2) * [1.0, 0.5]
    centre = np.stack([aside[:, 0] * depth, aside[:, 1] * depth, -depth], axis=1)
    out: Array = turned + centre[:, None]
    return out
