"""The tree of threads, as people see it."""
