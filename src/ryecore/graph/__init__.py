"""State graphs: workflows in signed YAML, validated, run node by node, and journaled."""
