# rye:signed:2026-11-28T12:26:52Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:3PKVaMZmxa9VjfYSnBqCearZlpBp4ID09KA3_Yfl161d-AFB64AZ4SU6LjGWryThNgJqQsvkdN6uTK5AfPJYBA:8ee98e1d7bdeffd0
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
