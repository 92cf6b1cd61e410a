# rye:signed:2026-11-23T01:00:34Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:8qIYu-7nBArd9NUrW1oaG3XDI-mD6QshNvJEjStqRep_oe1uFu-1ZXvYH2JX5_3RlMTvhNU4bE_7UE7ughHoAw:1b1a8d0d13f6f224
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
