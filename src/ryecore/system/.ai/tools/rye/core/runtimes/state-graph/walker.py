# rye:signed:2026-11-23T02:50:17Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:Bpq-Wqfw7cf_042h-GFPYKIFfVEkXpA4Do-EtHH1koZr9sjM5tcqhi7dwLjGdJXwk0o7BeXvb6X0EuN84lhQDQ:365fb507b56e536a
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
