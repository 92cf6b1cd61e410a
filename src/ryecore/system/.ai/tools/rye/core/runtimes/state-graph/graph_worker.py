# rye:signed:2026-11-23T14:32:07Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:9117ECSE4tVe5367-b-Aabt6iIRrNNT0Tv3K8OhM7l9zrLCgO1EcfeAOMMN34PYo3OHUjIUsVumPrDZc8S4ZAw:c13b139b3074c336
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
