# rye:signed:2026-11-23T07:03:03Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:9T0dWjD650--BA5aVqStNa2AVEumvPsB5CcE7eYWjKRrgpYCYQPYoaA9ksF4RCCWTCgp8kcPLuR7vuVz8o-XAg:dc9821d4799304d7
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
