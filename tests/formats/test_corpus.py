"""Every format reads its y_ files, refuses its n_ files with a reason, and survives its i_ files."""

from __future__ import annotations

import re

import pytest

from datacheck.errors import FormatError
from datacheck.formats.base import formats
from tests.formats.reading import CORPUS, read_all

FILES = sorted(
    path for folder in CORPUS.iterdir() for path in folder.iterdir() if path.name[1] == "_"
)

REASONS = {
    "arrow/n_bomb.arrow": "message 1: 1,125,899,906,842,624 bytes",
    "arrow/n_cut.arrow": "the file is cut short",
    "arrow/n_first.feather": "Feather of version 1",
    "arrow/n_offsets.arrow": "x: Offset invariant failure",
    "arrow/n_stream_cut.arrow": "message 2 at byte 888 has 376 bytes, 306 are left: the file is "
    "cut short",
    "arrow/n_text.arrow": "the schema at byte 0: a description of 544,501,614 bytes, 20 are left",
    "arrow/n_twice.arrow": "two columns have one name",
    "arrow/n_utf8.arrow": "x: Invalid UTF8 sequence",
    "bvh/n_brace.bvh": "2 joints and 1 open braces",
    "bvh/n_channel_name.bvh": "line 9: CHANNELS '3 Zscale Xrotation Yrotation'",
    "bvh/n_channels.bvh": "line 9: CHANNELS '4 Zrotation",
    "bvh/n_close.bvh": "line 16: '}'",
    "bvh/n_columns.bvh": "line 20: 8 numbers in a frame; the hierarchy declares 9 channels",
    "bvh/n_cut_header.bvh": "'Frames: 2' and '' follow MOTION",
    "bvh/n_frames.bvh": "Frames of the header is not the number of motion lines: 3 and 2",
    "bvh/n_joint_alone.bvh": "line 2: 'JOINT Hips'",
    "bvh/n_more_frames.bvh": "Frames of the header is not the number of motion lines: 1 and 2",
    "bvh/n_no_joint.bvh": "0 joints",
    "bvh/n_no_motion.bvh": "without a MOTION line",
    "bvh/n_no_offset.bvh": "2 joints and 1 OFFSET lines",
    "bvh/n_offset.bvh": "line 8: an OFFSET of 2 numbers",
    "bvh/n_statement.bvh": "line 6: 'BONE Left Leg'",
    "bvh/n_text.bvh": "not a BVH file",
    "bvh/n_time.bvh": "'fast' stands where a number",
    "bvh/n_two_offsets.bvh": "line 5: the joint 'Hips'",
    "bvh/n_word.bvh": "'up' stands where a number",
    "bvh/n_zero.bvh": "code 0",
    "columns/n_zero.tab": "byte 3 is zero",
    "conll/n_columns.conll": r"sentence 2 \(line 6\): 1 column; most of the first lines",
    "conll/n_verse.iob": "no sentences",
    "conllu/n_columns.conllu": r"sentence 2 \(line 6\): 9 columns",
    "conllu/n_head.conllu": r"sentence 2 \(line 6\): HEAD of word 2 is 7, beyond the 2 words",
    "conllu/n_ids.conllu": r"sentence 2 \(line 7\): word 3 stands where word 2 should be",
    "conllu/n_root.conllu": "no root",
    "conllu/n_swapped.conllu": r"UPOS others \(NNS, VB\)",
    "conllu/n_utf8.conllu": r"line 7\): byte 0xe9 is not UTF-8; read as cp1252",
    "gzip_text/n_crc.csv.gz": "CRC check failed",
    "gzip_text/n_cut.csv.gz": "ended before the end-of-stream marker",
    "gzip_text/n_more.tsv.gz": "other bytes follow the packed ones",
    "gzip_text/n_zero.txt.gz": "byte 1 is zero",
    "hdf5/n_dangling.hdf5": "soft link to /nowhere, which does not exist",
    "hdf5/n_external_link.hdf5": "external link to another file",
    "hdf5/n_external_storage.hdf5": "values lie in other files",
    "hdf5/n_filter.hdf5": "filter 6",
    "hdf5/n_huge_chunk.hdf5": "one chunk: 2,147,483,648 bytes",
    "hdf5/n_lfs.hdf5": "Git LFS pointer",
    "hdf5/n_no_storage.hdf5": "1,073,741,824 bytes are declared but only 0 stored",
    "hdf5/n_petabyte.hdf5": "1,125,899,906,842,624 bytes",
    "hdf5/n_soft_circle.hdf5": "circle of soft links",
    "hdf5/n_text.hdf5": "file signature not found",
    "hdf5/n_truncated.hdf5": "truncated file",
    "hdf5/n_virtual.hdf5": "values lie in other files",
    "image/n_bomb.png": "100,000 x 100,000 pixels|decompression bomb",
    "image/n_truncated.png": "truncated",
    "json/n_nan.json": "not JSON",
    "jsonl/n_comma.jsonl": r"line 2 \(byte 105\)",
    "jsonl/n_cut.jsonl": "line 2",
    "jsonl/n_cut.jsonl.gz": "gzip",
    "jsonl/n_utf8.jsonl": "line 2.*UTF-8",
    "kitti/n_row.pcd.bin": r"24 bytes are no whole number of rows of \[5\] float32, 20 bytes each",
    "las/n_chunk_count.laz": "4,294,967,295 chunks",
    "las/n_chunk_table.laz": "chunk table",
    "las/n_point_count.las": "4,294,967,295 points of 34 bytes are declared",
    "las/n_record_count.las": "4,294,967,295 records",
    "lines/n_binary.de": "no format reads .de",
    "lines/n_empty.fr": "the file is empty",
    "lines/n_late.de": "byte 18000 is zero",
    "lines/n_latin_1.de": "no format reads .de",
    "lines/n_lfs.de": "Git LFS pointer",
    "mcap/n_bomb.mcap": "2,147,483,648 bytes",
    "mcap/n_channel.mcap": "a message of channel 4, which is not declared",
    "mcap/n_crc.mcap": "its checksum is",
    "mcap/n_definitions.mcap": "two different definitions have the number 1",
    "mcap/n_not_finished.mcap": "the recording was not finished .*3 messages",
    "mcap/n_text.mcap": "not an MCAP file",
    "mds/n_count.mds": "4,294,967,295 samples are declared in a file of 268 bytes",
    "mds/n_dtype.mds": "the code 99 of a dtype",
    "mds/n_encoding.mds": "'ndarray:object' is not known",
    "mds/n_fewer.mds": "different numbers of columns",
    "mds/n_float.mds": "x: '1_0' where a number is expected",
    "mds/n_header.mds": "not JSON",
    "mds/n_huge_shape.mds": "4,835,703,278,458,516,698,824,704 bytes, found 8",
    "mds/n_huge_size.mds": "caption: a size of 1099511627776 bytes",
    "mds/n_int.mds": "where a number is expected",
    "mds/n_json.mds": "x: not JSON",
    "mds/n_mapping.mds": "a pickled mapping of 2 values",
    "mds/n_names.mds": "two columns of one name",
    "mds/n_no_shape.mds": "shape is cut short",
    "mds/n_png.mds": "x: damaged image",
    "mds/n_shape.mds": r"shape \[2, 4\] of float32 needs 32 bytes, found 24",
    "mds/n_short.mds": "in a file of 2 bytes",
    "mds/n_size.mds": "label: int needs 8 bytes, its header says 4",
    "mds/n_sizes.mds": "its columns come to 48 bytes, it has 49",
    "mds/n_stops.mds": "its samples are not in ascending order of offset",
    "mds/n_system.mds": "asks for os.system",
    "mds/n_text.mds": "not an MDS shard",
    "mds/n_truncated.mds": "end at byte 268, the file has 265: cut short",
    "mds/n_utf8.mds": r"byte 3 \(0xe9\) is not UTF-8",
    "mds/n_version.mds": "not that of an MDS shard of version 2",
    "mds/n_zstd.mds.zstd": "damaged zstd",
    "mds/n_zstd_cut.mds.zstd": "damaged zstd",
    "mp4/n_clock.mp4": "0 ticks a second",
    "mp4/n_count.mp4": "'stts' is about 11 frames, box 'stsz' about 10",
    "mp4/n_cut.mp4": "98 bytes; 68 are left: the file is cut short",
    "mp4/n_fragments.mp4": "fragmented",
    "mp4/n_inner.mp4": "box 'mdia' at byte 208 says 9,000 bytes",
    "mp4/n_many.mp4": "4,294,967,295 frames",
    "mp4/n_no_table.mp4": "has no 'stts'",
    "mp4/n_not_finished.mp4": "not finished",
    "mp4/n_sound.mp4": "no video among 1 tracks",
    "mp4/n_table.mp4": "shorter than the 5 entries",
    "mp4/n_text.mp4": "not an MP4 file: it starts with b'This is '",
    "npy/n_8_tib.npy": r"shape \(1099511627776,\) of float64 needs 8,796,093,022,208 bytes, the file holds 0",
    "npy/n_call_in_header.npy": "damaged .npy header",
    "npy/n_long_header.npy": "10,000",
    "npy/n_system.npy": "asks for os.system",
    "npy/n_trailing.npy": "needs 84 bytes, the file holds 88",
    "npy/n_truncated.npy": "needs 84 bytes, the file holds 79",
    "npz/n_absolute.npz": "/etc/x.npy",
    "npz/n_bomb.npz": "200:1",
    "npz/n_checksum.npz": "CRC-32",
    "npz/n_parent.npz": r"\.\./x.npy",
    "npz/n_system.npz": "asks for os.system",
    "npz/n_twice.npz": "one name",
    "obj/n_index.obj": "vertex 9; the file has 4",
    "obj/n_text.obj": "not a Wavefront OBJ file",
    "obj/n_word.obj": "'zero' stands where a number",
    "off/n_count.off": "353535235358",
    "parquet/n_encrypted.parquet": "encrypted",
    "parquet/n_footer.parquet": "a footer of 1,073,741,824 bytes in a file of 1,511",
    "parquet/n_footer_junk.parquet": "damaged Parquet file",
    "parquet/n_footer_zero.parquet": "damaged Parquet file",
    "parquet/n_lfs.parquet": "Git LFS pointer",
    "parquet/n_null.parquet": r"entry 1 is empty \(null\)",
    "parquet/n_null_inside.parquet": r"entry 1 is empty \(null\)",
    "parquet/n_null_list.parquet": r"entry 1 is empty \(null\)",
    "parquet/n_page.parquet": "CRC checksum verification failed",
    "parquet/n_ragged_nan.parquet": "not finite",
    "parquet/n_text.parquet": "not a Parquet file",
    "parquet/n_truncated.parquet": "cut short",
    "parquet/n_twice.parquet": "two columns have one name",
    "pcd/n_ascii_short.pcd": "3 points of 3 numbers are declared, 6 numbers found",
    "pcd/n_huge.pcd": "120,000,000,000,000 bytes",
    "pcd/n_lzf_before.pcd": "before their start",
    "pcd/n_lzf_short.pcd": "do not unpack to the 24 bytes",
    "pickle/n_build_on_function.pkl": "changes a function",
    "pickle/n_builtins_eval.pkl": "asks for __builtin__.eval",
    "pickle/n_circle.pkl": "nested more than",
    "pickle/n_distutils.pkl": "asks for numpy.distutils.exec_command.exec_command",
    "pickle/n_dotted.pkl": "asks for numpy.ndarray.tolist",
    "pickle/n_extension.pkl": "damaged pickle",
    "pickle/n_huge_reconstruct.pkl": "foreign class",
    "pickle/n_instance.pkl": "asks for os.system",
    "pickle/n_joblib_bomb.pkl": "cut short",
    "pickle/n_joblib_cut.pkl": r"shape \(4, 3\) and type float32 needs 48 bytes, 30 follow",
    "pickle/n_joblib_huge.pkl": "needs 25,769,803,764 bytes",
    "pickle/n_joblib_nested.pkl": "asks for joblib.numpy_pickle.NumpyArrayWrapper",
    "pickle/n_joblib_system.pkl": "asks for os.system",
    "pickle/n_joblib_zlib_cut.pkl": "a compressed pickle that is cut short",
    "pickle/n_laughs.pkl": "far larger than its bytes",
    "pickle/n_numpy_builtins.pkl": "asks for numpy.__builtins__",
    "pickle/n_object.pkl": "asks for copy_reg._reconstructor",
    "pickle/n_persistent.pkl": "outside itself",
    "pickle/n_size_mismatch.pkl": r"shape \(3, 4\) .* holds 72 bytes",
    "pickle/n_system.pkl": "asks for os.system",
    "pickle/n_trailing.pkl": "2 bytes follow the pickle",
    "ply/n_fraction.ply": "declared uint8 but holds other numbers",
    "ply/n_huge_ascii.ply": "9,000,000,000,000 rows of vertex",
    "ply/n_huge_count.ply": "9,000,000,000,000 rows of vertex",
    "ply/n_list_count.ply": "2,147,483,647 entries",
    "ply/n_trailing.ply": "4 bytes follow",
    "rosbag/n_cut.bag": "the bag ends early .*3 messages",
    "rosbag/n_not_closed.bag": "was not closed by its recorder",
    "rosbag/n_text.bag": "not a ROS 1 bag of version 2.0",
    "rosbag2/n_cut.db3": "damaged SQLite file",
    "rosbag2/n_no_messages.db3": "without the table messages, so no ROS 2 bag",
    "rosbag2/n_text.db3": "message 2 has values of other types",
    "rosbag2/n_view.db3": "messages is no plain table of a ROS 2 bag",
    "safetensors/n_backwards.safetensors": "x: no tensor of safetensors",
    "safetensors/n_cut.safetensors": "the tensors end at byte 168, the file at 164: the file is cut short",
    "safetensors/n_entry.safetensors": "x: no tensor of safetensors",
    "safetensors/n_float8.safetensors": "values of type F8_E4M3 are not read",
    "safetensors/n_gap.safetensors": "y starts at byte",
    "safetensors/n_huge.safetensors": "8 are stored",
    "safetensors/n_json.safetensors": "not JSON",
    "safetensors/n_kind.safetensors": "x: no tensor of safetensors",
    "safetensors/n_length.safetensors": "a header of 4,611,686,018,427,387,904 bytes",
    "safetensors/n_list.safetensors": "its header is no mapping",
    "safetensors/n_more.safetensors": "the rest belongs to no tensor",
    "safetensors/n_shared.safetensors": "y starts at byte",
    "safetensors/n_size.safetensors": r"x: F32 \[3\] has 12 bytes, 8 are stored",
    "safetensors/n_wide.safetensors": "has no values",
    "sktime/n_channels_TRAIN.ts": "line 5: 2 channels; the header says 3",
    "sktime/n_code_TEST.ts": "no line @data follows the header",
    "sktime/n_label_TRAIN.ts": "line 5: the label 'c' is none of the 2 that @classLabel names",
    "sktime/n_length_TRAIN.ts": "line 8: 2 steps; the header says 4",
    "sktime/n_no_data_TRAIN.ts": "no line @data follows the header",
    "sktime/n_ragged_TRAIN.ts": "line 4: channels of 1 to 2 steps in one case",
    "sktime/n_target_TRAIN.ts": "line 5: 2 numbers stand where the target is expected",
    "sktime/n_times_TRAIN.ts": "series with time stamps",
    "sktime/n_video_TEST.ts": "an MPEG transport stream",
    "sktime/n_word_TRAIN.ts": "line 5: 'x' stands where a number is expected",
    "tar/n_absolute.tar": "/etc/0000.txt",
    "tar/n_apart.tar": "apart from the other members of its key",
    "tar/n_case.tar": "two members are called '0000.TXT'",
    "tar/n_checksum.tar": "byte 1,024: the header of a member does not fit its checksum",
    "tar/n_class.tar": "0000.cls: b'cup' stands where a whole number",
    "tar/n_device.tar": "'0001.txt' is a device",
    "tar/n_empty_npy.tar": r"0000.npy: the file is empty",
    "tar/n_folder.tar": "'a' is a key and the folder of others",
    "tar/n_gzip.tar": "not a tar archive",
    "tar/n_hard.tar": "'0001.txt' is a hard link",
    "tar/n_joined.tar": "5,632 bytes follow the end mark at byte 4,096",
    "tar/n_json.tar": "0000.json: not JSON",
    "tar/n_name.tar": r"byte 3 \(0xe9\) is not UTF-8",
    "tar/n_newline.tar": "names inside stay relative and plain",
    "tar/n_no_end.tar": "without its end mark",
    "tar/n_npy.tar": "needs 24 bytes, the file holds 23",
    "tar/n_parent.tar": r"\.\./\.\./0000.txt",
    "tar/n_pax_alone.tar": "without its end mark",
    "tar/n_pax_bomb.tar": "1,073,741,824 bytes",
    "tar/n_pax_record.tar": "a damaged pax header",
    "tar/n_pax_size.tar": "9,999,999,999 bytes, 1,536 are left",
    "tar/n_pax_sparse.tar": "stored with holes",
    "tar/n_pipe.tar": "'0001.txt' is a pipe",
    "tar/n_size.tar": "8,589,934,591 bytes, 1,024 are left: the file is cut short",
    "tar/n_size_256.tar": "1,180,591,620,717,411,303,424 bytes",
    "tar/n_size_word.tar": "b'five' stands where a header has a number",
    "tar/n_sparse.tar": "stored with holes",
    "tar/n_symbolic.tar": "'0001.txt' is a symbolic link",
    "tar/n_system.tar": "asks for os.system",
    "tar/n_text.tar": "not a tar archive",
    "tar/n_truncated.tar": "152 bytes, 100 are left: the file is cut short behind 0 whole members$",
    "tar/n_twice.tar": "two members are called '0001.txt'",
    "tar/n_volume.tar": r"of a kind that is not read \('V'\)",
    "text/n_binary.txt": "byte 4 is zero",
    "text/n_latin_1.txt": r"byte 3 \(0xe9\) is not UTF-8",
    "tfrecord/n_cut.tfrecord": "the record at byte 362 is cut short: 286 bytes are left behind 1 "
    "whole record$",
    "tfrecord/n_flipped.tfrecord": "the record at byte 0: its 346 bytes do not match their checksum",
    "tfrecord/n_floats.tfrecord": "no tf.train.Example",
    "tfrecord/n_frames.tfrecord": "no tf.train.Example",
    "tfrecord/n_head_cut.tfrecord": "the record at byte 651 is cut short: 7 bytes are left behind "
    "2 whole records$",
    "tfrecord/n_huge.tfrecord": "the record at byte 0 is cut short: .* behind 0 whole records",
    "tfrecord/n_length.tfrecord": "no length with its checksum",
    "tfrecord/n_text.tfrecord": "no TFRecord",
    "tfrecord/n_varint.tfrecord": "no tf.train.Example",
    "torch/n_bomb.pt": "51,539,607,528 bytes",
    "torch/n_bounds.pt": r"shape \[5, 6\], strides \[6, 1\], offset 0 in 24 numbers",
    "torch/n_cut.pt": "damaged file of torch.save",
    "torch/n_module.pt": "asks for torch.nn.modules.linear.Linear",
    "torch/n_no_pickle.pt": "without one data.pkl",
    "torch/n_no_storage.pt": "data/0 is not in the file",
    "torch/n_old_cut.pth": "24 numbers of 4 bytes are declared, 66 bytes are there",
    "torch/n_old_more.pth": "bytes follow the last storage",
    "torch/n_order.pt": "the byte order b'middle'",
    "torch/n_short_storage.pt": "24 numbers of 4 bytes are declared, 92 bytes are there",
    "torch/n_storage_is_text.pt": "no storage",
    "torch/n_stride.pt": r"strides \[255, 1\], offset 0 in 24 numbers",
    "torch/n_system.pt": "asks for os.system",
    "wav/n_avi.wav": "a RIFF file of kind b'AVI '",
    "wav/n_big_endian.wav": "of kind RIFX",
    "wav/n_bits.wav": "PCM of 12 bits; 8, 16, 24, 32 are read",
    "wav/n_contradiction.wav": "1 channels of 16 bits at 8,000 Hz in frames of 4 bytes",
    "wav/n_cut.wav": "says 8 bytes, 5 are left: the file is cut short",
    "wav/n_cut_header.wav": "b'fmt ' at byte 12 says 16 bytes, 10 are left",
    "wav/n_extensible_mp3.wav": "encoded with MP3",
    "wav/n_frame.wav": "6 bytes of samples are no whole number of frames of 4 bytes",
    "wav/n_lfs.wav": "Git LFS pointer",
    "wav/n_mu_law.wav": "encoded with mu-law",
    "wav/n_no_channel.wav": "0 channels",
    "wav/n_no_data.wav": "no data chunk",
    "wav/n_no_format.wav": "no format chunk before the data chunk",
    "wav/n_no_rate.wav": "at 0 Hz",
    "wav/n_no_samples.wav": "says 0 bytes, no sample follows",
    "wav/n_odd_chunk.wav": "at byte 28 says 16,777,216 bytes",
    "wav/n_pipe.wav": "says 4,294,967,295 bytes, 8 are left: a program wrote it to a pipe",
    "wav/n_rf64.wav": "of kind RF64",
    "wav/n_short_format.wav": "a format chunk of 4 bytes",
    "wav/n_text.wav": "not a WAV file",
    "wav/n_unfinished.wav": "says 0 bytes, 8 follow: its writer did not finish",
    "xml/n_cut.xml": "not XML",
    "xml/n_deep.xml": "nested more than 64 deep",
    "xml/n_dtd.xml": "declares a document type",
    "xml/n_external.xml": "declares a document type",
    "xml/n_html.xml": "an HTML or XML page",
    "xml/n_laughs.xml": "declares a document type",
    "xml/n_voc_corner.xml": "object 1 has no xmax that is a number",
    "xml/n_voc_name.xml": "object 1 has no name",
    "yaml/n_circle.yaml": "inside its own value",
    "yaml/n_deep.yaml": "nested more than",
    "yaml/n_laughs.yaml": "aliases come to more than",
    "yaml/n_merge_laughs.yaml": "aliases come to more than",
    "yaml/n_object.yaml": "could not determine a constructor",
    "zarr/n_huge.zarr": "bytes",
    "zarr/n_many_chunks.zarr": "67,108,864 chunks",
    "zarr/n_misplaced.zarr": "0/0 is no chunk",
    "zarr/n_no_fill.zarr": "1 of 2 chunks are missing",
    "zarr/n_pickle_codec.zarr": "encoded with pickle",
    "zarr/n_short_chunk.zarr": "damaged Zarr array",
    "zarr/n_unknown_codec.zarr": "encoded with zfpy",
}


def named(path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.mark.parametrize("path", [p for p in FILES if p.name.startswith("y_")], ids=named)
def test_files_that_must_be_read(path):
    values = read_all(path)
    assert values or path.stem in {"y_nothing", "y_empty", "y_null"}, "nothing was found in it"


@pytest.mark.parametrize("path", [p for p in FILES if p.name.startswith("n_")], ids=named)
def test_files_that_must_be_refused(path):
    with pytest.raises(FormatError) as caught:
        read_all(path)
    message = str(caught.value)
    assert re.search(REASONS.get(named(path), r"\w"), message), message
    assert "\n" not in message
    assert len(message) < 500
    assert not (path.parent / "hacked").exists()


@pytest.mark.parametrize("path", [p for p in FILES if p.name.startswith("i_")], ids=named)
def test_files_that_may_be_either(path):
    try:
        outcome = "values" if isinstance(read_all(path), dict) else "nothing"
    except FormatError as refused:
        outcome = str(refused)
    assert outcome not in {"", "nothing"}


def test_bad_json_lines_have_their_own_code():
    with pytest.raises(FormatError) as caught:
        read_all(CORPUS / "jsonl/n_comma.jsonl")
    assert caught.value.code == "DC701"


def test_every_format_has_files_to_accept_and_to_refuse():
    for name in formats():
        starts = {path.name[:2] for path in (CORPUS / name).iterdir()}
        assert {"y_", "n_"} <= starts, name
    assert {folder.name for folder in CORPUS.iterdir()} == set(formats())


def test_reasons_name_files_that_exist():
    assert [name for name in REASONS if not (CORPUS / name).exists()] == []


def test_corpus_files_are_small():
    assert [
        path for path in CORPUS.rglob("*") if path.is_file() and path.stat().st_size > 100_000
    ] == []
