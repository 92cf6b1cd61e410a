"""Adapters for model vendors, each behind its own extra."""
