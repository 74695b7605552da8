"""Judging samples in memory: which rules run, what they measure, what the judges say of it."""
