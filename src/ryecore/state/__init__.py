"""One store for what runs and ran: the thread registry, and the record keys that attest it."""
