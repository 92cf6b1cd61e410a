# rye:signed:2026-11-22T18:32:50Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:c9c2Uaor2Lg7aDnrg26qnRU0X2fDs4OSMZGNLUSsuX9Dlxh70ZnP4LHMp_l_qUFdZS03G5qQ55cKyDDHBQ8PDw:05af8069d5b816d9
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
