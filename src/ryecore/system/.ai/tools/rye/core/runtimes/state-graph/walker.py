# rye:signed:2026-11-22T18:27:38Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:y5wtXQwmfZXu26AfgRyTwtJSijUESuYclPZqEln68tTw6SfIASSw8cJEkA5npNgldn8o26wWnOFheM22XoDMCg:85713489a27bc22b
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
