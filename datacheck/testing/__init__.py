"""Test data for datacheck: `synth` writes clean datasets in real layouts, `faults` breaks them.

Each layout has a module with both: its generator, and the faults that fit it.

Nothing here uses a rule or a threshold: the numbers are those of the real datasets.
"""
