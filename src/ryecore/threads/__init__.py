"""Managed threads: directives with a model loop, a budget, permissions and a signed transcript."""
