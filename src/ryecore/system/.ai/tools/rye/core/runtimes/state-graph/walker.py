# rye:signed:2026-11-22T18:01:41Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:qVkGb2eGb-BMTU68bvswRkRDb7O6Uqy1CsK-R2dEIKby2_f6EwF-I0RJEloRwY5FKsrlQt027JbUdFu7SJrDAA:01cb1e65a1e63935
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
