"""CoNLL-U: sentences as records; broken ones are told one by one, and hostile files cost little."""

from pathlib import Path
from typing import Any

import pytest

from datacheck.errors import FormatError
from datacheck.formats import conllu
from datacheck.infer.draft import draft
from datacheck.scan.start import scan
from tests.formats.reading import CORPUS, read_all

ROOT = "1\tGo\tgo\tVERB\tVB\tMood=Imp\t0\troot\t0:root\tSpaceAfter=No\n2\t!\t!\tPUNCT\t.\t_\t1\tpunct\t1:punct\t_\n\n"


def _write(folder: Path, *sentences: str | bytes, name: str = "a.conllu") -> Path:
    path = folder / name
    path.write_bytes(b"".join(s.encode() if isinstance(s, str) else s for s in sentences))
    return path


def _read(path: Path, wanted: list[int] | None = None) -> dict[int, Any]:
    found = conllu.batches(path, wanted)
    return {first + i: value for first, values in found for i, value in enumerate(values)}


def _findings(folder: Path) -> dict[str, tuple[str, list[str]]]:
    run = scan(folder)
    return {
        f.code: (f.message, [run.table.keys[i] for i in f.rows.tolist()])
        for f in run.report.findings
    }


def test_each_column_is_a_list_of_the_words(tmp_path: Path) -> None:
    record = _read(_write(tmp_path, "# sent_id = s1\n# text = Go!\n# newpar\n", ROOT))[0]
    assert record == {
        "sent_id": "s1",
        "text": "Go!",
        "id": [1, 2],
        "form": ["Go", "!"],
        "lemma": ["go", "!"],
        "upos": ["VERB", "PUNCT"],
        "xpos": ["VB", "."],
        "feats": ["Mood=Imp", "_"],
        "head": [0, 1],
        "deprel": ["root", "punct"],
        "deps": ["0:root", "1:punct"],
        "misc": ["SpaceAfter=No", "_"],
    }


def test_ranges_and_empty_nodes_are_no_words() -> None:
    (record,) = read_all(CORPUS / "conllu" / "y_ranges_empty_nodes.conllu")["records"]
    assert record["form"] == ["I", "m", "here"]
    assert record["head"] == [2, 0, 2]


def test_without_heads_there_is_no_head() -> None:
    (record,) = read_all(CORPUS / "conllu" / "y_unparsed.conllu")["records"]
    assert "head" not in record


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("2\t!\t!\tPUNCT\t.\t_\t3\tpunct\t_\t_", "HEAD of word 2 is 3, beyond the 2 words"),
        ("2\t!\t!\tPUNCT\t.\t_\t2\tpunct\t_\t_", "HEAD of word 2 is the word itself"),
        ("2\t!\t!\tPUNCT\t.\t_\t_\tpunct\t_\t_", "HEAD of word 2 is '_', no number"),
        ("3\t!\t!\tPUNCT\t.\t_\t1\tpunct\t_\t_", "word 3 stands where word 2 should be"),
        ("two\t!\t!\tPUNCT\t.\t_\t1\tpunct\t_\t_", "'two' is no id"),
        ("2 ! ! PUNCT . _ 1 punct _ _", "1 columns, divided by tabs, where CoNLL-U has 10"),
        ("2\t!\t!\tPUNCT\t.\t_\t1\tpunct\t_", "9 columns"),
    ],
)
def test_a_broken_sentence_is_named_and_the_others_are_read(
    tmp_path: Path, line: str, why: str
) -> None:
    broken = ROOT.split("\n")[0] + "\n" + line + "\n\n"
    found = _read(_write(tmp_path, ROOT, broken, ROOT))
    assert isinstance(found[1], FormatError)
    assert found[1].code == "DC701"
    assert str(found[1]).startswith("sentence 2 (line ")
    assert why in str(found[1])
    assert found[0] == found[2] == _read(_write(tmp_path, ROOT, name="b.conllu"))[0]


def test_a_scan_names_the_broken_sentences_alone(tmp_path: Path) -> None:
    broken = ROOT.replace("\t1\tpunct", "\t9\tpunct")
    _write(tmp_path, *[ROOT.replace("Go", f"Go{i}") for i in range(5)], broken, ROOT)
    ((code, (message, keys)),) = _findings(tmp_path).items()
    assert (code, keys) == ("DC701", ["a.conllu:000000000005"])
    assert message.startswith(
        "1 sentence cannot be read; the first: sentence 6 (line 16): HEAD of word 2 is 9"
    )


def test_a_clean_treebank_is_silent(tmp_path: Path) -> None:
    _write(tmp_path, *[f"# text = Go{i}!\n" + ROOT.replace("Go", f"Go{i}") for i in range(300)])
    (tmp_path / "LICENSE.txt").write_text("none")
    assert not _findings(tmp_path)
    assert "extends: conllu" in draft(tmp_path).text


def test_swapped_tags_are_told_and_another_tag_set_is_not(tmp_path: Path) -> None:
    swapped = ROOT.replace("VERB\tVB", "VB\tVERB").replace("PUNCT\t.", ".\tPUNCT")
    own = ROOT.replace("VERB\tVB", "Verb\tVB").replace("PUNCT\t.", "Mark\t.")
    found = _read(_write(tmp_path, swapped, own))
    assert "UPOS others (VB, .): the two columns look swapped" in str(found[0])
    assert found[1]["upos"] == ["Verb", "Mark"]


def test_cp1252_is_named_only_where_its_letters_are_those_of_the_file(tmp_path: Path) -> None:
    cafe = ROOT.replace("Go", "Café")
    latin = _read(_write(tmp_path, cafe, cafe.encode("cp1252"), cafe))
    assert (
        "line 4): byte 0xe9 is not UTF-8; read as cp1252 (Windows Latin-1) the sentence has é"
        in str(latin[1])
    )
    russian = _read(_write(tmp_path, cafe, ROOT.replace("Go", "Иди").encode("cp1251"), cafe))
    assert str(russian[1]).endswith("byte 0xc8 is not UTF-8")
    assert isinstance(russian[2], dict)


def test_wanted_sentences_are_those_of_the_whole_file(tmp_path: Path) -> None:
    path = _write(tmp_path, *[ROOT.replace("Go", f"Go{i}") for i in range(700)])
    every, some = _read(path), _read(path, [0, 3, 4, 599])
    assert len(every) == 700
    assert some == {i: every[i] for i in (0, 3, 4, 599)}


def test_a_line_without_end_costs_no_memory(tmp_path: Path) -> None:
    found = _read(_write(tmp_path, ROOT, b"1\t" + b"x" * (20 << 20) + b"\n\n", ROOT))
    assert "sentence 2 (line 4): more than 1 MiB long" in str(found[1])
    assert isinstance(found[2], dict)


def test_comments_alone_are_no_sentence(tmp_path: Path) -> None:
    found = _read(_write(tmp_path, "# newdoc\n\n\n\n", ROOT, "# end\n"))
    assert list(found) == [0]


def test_one_odd_tag_beside_universal_xpos_is_no_swap(tmp_path: Path) -> None:
    line = "{0}\tw\tw\t{1}\t{2}\t_\t{3}\tdep\t_\t_\n"
    tags = [("NOUN", "NOUN"), ("VERBX", "VERB"), ("ADJ", "ADJ")]
    words = "".join(line.format(n, *tag, n - 1) for n, tag in enumerate(tags, 1))
    assert _read(_write(tmp_path, words + "\n"))[0]["upos"] == ["NOUN", "VERBX", "ADJ"]


def test_comments_without_words_take_little_memory(tmp_path: Path) -> None:
    path = _write(tmp_path, "##\n" * 400_000, ROOT, ROOT)
    read = _read(path)
    assert str(read[0]) == "sentence 1 (line 1): more than 1 MiB long"
    assert read[1]["form"] == ["Go", "!"]


def test_comments_before_an_empty_line_belong_to_no_sentence(tmp_path: Path) -> None:
    """The message named line 2 where line 6 was bad; 1.1 MB of a licence made the first sentence "too long"."""
    path = _write(tmp_path, "# sent_id = licence\n\n\n\n\n", ROOT.replace("\t_\n\n", "\n\n"), ROOT)
    found = _read(path)
    assert str(found[0]).startswith("sentence 1 (line 7): 9 columns")
    assert found[1]["form"] == ["Go", "!"]
    path = _write(
        tmp_path,
        ("# a line of a licence\n" * 50 + "\n") * 1000,
        "# text = Go!\n",
        ROOT,
        name="b.conllu",
    )
    (record,) = _read(path).values()
    assert (record["text"], record["form"]) == ("Go!", ["Go", "!"])
    assert "sent_id" not in record
