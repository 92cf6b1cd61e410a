"""The life of one thread, step by step."""
