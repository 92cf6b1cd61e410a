"""Returns an image."""

__executor_id__ = "rye/core/runtimes/python/function"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)


def execute(params, project_path):
    return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}
