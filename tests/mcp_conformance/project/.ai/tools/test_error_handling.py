"""Always fails."""

__executor_id__ = "rye/core/runtimes/python/function"


def execute(params, project_path):
    return {"success": False, "error": "This tool intentionally returns an error for testing"}
