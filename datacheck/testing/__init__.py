"""Test data for datacheck: `synth` writes clean datasets in real layouts, `faults` breaks them.

Nothing here uses a rule or a threshold: the numbers are those of the real datasets.
"""
