"""Write tests/corpus: small files per format that a parser must read (y_), refuse (n_), or survive (i_).

Run it from the repository root. The files are checked in, so that a new version of a library cannot
change what is tested; run it again only to add files.
"""

from __future__ import annotations

from corpus import (
    arrays,
    clouds,
    packed,
    pickles,
    safe_tensors,
    stores,
    streams,
    tables,
    tars,
    texts,
    torches,
    videos,
)
from corpus.put import OUT

MAKERS = (
    *(arrays.npy, arrays.npz, pickles.honest, pickles.hostile, stores.hdf5_good, stores.hdf5_bad),
    *(
        stores.zarr_good,
        stores.zarr_bad,
        clouds.plys,
        clouds.pcds,
        clouds.las,
        clouds.raw,
        clouds.meshes,
    ),
    *(texts.json_lines, texts.documents, texts.yamls, texts.plain, texts.images, videos.mp4s),
    *(tars.good, tars.bad, tables.good, tables.bad, packed.good, packed.bad),
    *(pickles.appended, torches.good, torches.bad, streams.arrow, streams.tfrecords),
    *(safe_tensors.good, safe_tensors.bad),
)

if __name__ == "__main__":
    for make in MAKERS:
        make()
    files = [path for path in OUT.rglob("*") if path.is_file()]
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files):,} bytes in {OUT}")
