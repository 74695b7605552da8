"""``datacheck init``: writes a draft, overwrites nothing."""


def test_the_command_never_overwrites(here, place):
    code, out, err = here("init", place / "data", "-o", place / "new.yaml")
    assert (code, (place / "new.yaml").read_text()) == (0, out)
    assert "Check every line marked" in err
    assert here("schema", "check", place / "new.yaml")[0] == 0
    before = (place / "plain.yaml").read_text()
    code, out, err = here("init", place / "data", "-o", place / "plain.yaml")
    assert (code, out) == (2, "")
    assert "is not overwritten" in err
    assert (place / "plain.yaml").read_text() == before
