"""Returns an embedded resource."""

__executor_id__ = "rye/core/runtimes/python/function"


def execute(params, project_path):
    return {
        "content": [
            {
                "type": "resource",
                "resource": {
                    "uri": "test://embedded-resource",
                    "mimeType": "text/plain",
                    "text": "This is an embedded resource content.",
                },
            }
        ]
    }
