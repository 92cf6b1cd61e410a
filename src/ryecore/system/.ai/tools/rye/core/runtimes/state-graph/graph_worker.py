# rye:signed:2026-11-28T13:22:49Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:zTW3fhnWauDMTRLEzneNXp6laSOKxz1kOms7S4Vcc9LzjVT-Un6nggjU1eNw9QnvoeU4BE9Co4h9KSXsdCCMCA:9b236661def0077c
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
