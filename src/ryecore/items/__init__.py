"""Items: refs, spaces, metadata, signatures, keys, trust, verification, sealed snapshots."""
