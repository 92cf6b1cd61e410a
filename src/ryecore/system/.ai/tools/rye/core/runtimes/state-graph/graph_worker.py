# rye:signed:2026-11-23T13:00:42Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:ue3dwi2BSkMYvs7-zT13UKCzxx5rMWbNxCkcd9ujF5Y3y2hklrmrYbCmUG-9uljEGSN12786cL7DgZ9e_t_GCg:d20402989ca22ac0
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
