"""The command line. `main` is the entry point, `commands` lists the commands and their modules.

``datacheck cache NAME`` is in ``cache_NAME.py`` and ``datacheck repro NAME`` in ``repro_NAME.py``,
unless several commands share a module; the tables in `commands` decide. A module is imported when
its command runs.
"""
