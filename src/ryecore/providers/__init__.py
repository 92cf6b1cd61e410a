"""Adapters, one a vendor, each behind its own extra. They know the seam (`ryecore.llm`) alone."""
