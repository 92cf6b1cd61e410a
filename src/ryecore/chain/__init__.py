"""tool -> runtime -> primitive: built, verified, validated, sealed, planned and run."""
