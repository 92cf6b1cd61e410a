# rye:signed:2026-11-22T14:38:42Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:bFsbN2EWbpmeKq4Alt3Wl2enykkAocmAcr-f162SJcOUw4aEWvRMwuW9DU50Y5ZmB-FM44EyXFK91KtimZx0CQ:00876411c3356ad7
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
