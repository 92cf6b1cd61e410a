# rye:signed:2026-11-23T00:24:02Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:GE7wxIaM2Hs7xpqA_kJqlHXPCnXVvOEgaaijVQ0j_E8PGBbidAycBDz6pUBMCy7DfvA0bacbyKSuegwghcjCDw:9970cceda93713ce
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
