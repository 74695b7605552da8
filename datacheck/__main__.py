"""python -m datacheck: the command line where its script is not on the path."""

from datacheck.cli.main import main

if __name__ == "__main__":
    main()
