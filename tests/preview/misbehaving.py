"""What the drawing child runs in tests of death; the files misbehave as in those of a scan."""

import time

from datacheck.preview import reading
from tests.scan.misbehaving import misbehave


def draw_items(task, beat):
    for place, asked in enumerate(task["items"]):
        beat(place)
        misbehave(asked["item"]["path"])
    return reading.draw_items(task, beat)


def dies_at_once(task, beat):
    misbehave("kill")


def never_ready(task, beat):
    time.sleep(3600)


def read_joints(task, beat):
    misbehave(task["items"][0]["item"]["path"])
    return reading.read_joints(task, beat)


def read_joints_but_one(task, beat):
    """Say nothing of the sample 00.npz."""
    return [one for one in reading.read_joints(task, beat) if one["key"] != "00.npz"]
