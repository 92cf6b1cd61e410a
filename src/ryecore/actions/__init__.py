"""The verbs execute, fetch, search, sign and verify, and the handles of threads and graphs."""
