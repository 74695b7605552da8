"""Joints over the mean of fit ones: what is wrong with them stays to be seen, and no number breaks it."""

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.preview.drawings import NotDrawableError
from datacheck.preview.overlays import FailingPose, aligned, overlay
from tests.preview.hands import MANO, bones, hand, moved

FIT = [moved(hand(), seed) for seed in range(12)]


def laid(*worst, fit=FIT, skeleton="mano21", unit="m"):
    given = [
        FailingPose(f"{n}.npy", "train", np.asarray(one, float), n, "DC201")
        for n, one in enumerate(worst)
    ]
    return overlay(fit, given, skeleton, unit)


def test_the_mean_of_turned_and_moved_copies_is_the_hand():
    made = laid()
    joints = np.array(made["joints"])
    assert (made["fit"], made["unit"], made["skeleton"], made["guessed"]) == (
        12,
        "m",
        "mano21",
        False,
    )
    assert made["joints"][0] == [0, 0, 0]
    assert bones(joints) == pytest.approx(MANO.table, abs=2e-4)  # drawn in steps of 0.1 mm
    assert made["spread"] == pytest.approx([0] * 21, abs=1e-12)
    # No mirror image of it
    assert np.linalg.det(np.linalg.lstsq(hand(), joints)[0]) == pytest.approx(1, abs=0.01)
    assert joints.mean(axis=0)[[0, 2]] == pytest.approx([0, 0], abs=1e-4)  # above the wrist
    assert joints[:, 1].mean() > 0
    assert np.ptp(joints[:, 0]) > np.ptp(joints[:, 2])


def test_the_spread_is_the_distance_of_the_fit_ones():
    rng = np.random.default_rng(5)
    noise = rng.normal(0, 0.002, (400, 21, 3))
    noise[:, 0] = 0  # the roots lie on one another
    made = laid(fit=[moved(hand() + one, seed) for seed, one in enumerate(noise)])
    free = np.sqrt(np.square(noise).sum(axis=2).mean())  # 3.4 mm, of which turning takes a little
    assert 0.85 * free < np.sqrt(np.square(made["spread"]).mean()) < free
    assert bones(np.array(made["joints"])) == pytest.approx(MANO.table, abs=1e-3)


@pytest.mark.parametrize("factor", [1000, 0.001, 25.4])
def test_another_unit_stays_told_and_is_drawn_at_the_size_of_the_mean(factor):
    made = laid(moved(hand(), 99) * factor)
    (one,) = made["worst"]
    far = np.sqrt(np.square(hand()).sum() / 21)
    assert (one["key"], one["split"], one["rule"]) == ("0.npy", "train", "DC201")
    assert (one["ratio"], one["drawn"]) == pytest.approx((factor, factor), rel=1e-3)
    assert one["rms"] == pytest.approx(far * abs(factor - 1), rel=1e-3)
    assert one["rms_drawn"] == pytest.approx(0, abs=1e-9)
    assert np.array(one["joints"]) == pytest.approx(np.array(made["joints"]), abs=1.1e-4)


@pytest.mark.parametrize(("factor", "drawn"), [(2.9, 1), (3.1, 3.1), (0.35, 1), (0.3, 0.3)])
def test_what_is_about_as_large_is_drawn_as_it_is(factor, drawn):
    (one,) = laid(moved(hand(), 99) * factor)["worst"]
    assert (one["ratio"], one["drawn"]) == pytest.approx((factor, drawn))


def test_a_mirror_image_is_not_undone_but_told():
    right, left = laid(moved(hand(), 7), moved(hand() * [-1, 1, 1], 8))["worst"]
    if right["key"] != "0.npy":
        left, right = right, left
    assert right["rms_mirrored"] is None
    assert left["rms"] > 0.005
    assert left["rms_mirrored"] == pytest.approx(0, abs=1e-9)
    assert left["ratio"] == pytest.approx(1)


def test_the_mean_is_seen_from_the_same_side_in_whatever_order_the_fit_ones_are():
    curls = np.random.default_rng(1).uniform(0.1, 0.6, 48)
    fit = [moved(hand(curl), n) for n, curl in enumerate(curls)]
    first = np.array(laid(fit=fit)["joints"])
    for seed in range(12):
        order = np.random.default_rng(seed).permutation(48)
        assert np.array(laid(fit=[fit[n] for n in order])["joints"]) == pytest.approx(
            first, abs=1e-3
        )


@pytest.mark.parametrize("lefts", [0, 3])
def test_where_the_other_hand_is_among_the_fit_ones_it_is_counted(lefts):
    fit = [moved(hand() * [-1 if n < lefts else 1, 1, 1], n) for n in range(24)]
    made = laid(moved(hand() * [-1, 1, 1], 40) * 1000, fit=fit)
    assert (made["fit"], made["fit_mirrored"]) == (24, lefts)
    assert made["worst"][0]["rms_mirrored"] is not None


@pytest.mark.parametrize(("unit", "turned_over"), [("px", -1), ("", 1)])
def test_a_mirror_image_in_a_plane_is_not_undone_but_told(unit, turned_over):
    rng = np.random.default_rng(0)
    flat = np.zeros((21, 3))
    flat[1:, :2] = rng.normal(size=(20, 2)) * 50

    def placed(joints, angle):
        turn = np.array(
            [[np.cos(angle), np.sin(angle), 0], [-np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
        )
        return joints @ turn + [100, 200, 0]

    fit = [placed(flat, angle) for angle in range(12)]
    right, left = laid(placed(flat, 1.5), placed(flat, 1.5) * [-1, 1, 1], fit=fit, unit=unit)[
        "worst"
    ]
    assert (right["rms"], right["rms_mirrored"]) == (pytest.approx(0, abs=1e-6), None)
    assert left["rms"] > 25
    assert left["rms_mirrored"] == pytest.approx(0, abs=1e-6)
    # Pixels with y down are seen as in the image, others as with y up
    drawn = np.array(right["joints"])
    assert np.linalg.det(np.linalg.lstsq(flat[:, :2], drawn[:, :2])[0]) == pytest.approx(
        turned_over, abs=0.01
    )


def test_a_middle_all_but_on_the_root_has_no_direction():
    around = np.array([[0, 0, 0], [1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 1e-200]])
    (one,) = laid(around * 2, fit=[around] * 5, skeleton=None)["worst"]
    assert (one["ratio"], one["rms"]) == (2, pytest.approx(np.sqrt(4 / 5), rel=1e-3))


def test_joints_in_another_order_stay_so():
    order = [*range(16), 17, 18, 19, 20, 16]  # the tips, one further each
    moved_tips = hand()[order]
    (one,) = laid(moved(moved_tips, 3))["worst"]
    expected = np.sqrt(np.square(moved_tips - hand()).sum() / 21)
    assert 0.7 * expected < one["rms"] <= expected  # turning makes it no larger
    assert one["rms_mirrored"] is None


def test_it_turns_as_scipy_does():
    rotation = pytest.importorskip("scipy.spatial.transform").Rotation
    rng = np.random.default_rng(0)
    poses, onto = rng.normal(size=(30, 21, 3)), rng.normal(size=(21, 3))
    poses[::3] *= [-1, 1, 1]
    for mine, one in zip(aligned(poses, onto), poses, strict=True):
        assert mine == pytest.approx(rotation.align_vectors(onto, one)[0].apply(one), abs=1e-9)


def test_the_earliest_round_comes_first_and_in_it_what_lies_farthest_off():
    near, far = moved(hand(), 1), moved(hand(0.9), 2)
    given = [
        FailingPose(str(n), "", one, turn, "")
        for n, (one, turn) in enumerate([(near, 1), (near, 0), (far, 1), (far, 0)])
    ]
    assert [one["key"] for one in overlay(FIT, given, "mano21", "m")["worst"]] == [
        "3",
        "1",
        "2",
        "0",
    ]
    assert len(overlay(FIT, given * 3, "mano21", "m")["worst"]) == 6


def test_what_cannot_be_laid_over_it_is_left_out_and_counted():
    torn, partly = hand(), hand()
    torn[0] = np.nan
    partly[[4, 8]] = [[np.nan], [np.inf]]
    made = laid(torn, hand()[:20], hand()[:20], hand() * 1e200, np.full((21, 3), np.nan), partly)
    (one,) = made["worst"]
    assert (one["key"], one["unfinite"], one["rms"]) == ("5.npy", 2, pytest.approx(0, abs=1e-9))
    assert [place for place, joint in enumerate(one["joints"]) if joint is None] == [4, 8]
    assert made["left_out"] == [
        "2 failing samples with 20 joints, not 21",
        "1 failing sample with coordinates beyond 1e+50",
        "2 failing samples with no finite root",
    ]


def test_only_the_same_bones_are_compared():
    knuckles, tips = np.full((2, 21, 3), np.nan)
    for kept, place in ((knuckles, 1), (tips, 4)):
        at = [0, *(chain[place] for chain in MANO.chains.values())]
        kept[at] = hand()[at]
    # Bones of the palm are three times as long as most others
    palm, large = laid(knuckles, knuckles * 10)["worst"]
    assert (palm["ratio"], palm["drawn"], palm["rms"]) == (1, 1, pytest.approx(0, abs=1e-9))
    assert (large["ratio"], large["drawn"]) == (10, 10)
    (one,) = laid(tips)["worst"]
    assert (one["ratio"], one["drawn"], one["rms"]) == (None, 1, pytest.approx(0, abs=1e-9))


def test_one_joint_far_astray_does_not_turn_the_others():
    astray = hand()
    astray[20] += [5, -3, 4]
    (one,) = laid(moved(astray, 3))["worst"]
    off = np.linalg.norm(np.array(one["joints"]) - np.array(laid()["joints"]), axis=1)
    assert off[:20] == pytest.approx(np.zeros(20), abs=2e-4)
    assert off[20] == pytest.approx(np.sqrt(50), rel=1e-3)
    assert one["rms"] == pytest.approx(np.sqrt(50 / 21), rel=1e-3)


def test_the_joints_that_do_not_lie_on_the_root_turn_it():
    partly = hand()
    partly[8:] = partly[0]
    (one,) = laid(partly @ np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))["worst"]
    assert np.array(one["joints"])[:8] == pytest.approx(np.array(laid()["joints"])[:8], abs=2e-4)
    assert one["rms"] == pytest.approx(np.sqrt(np.square(hand()[8:]).sum() / 21), rel=1e-3)


def test_joints_in_one_place_lie_on_the_root():
    (one,) = laid(np.full((21, 3), 0.4))["worst"]
    assert (one["ratio"], one["drawn"], one["joints"]) == (0, 1, [[0, 0, 0]] * 21)
    assert one["rms"] == pytest.approx(np.sqrt(np.square(hand()).sum() / 21), rel=1e-3)


def test_of_few_fit_samples_there_is_no_mean():
    with pytest.raises(NotDrawableError, match="4 fit samples to take the mean of, 5 are needed"):
        laid(hand(), fit=FIT[:4])
    with pytest.raises(NotDrawableError, match=r"\(1 fit sample with 20 joints, not 21\)"):
        laid(hand(), fit=[*FIT[:4], hand()[:20]])
    with pytest.raises(NotDrawableError, match="in one place"):
        laid(hand(), fit=[np.zeros((21, 3))] * 9)
    assert laid(hand(), fit=[*FIT[:5], hand()[:20]])["left_out"] == [
        "1 fit sample with 20 joints, not 21"
    ]


def test_hands_that_nobody_marked_are_not_in_the_mean():
    made = laid(fit=[*FIT[:5], *np.full((5, 21, 3), 0.3)])
    assert (made["fit"], made["left_out"]) == (5, ["5 fit samples with all joints in one place"])
    assert bones(np.array(made["joints"])) == pytest.approx(MANO.table, abs=2e-4)


def test_without_a_skeleton_sizes_are_distances_to_the_first_joint():
    rng = np.random.default_rng(1)
    robot = rng.normal(size=(7, 3))
    (one,) = laid(moved(robot, 50) * 1000, fit=[moved(robot, n) for n in range(6)], skeleton=None)[
        "worst"
    ]
    assert one["ratio"] == pytest.approx(1000, rel=1e-3)
    made = laid(hand(), skeleton=None)
    assert (made["skeleton"], made["guessed"]) == ("mano21", True)


PLACES = st.sampled_from([0.0, 1.0, -0.5, 1e-300, 1e49, -1e50, 1e300, np.inf, -np.inf, np.nan])
POSES = st.integers(1, 6).flatmap(
    lambda count: hnp.arrays("f8", (count, 3), elements=PLACES | st.floats(-1, 1))
)


@given(fit=st.lists(POSES, max_size=9), worst=st.lists(POSES, max_size=5), alike=st.booleans())
def test_whatever_the_numbers_are_there_is_a_drawing_or_a_reason(fit, worst, alike):
    fit = [one[np.arange(5) % len(one)] for one in fit] if alike else fit
    worst = [one[np.arange(5) % len(one)] for one in worst] if alike else worst
    try:
        made = laid(*worst, fit=fit, skeleton=None)
    except NotDrawableError:
        return
    assert orjson.loads(orjson.dumps(made)) == made
    places = [made["joints"], *(one["joints"] for one in made["worst"])]
    assert all(
        np.isfinite(joint).all() for joints in places for joint in joints if joint is not None
    )
    assert all(
        one[name] is not None for one in made["worst"] for name in ("drawn", "rms", "rms_drawn")
    )
    assert len(made["worst"]) <= len(worst)
