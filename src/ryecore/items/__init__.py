"""Items: refs, spaces, metadata, signatures, keys, trust, verification and sealed copies."""
