"""What a run of a graph leaves behind: its journal, signed checkpoints, and what a crash left."""
