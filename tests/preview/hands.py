"""Hands of known bones, turned and moved about."""

import numpy as np

from datacheck.rules.skeletons import SKELETONS

MANO = SKELETONS["mano21"]


def hand(curl=0.3):
    """Return joints (21, 3) [m] of a hand whose bones have the lengths of the skeleton, the fingers bent a little."""
    joints = np.zeros((21, 3))
    for number, (finger, chain) in enumerate(MANO.chains.items()):
        aside = (number - 2) * 0.25
        for place in range(1, 5):
            bent = curl * (place - 1)
            way = [np.sin(aside), np.cos(aside) * np.cos(bent), np.cos(aside) * np.sin(bent)]
            joints[chain[place]] = joints[chain[place - 1]] + MANO.lengths[finger][
                place - 1
            ] * np.array(way)
    return joints


def moved(joints, seed):
    """Return joints turned by a random rotation and half a metre or so from the origin."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    turn[:, 0] *= np.sign(np.linalg.det(turn))
    return joints @ turn + rng.uniform(0.3, 0.6, 3)


def bones(joints):
    ends = np.array(MANO.bones)
    return np.linalg.norm(joints[ends[:, 0]] - joints[ends[:, 1]], axis=1)
