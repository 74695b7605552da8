"""Audit a loader: does it serve the requested samples, all of them, and none of its own making?

``datacheck scan --loader`` runs a user's dataset in a child process and judges what it returns:

- `audit` tells the whole story; `loader_rules` chooses and applies the rules.
- `first_pass` reads every index once and makes samples of the answers (`sample_builder`).
- `contract_checks` then asks whether the index decides which sample is served, whether the bytes
  are the same again (`determinism`), and what the loader makes of its files (`file_comparison`).
- `loader_process` is the parent's side of the child, `loader_child` the code that runs in it.
"""
