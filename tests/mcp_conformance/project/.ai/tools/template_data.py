"""Says what it knows of an id."""

__executor_id__ = "rye/core/runtimes/python/function"
CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string", "examples": ["123", "124", "200"]}},
    "required": ["id"],
}


def execute(params, project_path):
    return {"id": params["id"], "templateTest": True, "data": f"Data for ID: {params['id']}"}
