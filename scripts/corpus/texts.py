"""Text, JSON, YAML and images."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zlib

import numpy as np
from corpus.put import RNG, put
from PIL import Image


def json_lines() -> None:
    chat = {
        "conversations": [
            {"role": "user", "content": "Hi \u4f60\u597d"},
            {"role": "assistant", "content": "Hello"},
        ]
    }
    line = json.dumps(chat, ensure_ascii=False).encode()
    put("jsonl/y_chat.jsonl", line + b"\n" + line + b"\n")
    put("jsonl/y_no_newline.jsonl", line + b"\n" + line)
    put("jsonl/y_bom.jsonl", b"\xef\xbb\xbf" + line + b"\n")
    put("jsonl/y_blank.jsonl", line + b"\r\n\r\n\n" + line + b"\n")
    put("jsonl/y_empty.jsonl", b"")
    put("jsonl/y_lines.jsonl.gz", gzip.compress(line + b"\n" + line + b"\n", mtime=0))
    put("jsonl/y_lines.json.gz", gzip.compress(line + b"\n" + line + b"\n", mtime=0))
    put("jsonl/y_list.json.gz", gzip.compress(b"[1, {}]", mtime=0))
    put("jsonl/n_comma.jsonl", line + b'\n{"a": 1,}\n' + line + b"\n")
    put("jsonl/n_cut.jsonl", line + b"\n" + line[:-9])
    put("jsonl/n_nan.jsonl", b'{"a": NaN}\n')
    put("jsonl/n_utf8.jsonl", line + b"\n" + b'{"a": "\xff"}\n')
    put("jsonl/n_surrogate.jsonl", b'{"a": "\\ud800"}\n')
    put("jsonl/n_two_on_a_line.jsonl", b"{}{}\n")
    put("jsonl/n_deep.jsonl", b"[" * 50_000 + b"]" * 40_000 + b"\n")
    put("jsonl/n_cut.jsonl.gz", gzip.compress(line * 50, mtime=0)[:-12])
    put("jsonl/n_plain.jsonl.gz", line + b"\n")


def documents() -> None:
    put(
        "json/y_captions.json",
        json.dumps({"objects": {"7": {"text": "a cup"}}, "box": [[0, 1], [2, 3]], "n": 3}).encode(),
    )
    put("json/y_list.json", b'[{"a": 1}, {"a": 2}]')
    put("json/y_null.json", b"null")
    put("json/y_number.json", b"-2.5")
    put("json/y_bom.json", b'\xef\xbb\xbf{"a": [1, 2]}')
    put("json/y_lines.json", b'{"a": 1}\n{"a": 2}\n')
    put("json/n_comma.json", b'{"a": 1,}')
    put("json/n_nan.json", b'{"a": NaN}')
    put("json/n_utf8.json", b'{"a": "\xe9"}')
    put("json/n_single_quotes.json", b"{'a': 1}")
    put("json/n_empty.json", b"")
    put("json/n_too_deep_to_write.json", b"[" * 300 + b"]" * 300)
    put("json/n_deep.json", b'{"a":' * 5000 + b"1" + b"}" * 5000)
    put("json/n_two.json", b"[][]")


def yamls() -> None:
    database = "- filepath: data/scene0000_00.npy\n  color_mean: [0.5, 0.25, 1.0e-1]\n  scene: 0\n"
    put("yaml/y_database.yaml", database.encode())
    put(
        "yaml/y_labels.yaml",
        b"0:\n  name: wall\n  color: [1, 2, 3]\n1: &one\n  name: floor\n2: *one\nday: 2024-05-06\n",
    )
    put("yaml/y_merge.yaml", b"base: &b {x: 1, y: 2}\nmore: {<<: *b, y: 3}\nmean: [.nan, 1.0]\n")
    put("yaml/y_nothing.yaml", b"# nothing\n")
    laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    merges = "a: &a {x: 1}\n"
    for this, last in zip("bcdefghij", "abcdefghi", strict=True):
        laughs += f"{this}: &{this} [{', '.join([f'*{last}'] * 9)}]\n"
        merges += f"{this}: &{this} {{<<: [{', '.join([f'*{last}'] * 9)}]}}\n"
    put("yaml/n_laughs.yaml", laughs.encode())
    put("yaml/n_merge_laughs.yaml", merges.encode())
    put("yaml/n_circle.yaml", b"a: &a [*a]\n")
    put("yaml/n_object.yaml", b"!!python/object/apply:os.system ['true']\n")
    put("yaml/n_deep.yaml", b"[" * 20_000 + b"]" * 20_000)
    put("yaml/n_tab.yaml", b"a:\n\tb: 1\n")
    put("yaml/n_open.yaml", b"a: [1, 2\n")
    put("yaml/n_utf8.yaml", b"a: \xff\n")
    put("yaml/n_set.yaml", b"a: !!set {x, y}\n")


def plain() -> None:
    put("text/y_instance_gt.txt", b"5001\n5001\n-100099\n0\n")
    put("text/y_cloud.xyz", b"665187.522077 5648349.895035 241.767693\n1.5 2 -3e-2\n")
    put("text/y_header.csv", b"X,Y,Z\r\n289814.15,4320978.61,170.76\r\n1,2,3\r\n")
    put("text/y_counted.pts", b"2\n0.5 1 2\n1 2 3\n")
    put("text/y_list.txt", b"ABF10/0000\nABF10/0001\n")
    put("text/y_ragged.txt", b"1 2\n3\n")
    put("text/y_empty.txt", b"")
    put("text/n_latin_1.txt", b"caf\xe9\n")
    put("text/n_binary.txt", b"\x7fELF\0\0\0")
    packed = gzip.compress(b"text,label\na b,1\nc d,2\n", mtime=0)
    put("gzip_text/y_header.csv.gz", packed)
    put("gzip_text/y_text.txt.gz", gzip.compress(b"a text\n", mtime=0))
    put("gzip_text/n_cut.csv.gz", packed[:-9])
    put("gzip_text/n_crc.csv.gz", packed[:-8] + bytes(4) + packed[-4:])
    put("gzip_text/n_more.tsv.gz", packed + b"more")
    put("gzip_text/n_zero.txt.gz", gzip.compress(b"a\0", mtime=0))
    put("columns/y_words.dict", b"A  EY\nB  B IY\n")
    put("columns/y_pairs.tab", b"a b\tc d\r\ne f\tg h\r\n")
    put("columns/n_latin_1.dict", b"CAF\xc9  K AE F EY\n")
    put("columns/n_zero.tab", b"a\tb\0\n")


def images() -> None:
    def image(array: np.ndarray, kind: str, **more) -> bytes:
        stream = io.BytesIO()
        Image.fromarray(array).save(stream, kind, **more)
        return stream.getvalue()

    color = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    put("image/y_color.png", image(color, "PNG"))
    put("image/y_color.jpg", image(color, "JPEG"))
    put("image/y_depth.png", image(RNG.integers(0, 65536, (4, 3), dtype=np.uint16), "PNG"))
    put("image/y_mask.png", image(np.array([[True, False]]), "PNG"))
    palette = Image.new("P", (2, 2))
    palette.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    palette.putdata([0, 3, 2, 1])
    stream = io.BytesIO()
    palette.save(stream, "PNG")
    put("image/y_palette.png", stream.getvalue())
    good = image(color, "PNG")
    put("image/n_truncated.png", good[:-30])
    put("image/n_text.png", b"not an image")
    put("image/n_empty.jpg", b"")
    wide = bytearray(good)
    struct.pack_into(">II", wide, 16, 100_000, 100_000)
    struct.pack_into(">I", wide, 29, zlib.crc32(bytes(wide[12:29])))
    put("image/n_bomb.png", bytes(wide))
    flipped = bytearray(good)
    flipped[45] ^= 0xFF
    put("image/i_flipped.png", bytes(flipped))
