"""Tests of datacheck.formats."""
