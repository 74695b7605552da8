"""Read a cache with zarr-python alone.

python read_by_zarr.py CACHE OUT.npz
"""

import sys
from urllib.parse import unquote

import numpy as np
import zarr


def texts(group, name):
    start, length = group[f"rows/samples.{name}/start"][:], group[f"rows/samples.{name}/length"][:]
    data = group[f"samples/{name}"][:]
    return [bytes(data[a : a + n]).decode() for a, n in zip(start, length, strict=True)]


def arrays(group, prefix=""):
    for name, member in sorted(group.members()):
        yield from (
            arrays(member, prefix + name + "/")
            if isinstance(member, zarr.Group)
            else [(prefix + name, member)]
        )


def main(folder, out):
    group = zarr.open_group(folder, mode="r")
    assert group.attrs["datacheck"]["format"] == 1
    keys, made, saved = texts(group, "key"), group["samples/made"][:], {}
    for path, array in arrays(group["fields"]):
        said = array.attrs["datacheck"]
        if said["dim"]:
            start, length = (group[f"rows/{said['dim']}/{what}"][:] for what in ("start", "length"))
        has = group[f"present/{path}"][:] if said["optional"] else made
        for i in np.flatnonzero(has):
            value = (
                array[start[i] : start[i] + length[i]] if said["dim"] else np.asarray(array[int(i)])
            )
            saved[f"{keys[i]}|{unquote(path)}"] = value
    np.savez(out, **saved)
    assert not [name for name in sys.modules if name.startswith("datacheck")]


if __name__ == "__main__":
    main(*sys.argv[1:])
