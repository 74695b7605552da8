"""Two recorded runs, or repeats of one, held against each other."""
