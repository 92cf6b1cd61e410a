"""Inside an asyncio application: the host's own key, many calls at once, a timeout."""

import asyncio
import tempfile
import time
from pathlib import Path

from ryecore import Rye, SigningKey, sign_item

TOOL = '''\
"""Wait, and say what for."""

__version__ = "1.0.0"
__executor_id__ = "rye/core/runtimes/python/function"


def execute(params, project_path):
    import time

    time.sleep(params["seconds"])
    return {"waited_for": params["name"]}
'''


def write_tool(folder: Path) -> SigningKey:
    """The application signs its own tools, and vouches for the key itself."""
    folder.mkdir(parents=True)
    (folder / "wait.py").write_text(TOOL)
    key = SigningKey.generate()
    sign_item(folder / "wait.py", key)
    return key


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop, home = Path(folder, "shop"), Path(folder, "home")
        key = write_tool(shop / ".ai/tools/acme")

        async with Rye.open(shop, user_space=home, trusted_keys=[key.public]) as rye:
            print("1. Eight calls at once, each in a process of its own\n")
            started = time.perf_counter()
            calls = (
                rye.execute("tool:acme/wait", {"name": name, "seconds": 0.1}) for name in "abcdefgh"
            )
            done = await asyncio.gather(*calls)
            print(" ", [result.data["waited_for"] for result in done])
            print(f"  {time.perf_counter() - started:.1f} s in all\n")

            print("2. One that takes too long is ended, with all that it started\n")
            slow = await rye.execute("tool:acme/wait", {"name": "x", "seconds": 9}, timeout_s=0.5)
            print(f"  {slow.status}: {slow.error}")


if __name__ == "__main__":
    asyncio.run(main())
