"""The operations with which threads manage the threads below them."""
