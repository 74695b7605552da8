"""python -m datacheck: the command line where its script is not on the path."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[
        0
    ]  # the working folder, often the data: a module there must not take an optional library's place

from datacheck.cli.main import main

if __name__ == "__main__":
    main()
