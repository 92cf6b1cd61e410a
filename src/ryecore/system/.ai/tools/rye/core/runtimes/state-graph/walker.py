# rye:signed:2026-11-22T19:52:33Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:SEBwGFpRA2BvP1bp8cv-OohWvpkVgYxzXddFIyf6kViVMsdZ8JCtGWq1EotSP9XtQJM8tRGCQKZ9kRsi50GOBg:3e0bbfac53a60949
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
