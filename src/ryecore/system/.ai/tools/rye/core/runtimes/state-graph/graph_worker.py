# rye:signed:2026-11-28T13:35:45Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:UBpOYmHw721LnY-hgwdRSYF4IO68TtuJ2SgvBk4knkgMdZ06YA_Wg2XHdXFbKUF05hN576YkLg9xynfH-bhWCQ:6785ae38151bd2b9
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
