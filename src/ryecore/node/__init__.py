"""The node: a server that runs signed projects for the callers that its operator allows."""
