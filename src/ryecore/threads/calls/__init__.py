"""What a thread's model can call, and what it sees of the results."""
