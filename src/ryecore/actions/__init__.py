"""The verbs that a person or a model uses."""
