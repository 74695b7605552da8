"""Run the command line as ``python -m datacheck``, where its script is not on the PATH."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # The working folder often holds the data. A module in it must not shadow an optional library.
    del sys.path[0]

from datacheck.cli.main import main

if __name__ == "__main__":
    main()
