"""The file patterns that paths follow."""

from __future__ import annotations

import re
from collections.abc import Sequence

SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing", "eval", "evaluation", "dev"})
NUMBER = "-{shard}"  # how an ending goes on behind which the number of a shard stands
_READ = re.compile(r"[{}*\\]")  # what stands for itself in no pattern
_IN_SHARDS = re.compile(r"[^-]+-[0-9]+-of-[0-9]+(?:-[0-9a-f]+)?")  # the digits at the end are those of a digest


def patterns(files: Sequence[tuple[Sequence[str], str]]) -> list[str]:
    """Return the pattern that all paths of each kind of file follow; equal places have equal placeholders in all.

    Args:
        files: the paths of each kind, and how they end.

    Returns:
        [] where there are several kinds, and no placeholders tell which file of one belongs to which of another.
    """
    kinds = [[path.split("/") for path in paths] for paths, _ in files]
    endings = [ending for _, ending in files]
    depths = {len(path) for kind in kinds for path in kind}
    if len(depths) > 1 and len(files) == 1:
        return [f"**/*{endings[0]}"]
    rooted = any(path[0].startswith("@") for kind in kinds for path in kind)  # as files of --root are
    if len(depths) > 1 or (len(files) > 1 and (rooted or any(map(_READ.search, endings)))):
        return []
    levels: list[list[str]] = []
    for level in range(depths.pop() - 1):
        levels.append(_folders([{path[level] for path in kind} for kind in kinds], level, levels))
        if not levels[-1]:
            return []
    stems = {_stem(path[-1], end) for kind, end in zip(kinds, endings, strict=True) for path in kind}
    if [len(kind) for kind in kinds] == [1] and not _READ.search("".join(stems)):
        stem = stems.pop()
    else:
        stem = "" if stems == {""} else "{split}" if _splits(stems, levels) else "{id}"
        last = {one.rpartition("-")[2] for one in stems}
        first = {one.partition("-")[0] for one in stems}
        if stem == "{id}" and endings[0].endswith(NUMBER) and _splits(last, levels):
            stem = "{id}-{split}"  # as TensorFlow Datasets names its files: bridge-train.tfrecord-00000-of-00512
        elif stem == "{id}" and _splits(first, levels) and all(map(_IN_SHARDS.fullmatch, stems)):
            stem = "{split}-{shard}-of-{shards}"  # as Hugging Face does: train-00000-of-00003.parquet
    return ["/".join([*(level[n] for level in levels), stem + end]) for n, end in enumerate(endings)]


def _stem(name: str, ending: str) -> str:
    return name[: name.rindex(ending.removesuffix(NUMBER))] if ending.endswith(NUMBER) else name[: -len(ending) or None]


def _folders(values: Sequence[set[str]], level: int, above: Sequence[Sequence[str]]) -> list[str]:
    """Return what each kind has at one level of folders; [] where kinds differ in names that no pattern can hold."""
    every = set[str]().union(*values)
    alone = all(len(kind) == 1 for kind in values) and not every & SPLITS
    if alone and not any(map(_READ.search, every)):
        return [name for kind in values for name in kind]
    if alone and len(every) > 1:
        return []
    return ["{split}" if _splits(every, above) else f"{{folder{level + 1}}}"] * len(values)


def _splits(names: set[str], above: Sequence[Sequence[str]]) -> bool:
    """Tell whether names are those of splits: twice in a pattern it is the same one."""
    return names <= SPLITS and not any("{split}" in level for level in above)
