"""A scan of data that no built-in schema fits: it drafts one, says so, and judges with it."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from datacheck.errors import UsageError
from datacheck.infer.draft import draft
from datacheck.model.finding import Severity
from datacheck.scan import scan
from datacheck.schema.load import load_schema, parse_schema

WORDS = "the arm moves a red cup over the blue box, then closes a green door slowly again"


def words(i, count):
    names = WORDS.split()
    return " ".join(names[(i * 7 + k * (i % 5 + 1)) % len(names)] for k in range(count)) + f" {i}"


def ask(i):
    return {"role": "user", "content": words(i, 12)}


def answer(i):
    return {"role": "assistant", "content": words(i + 1000, 15)}


def sharegpt(i):
    turns = [{"from": "human", "value": words(i, 9)}, {"from": "gpt", "value": words(i, 20)}]
    return {"id": f"c{i}", "conversations": turns}


LAYOUTS = {
    "sharegpt": (sharegpt, {"conversations": "chat", "id": "id"}),
    "openai": (lambda i: {"messages": [ask(i), answer(i)]}, {"messages": "chat"}),
    "alpaca": (
        lambda i: {"instruction": words(i, 6), "input": "", "output": words(i, 9)},
        {"instruction": "text", "input": "text", "output": "text"},
    ),
    "prompt and completion": (
        lambda i: {"prompt": [ask(i)], "completion": [answer(i)]},
        {"prompt": "chat", "completion": "chat"},
    ),
    "preferences": (
        lambda i: {"prompt": words(i, 9), "chosen": words(i, 20), "rejected": words(i, 12)},
        {"prompt": "text", "chosen": "text", "rejected": "text"},
    ),
    "preferred chats": (
        lambda i: {"chosen": [ask(i), answer(i)], "rejected": [ask(i), answer(i + 1)]},
        {"chosen": "chat", "rejected": "chat"},
    ),
    "preferences of LLaMA-Factory": (
        lambda i: {
            "conversations": sharegpt(i)["conversations"][:1],
            "chosen": {"from": "gpt", "value": words(i, 20)},
            "rejected": {"from": "gpt", "value": words(i + 500, 14)},
        },
        {"conversations": "chat", "chosen": "chat", "rejected": "chat"},
    ),
    "KTO": (
        lambda i: {"prompt": words(i, 9), "completion": words(i, 20), "label": bool(i % 2)},
        {"prompt": "text", "completion": "text", "label": "class"},
    ),
}


def written(folder, rows, name="train.jsonl"):
    folder.mkdir()
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if name.endswith(".json"):
        text = json.dumps(rows)
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), folder / name)
    else:
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("name", ["train.jsonl", "train.json", "train.parquet"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_for_training_a_language_model_is_read_without_a_schema(tmp_path, layout, name):
    row, roles = LAYOUTS[layout]
    data = written(tmp_path / "d", [row(i) for i in range(60)], name)
    lines = []
    run = scan(data, output=tmp_path / "out", report=lines.append)
    assert {name: field.role for name, field in run.schema.fields.items()} == roles
    assert len(run.table) == 60
    assert (run.report.findings, run.report.exit_code) == ([], 0)
    assert lines[0] == "no built-in schema fits: drafted a schema from 60 samples"
    part = "row" if name.endswith("parquet") else "line or element"
    assert f"    each {part} of {name} is a sample" in lines
    assert f"datacheck init {data}" in lines[-1]


@pytest.mark.parametrize(
    ("layout", "spoil", "code"),
    [
        ("sharegpt", lambda row: row["conversations"][1].update(value=""), "DC705"),
        ("sharegpt", lambda row: row["conversations"].pop(), "DC702"),
        ("sharegpt", lambda row: row["conversations"].reverse(), "DC706"),
        ("openai", lambda row: row["messages"][1].update(content=" "), "DC705"),
        ("openai", lambda row: row["messages"][1].update(content=None), "DC705"),
        ("openai", lambda row: row["messages"][1].pop("content"), "DC705"),
        ("alpaca", lambda row: row.update(output=""), "DC705"),
        ("prompt and completion", lambda row: row["completion"].clear(), "DC702"),
        ("preferences", lambda row: row.update(rejected=row["chosen"]), "DC712"),
        ("preferred chats", lambda row: row.update(rejected=row["chosen"]), "DC712"),
    ],
)
def test_a_fault_in_such_a_layout_is_found_without_a_schema(tmp_path, layout, spoil, code):
    rows = [LAYOUTS[layout][0](i) for i in range(60)]
    for i in (7, 30):
        spoil(rows[i])
    run = scan(written(tmp_path / "d", rows), output=tmp_path / "out")
    (found,) = run.report.findings
    assert (found.code, found.rows.tolist()) == (code, [7, 30])
    assert run.report.exit_code == (found.severity is Severity.ERROR)


def test_the_draft_is_the_schema_of_the_run_and_that_of_init(tmp_path):
    data = tmp_path / "d"
    data.mkdir()
    for i in range(12):
        values = np.random.default_rng(i).uniform(-1, 1, (50, 3)).astype(np.float32)
        np.savez(data / f"{i}.npz", points=values)
    run = scan(data, output=tmp_path / "out")
    assert run.report.exit_code == 0
    (tmp_path / "mine.yaml").write_text(draft(data).text)
    assert load_schema(tmp_path / "out/schema.yaml").fields == run.schema.fields
    assert load_schema(tmp_path / "mine.yaml").fields == run.schema.fields


def test_rows_of_train_in_test_are_found_though_a_column_names_the_split(tmp_path):
    """60 of 525 rows of a test table were rows of the training table; their column said "test"."""
    texts = [words(i, 20) for i in range(300)]
    tables = {"train": texts[:200], "test": [*texts[200:], *texts[20:26]]}
    (tmp_path / "d").mkdir()
    for split, rows in tables.items():
        columns = {"sentence": rows, "split": [split] * len(rows)}
        pq.write_table(pa.table(columns), tmp_path / f"d/{split}.parquet")
    run = scan(tmp_path / "d", output=tmp_path / "out")
    assert run.schema.fields["split"].role == "id"
    (found,) = run.report.findings
    assert (found.code, len(found.rows)) == ("DC801", 6)
    assert {run.table.keys[row] for row in found.rows} == {
        f"test.parquet:{row:012d}" for row in range(100, 106)
    }


def people(count):
    """Return rows of a table of people: names, classes, counts with a few large ones, gaps."""
    rng = np.random.Generator(np.random.Philox(11))
    rows = []
    for i in range(count):
        filled = [f"{rng.uniform(0, 1):.4f}" if rng.random() < 0.6 else "" for _ in range(4)]
        count_before = str(int(rng.geometric(0.2)) - 1)
        rows.append(
            [
                words(i, 3).replace(",", ""),
                ("red", "green")[i % 2],
                str(20 + i % 60),
                count_before,
                *filled,
            ]
        )
    return rows


def table(folder, rows):
    folder.mkdir()
    lines = ["name,colour,age,before,a,a,b,c", *(",".join(row) for row in rows)]
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_the_rows_of_a_table_with_words_are_samples(tmp_path):
    run = scan(table(tmp_path / "d", people(1200)), output=tmp_path / "out")
    assert run.schema.samples.each == "row"
    assert (len(run.table), run.report.findings) == (1200, [])


def test_a_code_for_missing_numbers_and_repeated_rows_of_such_a_table_are_named(tmp_path):
    """Of a table that was read as one sample, 700 counts of 999 and 460 repeated rows passed."""
    rows = people(1200)
    for i in range(100, 160):
        rows[i][3] = "999"
    run = scan(table(tmp_path / "d", [*rows, *rows[300:340]]), output=tmp_path / "out")
    found = {f.code: f.rows.tolist() for f in run.report.findings}
    assert found == {"DC226": list(range(100, 160)), "DC803": list(range(1200, 1240))}


def test_the_rows_of_a_table_with_a_clock_follow_one_another(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    lines = [f"{i},event {words(i, 1)},{i % 7}" for i in range(600)]
    (folder / "log.csv").write_text("\n".join(["time,event,level", *lines]) + "\n")
    assert parse_schema(draft(folder).text).samples.each is None


def test_a_folder_above_that_a_built_in_schema_fits_is_named_in_place_of_a_draft(tmp_path):
    below = tmp_path / "HO3D/train/SM1/meta"
    below.mkdir(parents=True)
    np.savez(below / "a.npz", a=np.ones(3))
    (below / "0000.pkl").write_bytes(b"x")
    with pytest.raises(UsageError, match="schema ho3d fits the folder"):
        scan(below, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_built_in_schema_that_fits_next_to_nothing_gives_way_to_a_draft(tmp_path):
    rows = [LAYOUTS["openai"][0](i) for i in range(3)]
    data = written(tmp_path / "d", rows, "sft_few.jsonl")
    for i in range(40):
        values = np.random.default_rng(i).uniform(-1, 1, (50, 3)).astype(np.float32)
        np.savez(data / f"{i}.npz", points=values)
    lines = []
    run = scan(data, output=tmp_path / "out", report=lines.append)
    assert lines[0] == (
        "schema minimind_sft fits 1 of 41 files only: --schema minimind_sft scans these alone"
    )
    assert len(run.table) == 40
    for i in range(40):
        (data / f"{i}.npz").unlink()
    (data / "notes.txt").write_text("a " * 10_000)  # notes accompany data
    for i in range(9):
        (data / f"{i}.txt").write_text("a " * 10_000)
    lines = []
    assert len(scan(data, output=tmp_path / "out", report=lines.append).table) == 3
    assert lines == [
        "schema minimind_sft (its file patterns fit 1 of 11 files; choose another with --schema)"
    ]


def test_what_a_draft_expects_of_samples_that_it_has_not_seen_fails_no_scan(tmp_path):
    (tmp_path / "d").mkdir()
    draw = np.random.default_rng(0)
    for i in range(400):  # far more than a draft looks at
        path = tmp_path / f"d/{i:03}.npz"
        label, size = np.int64(draw.integers(0, 40)), 3 if i == 7 else 4
        values = draw.normal(size=(20, size)).astype(np.float32)
        if i == 11:
            values[3, 2] = 1e6
        if i == 13:
            values[3, 2] = np.nan
        np.savez(path, label=label, values=values)
    run = scan(tmp_path / "d", output=tmp_path / "out")
    found = {(f.code, f.severity): f.rows.tolist() for f in run.report.findings}
    assert found[("DC221", Severity.ERROR)] == [13]
    assert found[("DC122", Severity.WARNING)] == [7]
    assert found[("DC224", Severity.WARNING)] == [11]
    assert [code for code, severity in found if severity is Severity.ERROR] == ["DC221"]


def test_chats_about_pictures_are_the_samples_and_name_the_pictures_that_are_gone(tmp_path):
    data = tmp_path / "d"
    (data / "images").mkdir(parents=True)
    rows = []
    for i in range(60):
        if i not in {7, 30}:
            pixels = np.random.default_rng(i).integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(data / f"images/{i}.png")
        turns = sharegpt(i)["conversations"]
        turns[0]["value"] = f"<image>\n{turns[0]['value']}"
        rows.append({"image": f"images/{i}.png", "conversations": turns})
    (data / "train.json").write_text(json.dumps(rows))  # less than a tenth of the bytes
    run = scan(data, output=tmp_path / "out")
    assert len(run.table) == 60
    (found,) = run.report.findings
    assert found.code == "DC105"
    assert (
        "2 names (images/30.png, images/7.png): not there, but named by train.json" in found.message
    )


def test_boxes_of_pascal_voc_in_other_folders_are_held_against_their_pictures(tmp_path):
    """The names of the folders are the writer's own, so the built-in schema does not fit."""
    for number in range(20):
        (tmp_path / "images").mkdir(exist_ok=True)
        (tmp_path / "annotations").mkdir(exist_ok=True)
        picture = Image.effect_noise((64, 48), 20 + number).convert("RGB")
        picture.save(tmp_path / "images" / f"p{number}.jpg")
        by = 2 if number == 7 else 1  # drawn on a picture of twice the size
        corners = {"xmin": 40 * by, "ymin": 30 * by, "xmax": 60 * by, "ymax": 44 * by}
        box = "".join(f"<{name}>{value}</{name}>" for name, value in corners.items())
        (tmp_path / "annotations" / f"p{number}.xml").write_text(
            f"<annotation><filename>p{number}.jpg</filename>"
            "<size><width>64</width><height>48</height><depth>3</depth></size>"
            f"<object><name>thing</name><bndbox>{box}</bndbox></object></annotation>"
        )
    report = scan(tmp_path, output=tmp_path.with_name("out")).report
    found = [f for f in report.findings if f.code == "DC409"]
    assert [(f.severity, f.failed) for f in found] == [("error", 1)]


@pytest.mark.parametrize(
    ("pictures", "masks"),
    [("{}", "{}annot"), ("{}_images", "{}_masks"), ("img-{}", "gt-{}"), ("a/{}", "a/{}_seg")],
)
def test_folders_that_name_the_split_and_the_part_are_paired(tmp_path, pictures, masks):
    """CamVid keeps pictures in `train` and their labels in `trainannot`: nothing was compared."""
    data = tmp_path / "d"
    rng = np.random.Generator(np.random.Philox(21))
    for split, count in (("train", 12), ("val", 5), ("test", 5)):
        for folder, shape in ((pictures, (30, 40, 3)), (masks, (30, 40))):
            (data / folder.format(split)).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 12 if folder == masks else 255, shape, dtype=np.uint8)
                Image.fromarray(pixels).save(data / folder.format(split) / f"{split}_{i:03d}.png")
    run = scan(data, output=tmp_path / "out")
    assert (len(run.table), run.report.findings) == (22, [])
    assert set(run.table.splits) == {"train", "val", "test"}
    (data / masks.format("val") / "val_002.png").unlink()
    (found,) = scan(data, output=tmp_path / "out").report.findings
    assert (found.code, found.failed) == ("DC104", 1)


def token_files(folder, *, vocabulary=65, about=True):
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("train", 9000), ("val", 1000)):
        rng.integers(0, vocabulary, count).astype(np.uint16).tofile(folder / f"{name}.bin")
    if about:
        letters = {i: chr(32 + i) for i in range(vocabulary)}
        meta = {
            "vocab_size": vocabulary,
            "itos": letters,
            "stoi": {c: i for i, c in letters.items()},
        }
        (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    return folder


@pytest.mark.parametrize(
    ("vocabulary", "about", "stated"),
    [(65, True, 65), (50_257, False, 50_304), (65, False, 50_304)],
)
def test_token_files_of_nanogpt_are_read_with_their_vocabulary(tmp_path, vocabulary, about, stated):
    data = token_files(tmp_path / "d", vocabulary=vocabulary, about=about)
    run = scan(data, output=tmp_path / "out")
    assert run.schema.tokenizer.vocab == stated
    assert {name: field.role for name, field in run.schema.fields.items()} == {"tokens": "tokens"}
    assert (run.report.findings, run.report.exit_code, len(run.table)) == ([], 0, 2)


def test_ids_beyond_the_vocabulary_and_of_another_width_are_found(tmp_path):
    data = token_files(tmp_path / "d")
    ids = np.fromfile(data / "val.bin", np.uint16)
    ids.astype(np.uint32).tofile(data / "val.bin")
    (found,) = scan(data, output=tmp_path / "out").report.findings
    assert (found.code, found.kind, found.rows.tolist()) == ("DC704", "halves", [1])
    assert "32 bits" in found.cause.text
    (ids + np.uint16(65)).tofile(data / "val.bin")
    found = scan(data, output=tmp_path / "out").report.findings
    assert ("DC704", "above", [1]) in [(f.code, f.kind, f.rows.tolist()) for f in found]


def test_token_files_of_32_bits_are_read_as_such(tmp_path):
    data = token_files(tmp_path / "d", vocabulary=50_257, about=False)
    for path in data.iterdir():
        np.fromfile(path, np.uint16).astype(np.uint32).tofile(path)
    run = scan(data, output=tmp_path / "out")
    assert run.schema.fields["tokens"].dtype == "uint32"
    assert (run.report.findings, run.report.exit_code) == ([], 0)


@pytest.mark.parametrize("spoil", ["names", "numbers", "vocabulary"])
def test_other_bin_files_are_no_tokens(tmp_path, spoil):
    data = token_files(tmp_path / "d", about=spoil == "vocabulary")
    if spoil == "names":
        (data / "train.bin").rename(data / "weights.bin")
    if spoil == "numbers":
        for name in ("train", "val"):
            np.full(4000, 60_000, np.uint16).tofile(data / f"{name}.bin")
    if spoil == "vocabulary":
        for name in ("train", "val"):
            (np.arange(4000) % 3).astype(np.uint16).tofile(data / f"{name}.bin")
        (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 3}))
    assert parse_schema(draft(data).text).tokenizer is None
