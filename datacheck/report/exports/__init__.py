"""Results in the formats of other tools: JUnit XML, SARIF, GitHub, badges, outcomes of tests.

Each module turns a `result.json` (``datacheck.result/1``) into one format.
"""
