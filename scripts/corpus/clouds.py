"""Point clouds and meshes."""

from __future__ import annotations

import io
import struct

import laspy
import numpy as np
from corpus.put import RNG, put


def plys() -> None:
    def ply(kind: str, lines: list[str], body: bytes) -> bytes:
        return "\n".join(["ply", f"format {kind} 1.0", *lines, "end_header", ""]).encode() + body

    xyz = ["property float x", "property float y", "property float z"]
    rgb = [f"property uchar {c}" for c in ("red", "green", "blue", "alpha")]
    face = ["element face 2", "property list uchar int vertex_indices"]
    mesh = ["comment made for a test", "element vertex 4", *xyz, *face]
    corners = "0 0 0\n1 0 0\n1 1 0\n0 1 0\n"
    put("ply/y_ascii.ply", ply("ascii", mesh, f"{corners}3 0 1 2\n3 0 2 3\n".encode()))
    put(
        "ply/y_crlf.ply",
        ply("ascii", mesh, f"{corners}3 0 1 2\n3 0 2 3\n".encode()).replace(b"\n", b"\r\n"),
    )
    put("ply/y_quad.ply", ply("ascii", mesh, f"{corners}4 0 1 2 3\n3 0 1 2\n".encode()))
    for order, mark in (("little", "<"), ("big", ">")):
        rows = np.zeros(4, [("p", f"{mark}f4", 3), ("c", "u1", 4)])
        rows["p"], rows["c"] = np.arange(12).reshape(4, 3), [255, 128, 0, 9]
        vertices = ["element vertex 4", *xyz, *rgb, *face]
        triangles = np.array([(3, [0, 1, 2]), (3, [0, 2, 3])], [("n", "u1"), ("v", f"{mark}i4", 3)])
        put(
            f"ply/y_{order}.ply",
            ply(f"binary_{order}_endian", vertices, rows.tobytes() + triangles.tobytes()),
        )
        mixed = struct.pack(f"{mark}B4iB3i", 4, 0, 1, 2, 3, 3, 0, 1, 2)
        put(
            f"ply/y_{order}_mixed.ply",
            ply(f"binary_{order}_endian", vertices, rows.tobytes() + mixed),
        )
    lists = [
        "element vertex 1",
        *xyz,
        "element strip 2",
        "property list int float w",
        "property double s",
    ]
    put("ply/y_lists.ply", ply("ascii", lists, b"0 0 0\n2 0.5 1.5 9\n0 8\n"))
    put("ply/y_nothing.ply", ply("ascii", ["element vertex 0", *xyz], b""))
    put(
        "ply/n_huge_count.ply",
        ply("binary_little_endian", ["element vertex 9000000000000", *xyz], bytes(24)),
    )
    put("ply/n_huge_ascii.ply", ply("ascii", ["element vertex 9000000000000", *xyz], b"1 2 3\n"))
    put("ply/n_negative.ply", ply("ascii", ["element vertex -4", *xyz], b"1 2 3\n"))
    list_header = ["element face 1", "property list int int vertex_indices"]
    put(
        "ply/n_list_count.ply",
        ply("binary_little_endian", list_header, struct.pack("<i", 2**31 - 1)),
    )
    put(
        "ply/n_list_negative.ply",
        ply("binary_little_endian", list_header, struct.pack("<ii", -2, 0)),
    )
    put("ply/n_list_ascii.ply", ply("ascii", list_header, b"1e300 1 2\n"))
    put("ply/n_truncated.ply", ply("binary_little_endian", ["element vertex 4", *xyz], bytes(47)))
    put(
        "ply/n_trailing.ply",
        ply("binary_little_endian", ["element vertex 4", *xyz], bytes(48) + b"rest"),
    )
    put("ply/n_word.ply", ply("ascii", ["element vertex 1", *xyz], b"1 2 three\n"))
    put("ply/n_fraction.ply", ply("ascii", ["element vertex 1", "property uchar red"], b"1.5\n"))
    put("ply/n_type.ply", ply("ascii", ["element vertex 1", "property quad x"], b"1\n"))
    put("ply/n_twice.ply", ply("ascii", ["element vertex 1", xyz[0], xyz[0]], b"1 2\n"))
    put("ply/n_no_end.ply", b"ply\nformat ascii 1.0\nelement vertex 1\n" + b"comment x\n" * 8000)
    put("ply/n_format.ply", ply("binary_middle_endian", ["element vertex 0", *xyz], b""))
    put("ply/n_empty.ply", b"")


def packed(data: bytes) -> bytes:
    """liblzf's format: literal runs, and references for runs of one byte."""
    out, at = b"", 0
    while at < len(data):
        run = 1
        while at + run < len(data) and data[at + run] == data[at] and run < 265:
            run += 1
        out += b"\0" + data[at : at + 1]
        at += 1
        if run >= 4:  # one literal, then a reference one byte back that overlaps what it writes
            length = run - 1 - 2
            out += bytes([length << 5, 0]) if length < 7 else bytes([7 << 5, length - 7, 0])
            at += run - 1
    return out


def pcds() -> None:
    def pcd(
        fields: str, sizes: str, kinds: str, points: object, data: str, body: bytes, more: str = ""
    ) -> bytes:
        counts = more or " ".join("1" for _ in fields.split())
        text = (
            f"# .PCD v.7\nVERSION .7\nFIELDS {fields}\nSIZE {sizes}\nTYPE {kinds}\nCOUNT "
            f"{counts}\nWIDTH {points}\n"
        )
        return (
            f"{text}HEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {points}\nDATA {data}\n".encode()
            + body
        )

    rows = np.zeros(5, [("p", "<f4", 3), ("rgb", "<u4"), ("n", "<f4", 3), ("label", "<u2")])
    rows["p"], rows["rgb"] = np.arange(15).reshape(5, 3), 0xFF8001
    rows["n"], rows["label"] = [0, 0, 1], np.arange(5)
    names = ("x y z rgb normal_x normal_y normal_z label", "4 4 4 4 4 4 4 2", "F F F F F F F U")
    put("pcd/y_binary.pcd", pcd(*names, 5, "binary", rows.tobytes()))
    columns = b"".join(
        np.ascontiguousarray(c).tobytes()
        for c in (*rows["p"].T, rows["rgb"], *rows["n"].T, rows["label"])
    )
    raw = packed(columns)
    sizes = struct.pack("<II", len(raw), len(columns))
    put("pcd/y_compressed.pcd", pcd(*names, 5, "binary_compressed", sizes + raw))
    put(
        "pcd/y_ascii.pcd",
        pcd("x y z intensity", "4 4 4 4", "F F F F", 2, "ascii", b"1 2 3 0.5\nnan nan nan 1\n"),
    )
    counted = pcd(
        "x y z fpfh _", "4 4 4 4 1", "F F F F U", 1, "ascii", b"1 2 3 7 8 0 0\n", "1 1 1 2 2"
    )
    put("pcd/y_counts.pcd", counted)
    old = (
        b"# .PCD v.5\nVERSION .5\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nWIDTH 1\nHEIGHT "
        b"2\nPOINTS 2\n"
    )
    old += b"DATA ascii\n1 2 3\n4 5 6\n"
    put("pcd/y_version_5.pcd", old)
    put("pcd/y_nothing.pcd", pcd("x y z", "4 4 4", "F F F", 0, "binary", b""))
    xyz = ("x y z", "4 4 4", "F F F")
    put("pcd/n_huge.pcd", pcd(*xyz, 10**13, "binary", bytes(24)))
    put("pcd/n_negative.pcd", pcd(*xyz, -3, "binary", bytes(24)))
    put("pcd/n_too_few.pcd", pcd(*xyz, 3, "binary", bytes(24)))
    put("pcd/n_trailing.pcd", pcd(*xyz, 2, "binary", bytes(24) + b"more"))
    put("pcd/n_ascii_short.pcd", pcd(*xyz, 3, "ascii", b"1 2 3\n4 5 6\n"))
    put("pcd/n_word.pcd", pcd(*xyz, 1, "ascii", b"1 2 three\n"))
    put(
        "pcd/n_unpacked_size.pcd",
        pcd(*xyz, 2, "binary_compressed", struct.pack("<II", 2, 2**32 - 1) + b"\0\0"),
    )
    put(
        "pcd/n_packed_size.pcd",
        pcd(*xyz, 2, "binary_compressed", struct.pack("<II", 2**32 - 1, 24) + b"\0\0"),
    )
    put(
        "pcd/n_lzf_before.pcd",
        pcd(*xyz, 2, "binary_compressed", struct.pack("<II", 3, 24) + b"\xe0\x0d\xff"),
    )
    put(
        "pcd/n_lzf_short.pcd",
        pcd(*xyz, 2, "binary_compressed", struct.pack("<II", 2, 24) + b"\0\0"),
    )
    put(
        "pcd/n_lzf_cut.pcd",
        pcd(*xyz, 2, "binary_compressed", struct.pack("<II", 2, 24) + b"\x1f\0"),
    )
    put("pcd/n_encoding.pcd", pcd(*xyz, 1, "morse", b"...\n"))
    put("pcd/n_type.pcd", pcd("x", "4", "Q", 1, "ascii", b"1\n"))
    put("pcd/n_twice.pcd", pcd("x x", "4 4", "F F", 1, "ascii", b"1 2\n"))
    put("pcd/n_no_data.pcd", b"# .PCD v.7\nVERSION .7\nFIELDS x y z\n")
    put("pcd/n_width.pcd", old.replace(b"POINTS 2", b"POINTS 3"))


def las() -> None:
    def made(suffix: str) -> bytes:
        cloud = laspy.create(point_format=3, file_version="1.2")
        cloud.header.scales, cloud.header.offsets = [0.01] * 3, [100, 200, 0]
        cloud.x, cloud.y, cloud.z = (
            100 + np.arange(6) / 4,
            200 + np.arange(6) / 2,
            np.arange(6) / 100,
        )
        cloud.red, cloud.intensity = np.arange(6) * 1000, np.arange(6)
        stream = io.BytesIO()
        with laspy.open(
            stream, "w", header=cloud.header, do_compress=suffix == "laz", closefd=False
        ) as out:
            out.write_points(cloud.points)
        data = bytearray(stream.getvalue())
        data[90:94] = struct.pack("<HH", 1, 2026)  # the day of creation
        return bytes(data)

    plain, packed_points = made("las"), made("laz")

    def changed(data: bytes, at: int, kind: str, value: int) -> bytes:
        patched = bytearray(data)
        struct.pack_into(kind, patched, at, value)
        return bytes(patched)

    put("las/y_points.las", plain)
    put("las/y_points.laz", packed_points)
    put("las/n_point_count.las", changed(plain, 107, "<I", 2**32 - 1))
    put("las/n_record_count.las", changed(plain, 100, "<I", 2**32 - 1))
    put("las/n_offset.las", changed(plain, 96, "<I", 2**31))
    put("las/n_truncated.las", plain[:-1])
    put("las/n_cut_header.las", plain[:200])
    put("las/n_garbage.las", b"LASF" + RNG.integers(0, 256, 2000, dtype=np.uint8).tobytes())
    put("las/n_text.las", b"not a cloud")
    start = struct.unpack_from("<I", packed_points, 96)[0]
    table = struct.unpack_from("<q", packed_points, start)[0]
    put("las/n_chunk_table.laz", changed(packed_points, start, "<q", 2**60))
    put("las/n_chunk_count.laz", changed(packed_points, table + 4, "<I", 2**32 - 1))
    put("las/n_laz_count.laz", changed(packed_points, 107, "<I", 2**32 - 1))
    put(
        "las/i_laz_points.laz", packed_points[: start + 8] + bytes(30) + packed_points[start + 38 :]
    )


def raw() -> None:
    sweep = RNG.normal(size=(6, 4)).astype("f4")
    put("kitti/y_000008.bin", sweep.tobytes())
    put("kitti/y_flat.bin", sweep[0, :3].tobytes())
    put("kitti/y_lidar.pcd.bin", RNG.normal(size=(4, 5)).astype("f4").tobytes())
    put("kitti/y_000000.label", np.array([(7 << 16) + 40, 50], "<u4").tobytes())
    put("kitti/y_empty.bin", b"")
    put("kitti/n_odd.bin", bytes(7))
    put("kitti/n_row.pcd.bin", bytes(24))
    put("kitti/n_odd.label", bytes(6))


def meshes() -> None:
    cube = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\n"
    put("obj/y_quad.obj", f"# a square\no square\n{cube}f 1 2 3 4\n".encode())
    put(
        "obj/y_slashes.obj",
        f"{cube}vt 0 0\nvn 0 0 1\nf 1/1/1 2/1/1 3/1/1\nf 1//1 3//1 4//1\n".encode(),
    )
    put("obj/y_negative.obj", f"{cube}f -4 -3 -2\nv 5 5 5\nf -1 1 2\n".encode())
    put("obj/y_colors.obj", b"v 0 0 0 1 0 0\nv 1 0 0 nan nan nan\n")
    put("obj/y_continued.obj", f"{cube}f 1 2 \\\n 3 4\nusemtl f\ng f 9 9\nl 1 2\n".encode())
    put("obj/y_nothing.obj", b"# nothing here\n")
    put("obj/n_index.obj", f"{cube}f 1 2 9\n".encode())
    put("obj/n_zero.obj", f"{cube}f 0 1 2\n".encode())
    put("obj/n_before.obj", f"{cube}f -5 1 2\n".encode())
    put("obj/n_short.obj", b"v 0 0\n")
    put("obj/n_word.obj", b"v 0 0 zero\n")
    put("obj/n_fraction.obj", f"{cube}f 1 2 2.5\n".encode())
    put("obj/n_text.obj", b"This is a page of a book.\n")
    put("obj/n_binary.obj", b"v 1 2 3\n\0\0\0\1")
    put(
        "off/y_square.off",
        b"OFF\n# a square\n4 1 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n4 0 1 2 3 255 0 0\n",
    )
    put("off/y_one_line.off", b"  OFF3 1 0 # or nah\n0 0 0\n1 0 0\n1 1 0\n3 0 1 2\n")
    put("off/n_count.off", b"OFF\n353535235358 6 0\n0 0 0\n")
    put("off/n_corner.off", b"OFF\n3 1 0\n0 0 0\n1 0 0\n1 1 0\n3 0 1 7\n")
    put("off/n_short_face.off", b"OFF\n3 1 0\n0 0 0\n1 0 0\n1 1 0\n9 0 1\n")
    put("off/n_short_vertex.off", b"OFF\n1 0 0\n0 0\n")
    put("off/n_empty.off", b"")
    put("off/n_text.off", b"ON\n")
