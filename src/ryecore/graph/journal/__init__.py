"""The journal of a graph's run, with its signed checkpoints and the recovery after a crash."""
