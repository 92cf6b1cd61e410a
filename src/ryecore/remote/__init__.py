"""Other machines: a signed project pushed to a node, run there, and its results brought home."""
