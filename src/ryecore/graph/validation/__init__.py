"""The static checks of a graph, which report each problem with its file and line."""
