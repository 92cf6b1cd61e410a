"""What a person sees of runs: while they go on, and afterwards."""
