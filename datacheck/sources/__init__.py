"""Turn files into samples: list a folder, plan the reads, read samples as blocks.

Names are imported on first use, so that a caller that only lists a folder loads no schema code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datacheck.sources.base import Item, Source, Unread, Work
    from datacheck.sources.indexes import with_indexes
    from datacheck.sources.kinds import SourceSetup, open_source
    from datacheck.sources.lerobot import with_rate
    from datacheck.sources.lerobot_pictures import with_pictures
    from datacheck.sources.listing import Listing, list_files
    from datacheck.sources.loader_tables import with_label_table, with_stats
    from datacheck.sources.planning import check_alone, matches, plan_work
    from datacheck.sources.roots import Entries, Entry

_HOME = {
    "base": ("Item", "Source", "Unread", "Work"),
    "loader_tables": ("with_label_table", "with_stats"),
    "indexes": ("with_indexes",),
    "lerobot": ("with_rate",),
    "lerobot_pictures": ("with_pictures",),
    "kinds": ("SourceSetup", "open_source"),
    "listing": ("Listing", "list_files"),
    "planning": ("check_alone", "matches", "plan_work"),
    "roots": ("Entries", "Entry"),
}

__all__ = [
    "Entries",
    "Entry",
    "Item",
    "Listing",
    "Source",
    "SourceSetup",
    "Unread",
    "Work",
    "check_alone",
    "list_files",
    "matches",
    "open_source",
    "plan_work",
    "with_indexes",
    "with_label_table",
    "with_pictures",
    "with_rate",
    "with_stats",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
