"""MP4 files without pictures: boxes put together by hand, after ISO/IEC 14496-12."""

from __future__ import annotations

import struct

from corpus.put import put

BRAND = b"isom\0\0\2\0isomiso2mp41"


def box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def full(kind: bytes, *parts: bytes, version: int = 0) -> bytes:
    return box(kind, bytes([version, 0, 0, 0]), *parts)


def table(kind: bytes, rows: list[tuple[int, int]], version: int = 0) -> bytes:
    pack = ">Ii" if version else ">II"
    return full(
        kind,
        struct.pack(">I", len(rows)),
        *(struct.pack(pack, *row) for row in rows),
        version=version,
    )


def track(handler: bytes, scale: int, *tables: bytes, long: bool = False) -> bytes:
    times = struct.pack(">QQIQ", 0, 0, scale, 0) if long else struct.pack(">IIII", 0, 0, scale, 0)
    media = full(b"mdhd", times, bytes(4), version=int(long))
    kind = full(b"hdlr", bytes(4), handler, bytes(13))
    return box(
        b"trak",
        full(b"tkhd", bytes(80)),
        box(b"mdia", media, kind, box(b"minf", box(b"stbl", *tables))),
    )


def sizes(count: int, same: int = 9) -> bytes:
    return full(b"stsz", struct.pack(">II", same, count), *(() if same else [bytes(4)] * count))


def movie(*tracks: bytes) -> bytes:
    return box(b"moov", full(b"mvhd", bytes(96)), *tracks)


def mp4s() -> None:
    start, data = box(b"ftyp", BRAND), box(b"mdat", bytes(90))
    even = track(b"vide", 12_800, table(b"stts", [(10, 512)]), sizes(10))  # 25 frames a second
    put("mp4/y_end.mp4", start + data + movie(even))
    put("mp4/y_front.mp4", start + movie(even) + struct.pack(">I4s", 0, b"mdat") + bytes(90))
    wide = struct.pack(">I4sQ", 1, b"mdat", 16 + 90) + bytes(90)
    sound = track(b"soun", 48_000, table(b"stts", [(40, 1024)]), sizes(40))
    uneven = track(
        b"vide", 600, table(b"stts", [(2, 20), (1, 60), (3, 20)]), sizes(6, same=0), long=True
    )
    put("mp4/y_sound.mov", start + wide + movie(sound, uneven))
    order = table(b"ctts", [(1, 0), (1, 600), (1, -200), (1, -200)], version=1)
    put(
        "mp4/y_order.m4v",
        start + data + movie(track(b"vide", 1000, table(b"stts", [(4, 200)]), order, sizes(4))),
    )
    put("mp4/y_nothing.mp4", start + movie(track(b"vide", 90_000, table(b"stts", []), sizes(0))))
    put("mp4/n_cut.mp4", (start + movie(even) + data)[:-30])
    put("mp4/n_not_finished.mp4", start + data)
    put("mp4/n_sound.mp4", start + movie(sound))
    put("mp4/n_fragments.mp4", start + movie(even) + box(b"moof", bytes(16)) + data)
    put("mp4/n_clock.mp4", start + movie(track(b"vide", 0, table(b"stts", [(1, 1)]), sizes(1))))
    put("mp4/n_count.mp4", start + movie(track(b"vide", 30, table(b"stts", [(11, 1)]), sizes(10))))
    put(
        "mp4/n_many.mp4",
        start + movie(track(b"vide", 30, table(b"stts", [(2**32 - 1, 1)]), sizes(2**32 - 1))),
    )
    short = full(b"stts", struct.pack(">I", 5), bytes(16))
    put("mp4/n_table.mp4", start + movie(track(b"vide", 30, short, sizes(5))))
    put("mp4/n_inner.mp4", start + movie(even[:100] + struct.pack(">I", 9000) + even[104:]))
    put("mp4/n_no_table.mp4", start + movie(track(b"vide", 30, sizes(3))))
    put("mp4/n_text.mp4", b"This is not a video, but a line of text that somebody renamed.\n")
    put("mp4/n_empty.mp4", b"")
