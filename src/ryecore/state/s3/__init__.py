"""Objects in an S3-compatible bucket. Needs obstore."""
