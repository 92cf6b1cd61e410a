"""One suite of graphs, which every way of walking them must pass alike."""
