"""The object layout of KITTI: clouds with their labels and calibrations, without a schema."""

import numpy as np
import pytest

from datacheck.scan import scan

FRAMES = 12
# The camera looks along the lidar's x: x of the camera is -y of the lidar, y is -z, z is x.
MOTION = np.array([[0, -1, 0, 0.0], [0, 0, -1, -0.08], [1, 0, 0, -0.27]])


def camera_to_lidar(points):
    return (points - MOTION[:, 3]) @ MOTION[:, :3]


def label(place, size=(1.5, 1.75, 4.0)):
    return ["Car 0 0 0 0 0 0 0", *(f"{number:.6f}" for number in (*size, *place, 0.0))]


@pytest.fixture
def kitti(tmp_path):
    """Frames of three cars on a street 1.7 m below the camera, with 60 points on each."""
    rng = np.random.default_rng(5)
    data = tmp_path / "object"
    for folder in ("velodyne", "label_2", "calib"):
        (data / "training" / folder).mkdir(parents=True)
    for frame in range(FRAMES):
        cars = np.stack(
            [[-6.0, 0.0, 6.0], rng.uniform(1.6, 1.8, 3), rng.uniform(10, 40, 3)], axis=1
        )
        street = np.stack(
            [rng.uniform(-30, 30, 900), np.full(900, 1.72), rng.uniform(3, 60, 900)], axis=1
        )
        on_cars = cars.repeat(60, axis=0) - [0, 0.75, 0] + rng.uniform(-0.6, 0.6, (180, 3))
        cloud = camera_to_lidar(np.concatenate([street, on_cars]))
        sweep = np.c_[cloud, rng.uniform(0, 1, len(cloud))].astype("<f4")
        sweep.tofile(data / f"training/velodyne/{frame:06}.bin")
        write_labels(data, frame, cars)
        write_calibration(data, frame, MOTION)
    return data


def write_labels(data, frame, cars):
    text = "\n".join(" ".join(label(car)) for car in cars)
    (data / f"training/label_2/{frame:06}.txt").write_text(text + "\n")


def write_calibration(data, frame, motion):
    lines = {"R0_rect": np.eye(3), "Tr_velo_to_cam": motion}
    text = "".join(f"{n}: {' '.join(map(str, m.ravel()))}\n" for n, m in lines.items())
    (data / f"training/calib/{frame:06}.txt").write_text(text)


def found(data):
    report = scan(data, output=data.parent / "out", level="deep").report
    return [
        (f.code, f.fields, f.cause.kind if f.cause else "", sorted(f.rows.tolist()))
        for f in report.findings
    ]


def test_labels_and_calibrations_are_read_with_their_cloud(kitti):
    run = scan(kitti, output=kitti.parent / "out", level="deep")
    assert (run.report.findings, run.report.exit_code) == ([], 0)
    assert run.table.rows(np.arange(FRAMES))[":boxes:boxes"].tolist() == [3] * FRAMES


def test_y_and_z_exchanged_in_a_few_labels_are_named(kitti):
    for frame in (2, 5):
        cars = np.stack([[-6.0, 0.0, 6.0], [12.0, 25.0, 33.0], np.full(3, 1.7)], axis=1)
        cloud = np.fromfile(kitti / f"training/velodyne/{frame:06}.bin", "<f4").reshape(-1, 4)
        on_cars = cars[:, [0, 2, 1]].repeat(60, axis=0) - [0, 0.75, 0]
        cloud[-180:, :3] = camera_to_lidar(on_cars)
        cloud.tofile(kitti / f"training/velodyne/{frame:06}.bin")
        write_labels(kitti, frame, cars)
    assert ("DC409", ("boxes",), "exchanged", [2, 5]) in found(kitti)


def test_a_translation_in_millimetres_in_a_few_calibrations_is_named_once(kitti):
    for frame in (1, 4, 9):
        write_calibration(kitti, frame, MOTION * [1, 1, 1, 1000])
    (finding,) = found(kitti)
    assert finding[:2] == ("DC203", ("camera_to_velo",))
    assert finding[3] == [1, 4, 9]


def test_one_far_object_without_a_point_is_no_finding(kitti):
    cars = np.array([[-6.0, 1.7, 15.0], [0, 1.7, 20.0], [6, 1.7, 110.0]])
    cloud = np.fromfile(kitti / "training/velodyne/000003.bin", "<f4").reshape(-1, 4)
    cloud[-180:, :3] = camera_to_lidar(cars.repeat(60, axis=0) - [0, 0.75, 0])
    cloud[-60:, :3] = cloud[-120:-60, :3] + np.float32(0.1)
    cloud.tofile(kitti / "training/velodyne/000003.bin")
    write_labels(kitti, 3, cars)
    assert not [one for one in found(kitti) if one[0] == "DC409"]


def test_a_frame_without_a_label_is_named(kitti):
    (kitti / "training/label_2/000007.txt").unlink()
    codes = {code: rows for code, _, _, rows in found(kitti)}
    assert codes == {"DC105": [], "DC129": [7]}
