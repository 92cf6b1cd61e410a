# rye:signed:2026-11-28T17:20:55Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:E0NfRiPuuzYgYeIfcGO_KvjPgklWI4QnGQrWOZDvF21dJV37pkzfMFjZORMvNPRghcAecPGb1Lnlag-w_CsjDg:a50d0ff255b90b74
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
