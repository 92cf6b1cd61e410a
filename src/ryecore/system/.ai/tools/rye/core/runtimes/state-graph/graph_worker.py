# rye:signed:2026-11-23T07:09:24Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:N24c3nurnOVun5jx-dt2PA3l35v8fu39l4DeYBteFnWp2GFDSQn-SMMt5JSPDP4t1_Aw6EPrNwqdG-CA8OmtBA:ad426c65d6cf697e
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
