"""Canaries of code: files that run something when a program that reads them trusts them. None may run.

Each is a function that writes into the hostile folder; its first line says what would run it.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.ground import Ground

CANARIES: dict[str, Callable[[Ground], None]] = {}

OPTIONAL = (
    "pandas",
    "cupy",
    "lz4",
    "pyproj",
    "snappy",
    "zstandard",
    "pcodec",
    "brotli",
    "isal",
    "zfpy",
    "google_crc32c",
    "PIL",
    "laspy",
    "lazrs",
    "plyfile",
    "tokenizers",
    "jinja2",
    "obstore",
    "torch",
    "mlflow",
    "wandb",
    "rerun",
    "re2",
    "fsspec",
    "s3fs",
    "bokeh",
    "psutil",
    "uvloop",
    "cython",
    "numba",
    "matplotlib",
    "scipy",
    "open3d",
    "IPython",
)
OURS = (
    "yaml",
    "pydantic",
    "click",
    "rich",
    "xxhash",
    "h5py",
    "zarr",
    "numcodecs",
    "dask",
    "distributed",
    "pyarrow",
    "orjson",
)
STANDARD = (
    "json",
    "re",
    "struct",
    "random",
    "socket",
    "ctypes",
    "zipfile",
    "tarfile",
    "pickle",
    "copyreg",
    "_codecs",
    "gzip",
    "bz2",
    "lzma",
    "zlib",
    "select",
    "selectors",
    "subprocess",
    "tempfile",
    "signal",
    "resource",
    "typing",
    "dataclasses",
    "functools",
    "contextlib",
    "pathlib",
    "logging",
    "threading",
    "readline",
    "_datacheck",
)


def canary(make: Callable[[Ground], None]) -> Callable[[Ground], None]:
    CANARIES[make.__name__] = make
    return make


# ------------------------------------------------------------------------------------------ modules


@canary
def startup_modules(ground: Ground) -> None:
    """Python imports sitecustomize and usercustomize from its path, and runs lines of .pth files in site folders."""
    for name in ("sitecustomize", "usercustomize", "conftest"):
        (ground.place / f"{name}.py").write_text(ground.python(name))
    for name in ("evil.pth", "_virtualenv.pth", "__editable__.datacheck.pth"):
        line = (
            f"import os; open({str(ground.fired / name)!r}, 'w').close(); os.kill(os.getpid(), "
            f"12)\n"
        )
        (ground.place / name).write_text(line)
    (ground.place / "pyvenv.cfg").write_text("home = .\ninclude-system-site-packages = true\n")
    (ground.place / "python311._pth").write_text(".\nimport site\n")


@canary
def modules_of_other_names(ground: Ground) -> None:
    """An import looks into the working folder: for libraries that are not installed, ours, and Python's own."""
    for name in (*OPTIONAL, *OURS, *STANDARD):
        (ground.place / f"{name}.py").write_text(ground.python(f"{name}.py"))
    for name in ("numpy", "lz4f", "encodings"):
        (ground.place / name).mkdir()
        (ground.place / name / "__init__.py").write_text(
            ground.python(f"{name}/".replace("/", ".__init__"))
        )


@canary
def a_module_called_datacheck(ground: Ground) -> None:
    """A module of our own name; `python -m datacheck` would take it before anything of ours runs."""
    (ground.place / "datacheck.py").write_text(ground.python("datacheck.py"))


@canary
def entry_points(ground: Ground) -> None:
    """A folder EVIL.dist-info on Python's path declares plug-ins."""
    folder = ground.place / "evil-1.0.dist-info"
    folder.mkdir()
    groups = (
        *(
            "datacheck.formats",
            "datacheck.rules",
            "datacheck.transforms",
            "datacheck.fix",
            "datacheck.testing.synth",
        ),
        *(
            "zarr.codecs",
            "zarr",
            "zarr.codec_pipeline",
            "numcodecs.codecs",
            "pytest11",
            "distributed.preload",
        ),
        *(
            "dask.array.backends",
            "dask.dataframe.backends",
            "dask.sizeof",
            "fsspec.specs",
            "console_scripts",
        ),
    )
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "".join(f"[{group}]\nevil = evil:codec\n" for group in groups)
    )
    (ground.place / "evil.py").write_text(ground.python("evil.py"))


@canary
def settings_of_programs(ground: Ground) -> None:
    """Configuration in the working folder that names code: of git, Dask, pytest, Python, and of the shell."""
    run = ground.shell("git").replace('"', '\\"')
    hooks = ground.place / ".git" / "hooks"
    # Whose content a partial clone would ask its server for
    promised = ground.place / "promised.txt"
    promised.write_text("promised\n")
    if shutil.which("git"):

        def git(*words: str) -> str:
            run = partial(subprocess.run, cwd=ground.place, env=ground.environment(), check=True)
            return str(run(["git", *words], capture_output=True, text=True).stdout).strip()

        git("init", "-q")
        git("add", "plain.yaml", promised.name)
        git("-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x")
        blob = git("rev-parse", f"HEAD:{promised.name}")
        (ground.place / ".git/objects" / blob[:2] / blob[2:]).unlink()
        for changed in (ground.place / "plain.yaml", promised):
            changed.write_text(changed.read_text() + "# changed\n")
    hooks.mkdir(parents=True, exist_ok=True)
    (ground.place / ".git/config").write_text(
        f'[core]\n\trepositoryformatversion = 1\n\tfsmonitor = "{run}"\n\tpager = '
        f'"{run}"\n\tsshCommand = "{run}"\n'
        f'\thooksPath = .git/hooks\n[diff]\n\texternal = "{run}"\n[filter "evil"]\n\tclean = '
        f'"{run}; cat"\n'
        f'[filter "cut\x0bhere"]\n\tclean = "{run}; cat"\n'  # some take this character for the end of a line
        "[extensions]\n\tpartialClone = origin\n"
        f'[remote "origin"]\n\turl = .\n\tpromisor = true\n\tuploadpack = "{run}; '
        f'git-upload-pack"\n'
    )
    attributes = f"* filter=evil diff=evil\n{promised.name} filter=cut\x0bhere\n"
    (ground.place / ".gitattributes").write_text(attributes)
    for name in ("post-index-change", "post-checkout", "pre-commit"):
        (hooks / name).write_text(f"#!/bin/sh\n{run}\n")
        (hooks / name).chmod(0o755)
    for name in ("dask.yaml", "distributed.yaml", ".dask/dask.yaml", ".config/dask/dask.yaml"):
        (ground.place / name).parent.mkdir(parents=True, exist_ok=True)
        (ground.place / name).write_text(
            "distributed:\n  worker:\n    preload: [evil]\n  scheduler:\n    preload: [evil]\n"
        )
    for name in (
        "git",
        "nvidia-smi",
        "gs",
        "ffmpeg",
        "ffprobe",
        "xdg-open",
        "uname",
        "lscpu",
        "ldconfig",
        "gcc",
    ):
        (ground.place / name).write_text(f"#!/bin/sh\n{ground.shell(f'program {name}')}\n")
        (ground.place / name).chmod(0o755)
    (ground.place / "pytest.ini").write_text("[pytest]\naddopts = -p evil\n")


# ------------------------------------------------------------------------------------------ pickles


class _Reduced:
    def __init__(self, call: Callable[..., object], *given: object) -> None:
        self.call, self.given = call, given

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call, self.given


def pickles(ground: Ground) -> dict[str, bytes]:
    """Return pickles by name, each of which runs something in a plain `pickle.loads`."""

    def shell(name: str) -> bytes:
        return ground.shell(f"pickle {name}").encode().replace(b"'", b"\\'")

    def code(name: str) -> bytes:
        return repr(ground.python(f"pickle {name}"))[1:-1].encode()

    def text(value: bytes) -> bytes:
        return (
            b"\x8c" + bytes([len(value)]) + value
            if len(value) < 256
            else b"X" + struct.pack("<I", len(value)) + value
        )

    plain = ground.shell("pickle stack_global").encode()
    inner = b"cposix\nsystem\n(S'" + shell("nested") + b"'\ntR."
    return {
        "reduce": b"cos\nsystem\n(S'" + shell("reduce") + b"'\ntR.",
        "posix": b"cposix\nsystem\n(S'" + shell("posix") + b"'\ntR.",
        "inst": b"(S'" + shell("inst") + b"'\nios\nsystem\n.",
        "obj": b"(cos\nsystem\nS'" + shell("obj") + b"'\no.",
        "stack_global": b"\x80\x04"
        + text(b"os")
        + text(b"system")
        + b"\x93"
        + text(plain)
        + b"\x85R.",
        "newobj": b"\x80\x02csubprocess\nPopen\n((S'sh'\nS'-c'\nS'"
        + shell("newobj")
        + b"'\nlt\x81.",
        "newobj_ex": b"\x80\x04csubprocess\nPopen\n((S'sh'\nS'-c'\nS'"
        + shell("newobj_ex")
        + b"'\nlt}\x92.",
        "exec": b"c__builtin__\nexec\n(S'" + code("exec") + b"'\ntR.",
        "eval": b"cbuiltins\neval\n(S'exec(\"import os; os.system(os.sep)\")'\ntR.",
        "import": b"c__builtin__\n__import__\n(S'evil'\ntR.",
        "getattr": b"cbuiltins\ngetattr\n(c__builtin__\n__import__\n(S'os'\ntRS'system'\ntR(S'"
        + shell("getattr")
        + b"'\ntR.",
        "dotted": b"\x80\x04"
        + text(b"pathlib")
        + text(b"os.system")
        + b"\x93"
        + text(plain)
        + b"\x85R.",
        "numpy": b"cnumpy.testing._private.utils\nrunstring\n(S'" + code("numpy") + b"'\n}tR.",
        "numpy_builtins": b"cnumpy\n__builtins__\n.",
        "distutils": b"cnumpy.distutils.exec_command\nexec_command\n(S'"
        + shell("distutils")
        + b"'\ntR.",
        "persistent": b"Pos.system\n.",
        "persistent_binary": b"\x80\x02" + text(b"os.system") + b"Q.",
        "extension": b"\x80\x02\x82\x01.",
        "build": b"\x80\x02cfunctools\npartial\n)R(cos\nsystem\n(S'"
        + shell("build")
        + b"'\nt}NtbR.",
        "nested": b"cpickle\nloads\n(B" + struct.pack("<I", len(inner)) + inner + b"tR.",
        "marshal": b"cmarshal\nloads\n(S'c'\ntR.",
        "ctypes": b"cctypes\nCDLL\n(S'./evil.so'\ntR.",
        "module": b"cevil\ncheck\n.",
        "setitem": b"\x80\x02cos\nenviron\nS'CANARY'\nS'1'\ns.",
    }


@canary
def pickles_of_every_opcode(ground: Ground) -> None:
    """An unpickler calls what the file names: alone, in NumPy files, in tars and in MDS shards."""
    for name, data in pickles(ground).items():
        (ground.place / f"{name}.pkl").write_bytes(data)
        header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
        header += b" " * (-(len(header) + 11) % 64) + b"\n"
        npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data
        (ground.place / f"{name}.npy").write_bytes(npy)
        with zipfile.ZipFile(ground.place / f"{name}.npz", "w") as file:
            file.writestr("x.npy", npy)
        with zipfile.ZipFile(ground.place / f"{name}.pt", "w") as file:
            file.writestr("archive/data.pkl", data)
        (ground.place / f"{name}.pth").write_bytes(data)
        wrapper = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}(" + b"".join(
            pickle.dumps(part, 2)[2:-1]
            for part in ("shape", (1,), "dtype", np.dtype("O"), "subclass")
        )
        (ground.place / f"{name}_joblib.pkl").write_bytes(
            b"\x80\x02" + wrapper + b"cnumpy\nndarray\nub" + data + b"."
        )
        with tarfile.open(ground.place / f"{name}-000000.tar", "w") as file:
            for suffix in ("pyd", "pickle", "pkl", "npy", "pth", "cbor"):
                member = tarfile.TarInfo(f"0000.{suffix}")
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))
        head = json.dumps(
            {
                "version": 2,
                "format": "mds",
                "column_names": ["x"],
                "column_encodings": ["pkl"],
                "column_sizes": [None],
            }
        )
        first = 12 + len(head)
        shard = (
            struct.pack("<III", 1, first, first + 4 + len(data))
            + head.encode()
            + struct.pack("<I", len(data))
            + data
        )
        (ground.place / f"shard.{len(name):05d}.{name}.mds").write_bytes(shard)
    np.save(
        ground.place / "objects.npy",
        np.array([_Reduced(os.system, ground.shell("objects.npy"))], dtype=object),
    )
    np.savez(
        ground.place / "objects.npz",
        x=np.array([_Reduced(os.system, ground.shell("objects.npz"))], dtype=object),
    )
    state = pickle.dumps({"x": _Reduced(os.system, ground.shell("torch"))})
    with zipfile.ZipFile(ground.place / "weights.pt", "w") as file:
        file.writestr("archive/data.pkl", state)


# ---------------------------------------------------------------------------------------- documents


def yaml_with_tags(ground: Ground, name: str) -> str:
    """Return YAML whose tags run something in an unsafe loader."""
    run = ground.shell(f"yaml {name}").replace('"', '\\"')
    return (
        f'a: !!python/object/apply:os.system ["{run}"]\n'
        f'b: !!python/object/new:os.system ["{run}"]\n'
        f'c: !!python/object/apply:subprocess.check_output [["sh", "-c", "{run}"]]\n'
        "d: !!python/name:evil.check\ne: !!python/module:evil\n"
    )


@canary
def tags_in_yaml(ground: Ground) -> None:
    """An unsafe YAML loader calls what a tag names: in data, lists, and whatever a program may look for."""
    for name in (
        "labels.yaml",
        "train_database.yaml",
        "datacheck.yml",
        ".datacheck.yaml",
        "dask.yml",
    ):
        (ground.place / name).write_text(yaml_with_tags(ground, name))


@canary
def schemas_in_the_data(ground: Ground) -> None:
    """A schema or pipeline that nobody named has checks and steps; some have the names of built-in ones."""
    (ground.place / "evil.py").write_text(ground.python("evil.py"))
    schema = (
        'datacheck: 1\nname: evil\nsamples: {files: "**/*"}\nfields: {"*": {}}\nchecks: '
        '["evil:check"]\n'
    )
    for name in ("schema.yaml", "datacheck.yaml", "files.yaml", "lerobot.yaml", "scannet.yaml"):
        (ground.place / name).write_text(schema)
    pipeline = (
        "datacheck: 1\nname: evil\nschema: datacheck.yaml\ntransforms:\n  - evil:check: "
        "{fields: {}}\n"
    )
    for name in ("pipeline.yaml", "libero.yaml", "aloha.yaml"):
        (ground.place / name).write_text(pipeline)
    (ground.place / "pyproject.toml").write_text(
        '[tool.datacheck]\nchecks = ["evil:check"]\nschema = "datacheck.yaml"\n'
    )


@canary
def codecs_and_filters(ground: Ground) -> None:
    """Zarr, HDF5 and Parquet name codecs, filters and types that a library would load."""
    picked = pickles(ground)["reduce"]
    old = {
        "zarr_format": 2,
        "shape": [1],
        "chunks": [1],
        "dtype": "|O",
        "compressor": None,
        "fill_value": None,
    }
    for name, filters in (
        ("pickle", [{"id": "pickle"}]),
        ("evil", [{"id": "evil"}]),
        ("json", [{"id": "json2"}]),
    ):
        folder = ground.place / f"{name}.zarr"
        folder.mkdir()
        (folder / ".zarray").write_text(json.dumps(old | {"order": "C", "filters": filters}))
        (folder / "0").write_bytes(picked)
    for number, codec in enumerate(
        ("numcodecs.pickle", "evil", "evil:codec", "evil.codec", "https://evil/codec")
    ):
        shape = {"name": "regular", "configuration": {"chunk_shape": [1]}}
        inner = [{"name": "bytes"}, {"name": codec, "configuration": {"module": "evil"}}]
        nested = {"chunk_shape": [1], "codecs": inner, "index_codecs": inner}
        new = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [1],
            "data_type": "uint8",
            "chunk_grid": shape,
            "fill_value": 0,
        }
        keys = {"chunk_key_encoding": {"name": "default"}, "attributes": {}}
        for kind, codecs in (
            ("flat", inner),
            ("nested", [{"name": "sharding_indexed", "configuration": nested}]),
        ):
            folder = ground.place / f"v3-{kind}-{number}.zarr"
            (folder / "c").mkdir(parents=True)
            (folder / "zarr.json").write_text(json.dumps(new | keys | {"codecs": codecs}))
            (folder / "c/0").write_bytes(picked)
    with h5py.File(ground.place / "filtered.h5", "w") as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((4,))
        plan.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (1,))  # Zstandard, as a plug-in
        space = h5py.h5s.create_simple((4,))
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.STD_U8LE, space, plan)
        made.write_direct_chunk((0,), b"1234")
        file["pickled"] = np.frombuffer(picked, "u1")
        file["pickled"].attrs["CLASS"], file["pickled"].attrs["python"] = "PICKLE", np.void(picked)
    for folder in ("lib/plugin", "hdf5/lib/plugin", "plugin"):
        (ground.place / folder).mkdir(parents=True)
        (ground.place / folder / "libh5zstd.so").write_bytes(b"\x7fELF")
    column = pa.field(
        "x",
        pa.binary(),
        metadata={
            "ARROW:extension:name": "arrow.py_extension_type",
            "ARROW:extension:metadata": picked,
        },
    )
    table = pa.table(
        [pa.array([picked])],
        schema=pa.schema([column], metadata={"pandas": "{}", "evil": "evil:codec"}),
    )
    pq.write_table(table, ground.place / "extension.parquet")


@canary
def pictures_that_are_programs(ground: Ground) -> None:
    """Pillow hands EPS to Ghostscript; the name says PNG."""
    script = (
        f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n(%pipe%{ground.shell('eps')}) (w) "
        f"file closefile\nshowpage\n"
    )
    for name in ("picture.png", "picture.jpg", "picture.eps"):
        (ground.place / name).write_text(script)
    for name in ("gs", "gswin64c"):
        (ground.base / "bin" / name).write_text(
            f"#!/bin/sh\n{ground.shell('ghostscript')}\nexit 1\n"
        )
        (ground.base / "bin" / name).chmod(0o755)


# ------------------------------------------------------------------------------------------ results


def hostile_run(ground: Ground, run: Path) -> None:
    """Turn a finished run into one that names code: checks in its schema, and modules beside it."""
    schema = run / "schema.yaml"
    schema.write_text(schema.read_text() + 'checks: ["evil:check", "evil_run:check"]\n')
    for folder in (run, ground.place, run.parent):
        (folder / "evil.py").write_text(ground.python("evil.py"))
        (folder / "evil_run.py").write_text(ground.python("evil_run.py"))


def pickled_run(ground: Ground, run: Path) -> None:
    """Turn a finished run into one of pickles: `listing.npz` of objects, `samples.parquet` with a pickled type."""
    picked = pickles(ground)["posix"]
    np.savez(
        run / "listing.npz",
        x=np.array([_Reduced(os.system, ground.shell("listing.npz"))], dtype=object),
    )
    column = pa.field(
        "key",
        pa.binary(),
        metadata={
            "ARROW:extension:name": "arrow.py_extension_type",
            "ARROW:extension:metadata": picked,
        },
    )
    pq.write_table(
        pa.table([pa.array([picked])], schema=pa.schema([column])), run / "samples.parquet"
    )
    (run / "valid.json").write_bytes(picked)


def hostile_cache(ground: Ground, cache: Path) -> None:
    """Let every array of a finished cache name a codec that runs what it reads."""
    for path in cache.rglob("zarr.json"):
        said = json.loads(path.read_bytes())
        if said.get("node_type") == "array":
            said["codecs"][0]["configuration"]["codecs"] = [
                {"name": "numcodecs.pickle"},
                {"name": "evil", "configuration": {}},
            ]
            path.write_text(json.dumps(said))
    (cache / "evil.py").write_text(ground.python("evil.py"))


def hostile_journal(ground: Ground, work: Path) -> None:
    """Leave parts of an interrupted scan that are pickles."""
    work.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(pickles(ground).values()):
        (work / f"part-{number:08d}").write_bytes(data)
