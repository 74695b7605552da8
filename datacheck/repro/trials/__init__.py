"""A user's script in a process of its own: looked at as it is, or run again with one switch turned."""


def inner(module: str) -> list[str]:
    """Return what starts a module of this room, behind the interpreter: no import looks into the working folder."""
    run = f"from datacheck.repro.trials.{module} import main; main()"
    return ["-c", f"import sys; sys.path[: not sys.flags.safe_path] = []; {run}"]
