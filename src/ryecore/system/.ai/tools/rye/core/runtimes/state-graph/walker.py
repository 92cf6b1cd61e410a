# rye:signed:2026-11-23T01:32:30Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:0JcnxRWRWxgOtP3Fg-EmQtvH5DWHSnUkyNH4yxEgtwXPcjO_kEC0nCFbUUdXFszguC9VM9pa9zpWkN-K08awDg:a5199df06c86d42c
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
