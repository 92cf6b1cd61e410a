"""A process that seals, run by the tests: `python -m tests.unit.items.sealing FOLDER ROUNDS`.

It says `ready`, waits for a line, then seals one tree after another and reads each at once, as a
tool's interpreter would. What it prints at the end is the inode of each.
"""

import sys
from pathlib import Path

from ryecore.items.snapshots import SnapshotStore


def files(number: int) -> dict[str, bytes]:
    """The files of a tree; small ones, so that processes meet while they write."""
    return {f"pkg/m{index}.py": f"{number} {index}\n".encode() for index in range(20)}


def main(folder: str, rounds: int) -> None:
    """Seal, read, and say which inodes were seen."""
    print("ready", flush=True)
    sys.stdin.readline()
    inodes = []
    for number in range(rounds):
        sealed = SnapshotStore(Path(folder)).seal(files(number))
        inodes.append(sealed.root.stat().st_ino)
        for name, content in files(number).items():
            assert (sealed.root / name).read_bytes() == content
    print(*inodes, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
