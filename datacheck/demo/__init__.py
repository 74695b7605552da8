"""The whole way on data whose truth is known: write, break, scan, build, verify, train."""
