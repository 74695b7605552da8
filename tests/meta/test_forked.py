"""`tests/forked.py`: a program ends, and says what it says, as in a new process; nothing of it stays."""

import os
import subprocess
import sys

import pytest


def run(python, *words, **options):
    return subprocess.run(
        [python, *map(str, words)], capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize(
    ("program", "code", "last"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('why')", 1, "why"),
        ("[][1]", 1, "IndexError: list index out of range"),
        ("import os; os.abort()", -6, ""),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
    ],
)
def test_exit_codes_are_those_of_python(forked_python, program, code, last):
    ended = {
        python: run(python, "-c", program, cwd="/") for python in (forked_python, sys.executable)
    }
    assert [one.returncode for one in ended.values()] == [code, code]
    for one in ended.values():
        assert one.stderr.splitlines()[-1:] == ([last] if last else [])


def test_a_file_finds_what_lies_beside_it_and_gets_its_arguments(forked_python, tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 5\n")
    (tmp_path / "mine.py").write_text("import beside, sys\nprint(beside.VALUE, sys.argv[1:])\n")
    assert run(forked_python, tmp_path / "mine.py", "a", 2).stdout == "5 ['a', '2']\n"


def test_a_program_leaves_nothing_to_the_next_one(forked_python, tmp_path):
    own = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
    own["OWN"] = "x"
    first = "import builtins, os; builtins.left = 1; os.environ['LEFT'] = '1'; os.chdir('/')"
    assert run(forked_python, "-c", first, env=own, cwd=tmp_path).returncode == 0
    said = "import os; print('left' in dir(__builtins__), 'LEFT' in os.environ, os.getcwd())"
    ended = run(forked_python, "-c", said, env=own, cwd=tmp_path)
    assert ended.stdout == f"False False {tmp_path}\n"


def test_threads_and_exit_functions_end_before_the_program_does(forked_python, tmp_path):
    program = (
        "import atexit, threading, time\n"
        "atexit.register(lambda: print('exit'))\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
    )
    assert run(forked_python, "-c", program, cwd=tmp_path).stdout == "thread\nexit\n"
