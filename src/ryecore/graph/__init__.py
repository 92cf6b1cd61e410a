"""State graphs: workflows as signed YAML, validated, walked node by node, and journaled."""
