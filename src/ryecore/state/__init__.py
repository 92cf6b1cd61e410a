"""The store of runs: the thread registry, budgets, transcripts, locks and attestation."""
