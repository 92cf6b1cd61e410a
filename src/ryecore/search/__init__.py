"""Search over items, on an index that follows the files by content hash."""
