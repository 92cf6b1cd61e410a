"""The execution of graphs: the work of each node, and its record."""
