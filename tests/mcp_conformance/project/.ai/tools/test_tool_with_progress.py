"""Reports how far it is."""

import json
import os
import time

__executor_id__ = "rye/core/runtimes/python/function"
__reports__ = True


def execute(params, project_path):
    for done in (0, 50, 100):
        with open(os.environ["RYE_CHANNEL"], "w") as channel:
            channel.write(json.dumps({"progress": done, "total": 100}) + "\n")
        time.sleep(0.05)
    return "All 100 are done."
