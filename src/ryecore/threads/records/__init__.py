"""What a transcript is made into: a conversation again, an export, a replay."""
