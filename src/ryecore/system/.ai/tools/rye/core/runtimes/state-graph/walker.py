# rye:signed:2026-11-22T16:30:30Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:-TWI0p4ycEBJtF0MEpTTj6UksOHaRT4viZ3ok_XJ_UWia1VW9PmUDdT0LXRlQI0IRu-fEDAUrRUyhN34kz7sAQ:23a2317a45110522
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
