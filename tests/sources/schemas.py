"""Schemas for tests, from plain mappings."""

from datacheck.schema.model import Schema


def schema(samples, fields=None, **more) -> Schema:
    samples = {"files": samples} if isinstance(samples, str | list) else samples
    return Schema.model_validate(
        {"datacheck": 1, "name": "mine", "samples": samples, "fields": fields or {}, **more}
    )


def every(source, item):
    """Read one item; return ({key: sample values}, [unread])."""
    from datacheck.sources import Unread

    samples, unread = {}, []
    for part in source.read(item):
        if isinstance(part, Unread):
            unread.append(part)
        else:
            samples |= {sample.key: sample.fields for sample in part}
    return samples, unread


def facts(source, item):
    """Read one item; return {key: facts}."""
    from datacheck.sources import Unread

    told = {}
    for block in source.read(item):
        assert not isinstance(block, Unread), block
        for place, key in enumerate(block.keys):
            told[key] = {
                name: column.objects[place] if column.kind != "array" else column[place].tolist()
                for name, column in block.facts.items()
            }
    return told
