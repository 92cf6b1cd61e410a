"""Fails after a second."""

import time

__executor_id__ = "rye/core/runtimes/python/function"
__task_support__ = "required"


def execute(params, project_path):
    time.sleep(1)
    return {"success": False, "error": "This job always fails"}
