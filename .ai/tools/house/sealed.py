# rye:signed:2026-11-28T17:20:56Z:cd646e99375c772c595c3c67d48ce60b3893780d29ed985dd84a43c4fc3da511:qBWB5HY-y6S27dk2uw13nUwR0A3xbZX6ljfShmXLW_ATq3D_faO5cYhcmNpUMM8mcVmtIzQbBmyvOOKHvMkYBw:6d18ae449511288a
"""See that every sealed file is what it was when it was sealed."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "house"
__tool_description__ = "The files below a folder's .ai that don't verify with the key beside them."

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"folder": {"type": "string", "description": "The folder that holds the .ai."}},
    "required": ["folder"],
    "additionalProperties": False,
}


def execute(params: dict, project_path: str) -> dict:
    """Verify every item of the folder, of whatever kind, and run none."""
    import tempfile
    import tomllib
    from pathlib import Path

    from ryecore import SyncRye
    from ryecore.errors import ItemNotFound, RyeError

    root, verified = Path(project_path).resolve(), 0
    folder = root / params["folder"]
    keys = sorted((folder / ".ai/config/keys/trusted").glob("*.toml"))
    if len(keys) != 1:
        return {"problems": [f"{params['folder']} has {len(keys)} keys: seal it again."]}
    key = tomllib.loads(keys[0].read_text())["public_key"]["pem"]
    problems = []
    with (
        tempfile.TemporaryDirectory() as user,
        SyncRye.open(folder, user_space=user, trusted_keys=[key]) as rye,
    ):
        for kind in ("tool", "directive", "knowledge", "config"):
            try:
                report = rye.verify_all(f"{kind}:*")
            except ItemNotFound:
                continue
            except RyeError as error:
                problems.append(f"{params['folder']}: {error}")
                continue
            verified += len(report.verified)
            for path, error in report.failed:
                short = path.resolve().relative_to(root)
                problems.append(f"{short}: {error.message.replace(str(path), 'it')}")
    return {"folder": params["folder"], "verified": verified, "problems": problems}
