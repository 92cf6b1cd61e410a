"""The model loop of one thread: its turns, what bounds them, and where they are recorded."""
