"""What threads and graph runs share: the actions they are handed, who keeps them, their hooks."""
