# rye:signed:2026-11-23T09:35:44Z:d9bd6ad50ec8a2fa1ddc3ef83b5c6dadf30232d449f6ac6f14193af78eac3260:7_S4jqxQgr2m_d4JRff1O1E-vZDRxZ7-ZTzS35NGI65CGfUxXsEAmiRhifcmO2brdDvNcsjiSga1EuzE475kDg:3f3dd60b3ba10fd5
"""Runs a graph: the state-graph runtime starts this file with the call on standard input.

The work is done by ryecore.graph_worker.
"""

import sys

from ryecore.graph_worker import main

if __name__ == "__main__":
    sys.exit(main())
