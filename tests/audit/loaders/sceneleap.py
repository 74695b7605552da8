"""Grasps of one object per sample: as it should be, and as it was."""

import os
from pathlib import Path

import numpy as np

ROOT = Path("data/train")
GRASPS = 16


class Grasps:
    """Files in name order; the subset of grasps is drawn from a generator of the sample's own."""

    def __init__(self, root=ROOT):
        self.root = root
        self.names = sorted(os.listdir(root))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return self.sample(self.names[index], np.random.default_rng([7, index]))

    def sample(self, name, rng):
        record = np.load(self.root / name, allow_pickle=True).item()
        grasps = record["grasp_qpos"]
        chosen = np.sort(rng.choice(len(grasps), GRASPS, replace=False))
        return {
            "hand_model_pose": grasps[chosen].astype(np.float32),
            "obj_pose": record["obj_pose"].astype(np.float32),
            "obj_code": name.removesuffix(".npy"),
        }


class GraspsAsTheyWere(Grasps):
    """Directory order, the global generator, zeros after any exception."""

    def __init__(self):
        super().__init__()
        self.names = os.listdir(self.root)

    def __getitem__(self, index):
        name = self.names[index]
        try:
            return self.sample(name, np.random)
        except Exception:  # noqa: BLE001  the defect
            zeros = {
                "hand_model_pose": np.zeros((GRASPS, 23), np.float32),
                "obj_pose": np.zeros(7, np.float32),
            }
            return zeros | {"obj_code": name.removesuffix(".npy")}
