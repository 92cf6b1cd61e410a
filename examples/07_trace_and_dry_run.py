"""See what would happen, and why, before anything runs; and what had happened when it failed."""

import tempfile
from pathlib import Path

from ryecore import RyeError, SyncRye

# The project has a tool of a name that ryecore's own bundle has too: it shadows that one.
TOOL = """\
# __version__ = "1.0.0"
# __executor_id__ = "rye/core/runtimes/bash/bash"
echo "the project's own rye/bash, in $1"
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "shop")
        tool = project / ".ai/tools/rye/bash.sh"
        tool.parent.mkdir(parents=True)
        tool.write_text(TOOL)
        (project / ".env").write_text("GREETING=hello\nLD_PRELOAD=/tmp/evil.so\n")

        with SyncRye.open(project, user_space=Path(folder, "home")) as rye:
            rye.keys.generate("the example")
            rye.sign("tool:rye/bash")

            print("1. The chain and each decision that leads to it; nothing runs\n")
            for event in rye.trace("tool:rye/bash").events:
                if event["step"] == "resolve" and event["shadowed"]:
                    print(f"  {event['item_id']} of {event['space']} space shadows:")
                    print(*(f"    {one['space']}" for one in event["shadowed"]))
                if event["step"] == "resolve_env" and event.get("dropped"):
                    print(f"  dropped from .env: {', '.join(event['dropped'])}")

            print("\n2. A dry run: every signature is checked, and the plan is shown\n")
            print(rye.execute("tool:rye/bash", dry_run=True))

            print("\n3. A failed attempt keeps its trace, which ends in what failed\n")
            tool.write_text(TOOL.replace("bash/bash", "bash/zsh"))
            rye.sign("tool:rye/bash")
            try:
                rye.execute("tool:rye/bash", trace=True)
            except RyeError as refusal:
                print(f"  {refusal.message}")
                print(f"  last event: {refusal.trace[-1]['step']}")


if __name__ == "__main__":
    main()
