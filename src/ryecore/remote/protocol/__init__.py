"""The protocol between a caller and a node, for both ends, without I/O."""
