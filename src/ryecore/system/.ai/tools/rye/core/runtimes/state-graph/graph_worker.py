# rye:signed:2026-11-28T07:36:48Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:q8HL7wIgUcvbCqr_bbhrea5mqMMLIEOcx34wxpWUzqruhQVnlm630Wqsd2XKLNCAksKIFBCXvta85g3wDAfsBw:d7428a5352481d0d
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
