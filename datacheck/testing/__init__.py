"""Test data for datacheck: `synth` writes clean datasets in real layouts, `faults` breaks them.

Each kind of data has a module with both: its generators, and the faults that fit them.

Nothing here uses a rule or a threshold: the numbers are those of the real datasets.
"""
