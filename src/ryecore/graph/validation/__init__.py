"""What can be said of a graph without running it: each problem, with its file and line."""
