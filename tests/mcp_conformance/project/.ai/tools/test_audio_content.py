"""Returns audio."""

__executor_id__ = "rye/core/runtimes/python/function"
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="


def execute(params, project_path):
    return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}
