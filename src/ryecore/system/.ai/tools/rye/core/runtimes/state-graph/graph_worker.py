# rye:signed:2026-11-23T06:14:33Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:oWH075zbXz_1PpSlsCJa-wut909gMNrme1t3nqx5hiyChW81igeNH2XF22ganbwDGf3uANsl9LghPm_udJaABQ:0cc2fd26c5e4a23d
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
