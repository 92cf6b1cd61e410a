"""Sends three log messages while it runs."""

import json
import os
import time

__executor_id__ = "rye/core/runtimes/python/function"
__reports__ = True


def log(text):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        channel.write(json.dumps({"log": text}) + "\n")


def execute(params, project_path):
    log("Tool execution started")
    time.sleep(0.05)
    log("Tool processing data")
    time.sleep(0.05)
    log("Tool execution completed")
    return "Three messages were sent."
