"""Give models tools: what they are, who may call them, and how a call is served."""
