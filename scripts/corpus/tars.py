"""Tar shards: members in WebDataset's way, and what a hostile archive may try."""

from __future__ import annotations

import gzip
import tarfile

import numpy as np
from corpus.arrays import saved
from corpus.put import put

POINTS = saved(np.arange(6, dtype="f4").reshape(2, 3))
GOOD = {
    "0000.points.npy": POINTS,
    "0000.txt": b"a cup",
    "0001.points.npy": POINTS,
    "0001.txt": b"two cups",
}
END = bytes(1024)


def info(
    name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, target: str = ""
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, size, target
    return member


def member(name: str, data: bytes = b"", form: int = tarfile.GNU_FORMAT, **pax: str) -> bytes:
    one = info(name, size=len(data))
    one.pax_headers = pax
    return one.tobuf(form) + data + bytes(-len(data) % 512)


def tar(files: dict[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    return b"".join(member(name, data, form) for name, data in files.items()) + END


def header(name: str, size: bytes, kind: bytes = b"0") -> bytes:
    """A header whose size field says anything, with the checksum that fits."""
    raw = bytearray(info(name, kind).tobuf(tarfile.GNU_FORMAT))
    raw[124:136], raw[148:156] = size.ljust(12, b"\0"), b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def good() -> None:
    put("tar/y_ustar.tar", tar(GOOD, tarfile.USTAR_FORMAT))
    put(
        "tar/y_long_gnu.tar",
        tar({f"{'a/' * 80}0000.txt": b"deep", f"{'a/' * 80}0000.cls": b" 7\n"}),
    )
    put("tar/y_long_pax.tar", tar({f"caf\u00e9/{'b' * 120}/0000.txt": b"deep"}, tarfile.PAX_FORMAT))
    folders = [info("./", tarfile.DIRTYPE).tobuf(), info("./a/", tarfile.DIRTYPE).tobuf()]
    rest = [
        member("./a/0000.json", b'{"n": [1, 2], "who": null}'),
        member("./README", b"no key"),
        member("./.x.npy"),
    ]
    put("tar/y_folder.tar", b"".join([*folders, *rest, END]))
    put(
        "tar/y_base256.tar",
        header("0000.txt", b"\x80" + (5).to_bytes(11, "big")) + b"a cup" + bytes(507) + END,
    )
    comment = tarfile.TarInfo.create_pax_global_header({"comment": "0123abcd"})
    put("tar/y_comment.tar", comment + tar(GOOD))
    put("tar/y_empty.tar", END)


def bad() -> None:
    whole = tar(GOOD)
    put("tar/n_text.tar", b"not a file of this kind\n" * 40)
    put("tar/n_truncated.tar", whole[: 512 + 100])
    put("tar/n_no_end.tar", whole[:2048])
    put("tar/n_joined.tar", whole + whole)
    put("tar/n_checksum.tar", whole.replace(b"0000.txt", b"0009.txt"))
    put("tar/n_size.tar", header("0000.txt", b"77777777777") + END)
    put("tar/n_size_256.tar", header("0000.txt", b"\x80" + (1 << 70).to_bytes(11, "big")) + END)
    put("tar/n_size_word.tar", header("0000.txt", b"five") + END)
    put(
        "tar/n_pax_size.tar",
        member("0000.txt", b"a cup", tarfile.PAX_FORMAT, size="9999999999") + END,
    )
    put("tar/n_pax_bomb.tar", header("pax", b"%011o" % (1 << 30), b"x") + END)
    put(
        "tar/n_pax_record.tar",
        header("pax", b"%011o" % 12, b"x") + b"99 path=a.b\n".ljust(512, b"\0") + END,
    )
    put(
        "tar/n_pax_alone.tar",
        header("pax", b"%011o" % 13, b"x") + b"13 path=a.bc\n".ljust(512, b"\0") + END,
    )
    links = {"symbolic": (tarfile.SYMTYPE, "/etc/passwd"), "hard": (tarfile.LNKTYPE, "0000.txt")}
    kinds = links | {
        "device": (tarfile.CHRTYPE, ""),
        "pipe": (tarfile.FIFOTYPE, ""),
        "volume": (b"V", ""),
    }
    for name, (kind, target) in kinds.items():
        odd = info("0001.txt", kind, target=target).tobuf(tarfile.GNU_FORMAT)
        put(f"tar/n_{name}.tar", member("0000.txt", b"a cup") + odd + END)
    put("tar/n_sparse.tar", header("0000.txt", b"%011o" % 0, b"S") + END)
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 40)}
    put("tar/n_pax_sparse.tar", member("0000.txt", b"a cup", tarfile.PAX_FORMAT, **sparse) + END)
    put("tar/n_absolute.tar", tar({"/etc/0000.txt": b"a cup"}))
    put("tar/n_parent.tar", tar({"../../0000.txt": b"a cup"}))
    put("tar/n_newline.tar", tar({"00\n00.txt": b"a cup"}))
    latin = info("000\u00e9.txt").tobuf(tarfile.GNU_FORMAT, encoding="latin-1")
    put("tar/n_name.tar", latin + END)
    put("tar/n_twice.tar", tar(GOOD)[:-1024] + member("0001.txt", b"another") + END)
    put("tar/n_case.tar", tar({"0000.txt": b"a", "0000.TXT": b"b"}))
    apart = {"0000.txt": b"a cup", "0001.txt": b"two cups", "0000.points.npy": POINTS}
    put("tar/n_apart.tar", tar(apart))
    put("tar/n_folder.tar", tar({"a.txt": b"a cup", "a/b.txt": b"two cups"}))
    put("tar/n_class.tar", tar({"0000.cls": b"cup"}))
    put("tar/n_json.tar", tar({"0000.json": b'{"x": NaN}'}))
    put("tar/n_npy.tar", tar({"0000.npy": POINTS[:-1]}))
    put("tar/n_empty_npy.tar", tar({"0000.npy": b""}))
    put("tar/n_system.tar", tar({"0000.pyd": b"cos\nsystem\n(S'touch hacked'\ntR."}))
    put("tar/n_gzip.tar", gzip.compress(whole, mtime=0))
    signed = bytearray(info("caf\u00e9.txt").tobuf(tarfile.GNU_FORMAT))
    signed[148:155] = b"%06o\0" % (sum(signed[:148]) + sum(signed[156:]) + 8 * 32 - 2 * 256)
    put("tar/i_signed.tar", bytes(signed) + END)
