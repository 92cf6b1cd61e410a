"""State graphs: workflows as signed YAML, walked node by node through the verified chain."""
