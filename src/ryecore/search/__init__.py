"""Search over items: the query language, and an index that follows the files by content hash."""
