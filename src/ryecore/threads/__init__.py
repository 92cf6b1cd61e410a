"""Managed threads: a directive with a model loop, a budget, permissions and a signed transcript."""
