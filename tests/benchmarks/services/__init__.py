"""One service, written with each library: a help desk behind FastAPI."""
