"""The uses of a transcript: rebuilt conversations, exports and replays."""
