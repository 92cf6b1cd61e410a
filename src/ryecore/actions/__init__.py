"""The actions execute, fetch, search, sign and verify, and the interfaces to threads and graphs."""
