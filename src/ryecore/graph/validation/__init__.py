"""The checks of a graph that need no run: each problem, with its file and line."""
