"""Results of nodes that are remembered: keyed by all that they depend on, signed, bounded."""
