"""Data to try datacheck on: `synth` writes clean datasets in real layouts, `faults` breaks them on purpose.

Nothing here knows a rule or a threshold: the numbers are those of the real datasets.
"""
