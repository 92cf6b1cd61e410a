"""One run from its registration to its end: what comes before its nodes, and what after."""
