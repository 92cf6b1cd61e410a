# rye:signed:2026-11-23T13:17:48Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:4E-Zg9JYsDwFuDJWTpD8ZBuyPc63Yce1kn7cB6exIIdwbux0R1KZF1mfr4e0ZlBNAkbcx3sgLagvyMaNMN6ODg:a43bccb664db34f6
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
