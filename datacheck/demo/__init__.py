"""The full workflow on data with known faults: write, break, scan, build, verify, train."""
