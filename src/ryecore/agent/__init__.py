"""Agents: the turns of a model, run end to end."""
