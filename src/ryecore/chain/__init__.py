"""The chain from tool to runtime to primitive: built, verified, validated, sealed and run."""
