"""A Python tool's process behaves warm as it behaves cold."""
