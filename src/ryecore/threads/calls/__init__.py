"""The tools of a thread's model, and the guard of their results."""
