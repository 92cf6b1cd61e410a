"""A tool that runs in a process of its own: see it, read its output, wait for it, stop it."""

import tempfile
from pathlib import Path

from ryecore import SyncRye

COUNT = """\
# __version__ = "1.0.0"
# __executor_id__ = "rye/core/runtimes/bash/bash"
for number in 1 2 3; do echo "counted $number"; done
"""

HANG = """\
# __version__ = "1.0.0"
# __executor_id__ = "rye/core/runtimes/bash/bash"
sleep 1000
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "shop")
        (project / ".ai/tools/acme").mkdir(parents=True)
        (project / ".ai/tools/acme/count.sh").write_text(COUNT)
        (project / ".ai/tools/acme/hang.sh").write_text(HANG)

        with SyncRye.open(project, user_space=Path(folder, "home")) as rye:
            rye.keys.generate("the example")
            rye.sign("tool:acme/*")

            print("1. The call returns at once, with the thread that the tool runs in\n")
            launched = rye.execute("tool:acme/count", async_=True).to_dict()
            print({name: launched[name] for name in ("status", "async", "state", "item_id")})

            print("\n2. Any process may wait for it: nothing polls\n")
            thread_id = str(launched["thread_id"])
            report = rye.threads.wait(thread_id, timeout_s=60)
            print(f"  {report.status}: {report.data}")
            text, _ = rye.threads.log(thread_id)
            print(f"  its log ends with {text.splitlines()[-1]!r}")

            print("\n3. What hangs is ended, with all that it has started\n")
            hanging = rye.execute("tool:acme/hang", async_=True).to_dict()
            thread_id = str(hanging["thread_id"])
            print(f"  still {rye.threads.wait(thread_id, timeout_s=1).status}")
            rye.threads.cancel(thread_id)
            stopped = rye.threads.wait(thread_id, timeout_s=60)
            print(f"  {stopped.status}: {stopped.error}")

            print("\n4. Everything that ran is listed, newest first\n")
            for record in rye.threads.list(all=True):
                print(f"  {record.item_id:<16} {record.status}")


if __name__ == "__main__":
    main()
