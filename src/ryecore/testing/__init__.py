"""Public fakes, and the conformance suites for the adapters of others."""
