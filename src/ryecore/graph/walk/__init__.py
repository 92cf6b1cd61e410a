"""Walk a graph: what is done at each node, and what is kept of it."""
