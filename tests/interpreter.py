"""The interpreter that runs tools and servers of the tests."""

import os
import shutil
import sys
import venv
import zlib
from pathlib import Path
from typing import Final

_BUILD: Final = Path(__file__).parents[1] / ".build"


def _plain_python() -> str:
    """Make a virtual environment without packages, where there is none yet.

    What an installation imports in every interpreter (its `.pth` files) can take several times as
    long as Python itself does to start, and hundreds of them are started.

    Returns:
        Its interpreter. A version manager's shim would cost a quarter of a second a run.
    """
    # A forked process has another `sys.executable`, and the same installation.
    installation = f"{sys.base_prefix} {sys.version}"
    folder = _BUILD / f"python-{zlib.crc32(os.fsencode(installation)):x}"
    if not folder.exists():
        own = folder.with_name(f"{folder.name}.{os.getpid()}")
        venv.EnvBuilder(symlinks=True).create(own)
        try:
            own.rename(folder)
        except OSError:  # another worker has made it meanwhile
            shutil.rmtree(own)
    return str(folder / "bin/python3")


PYTHON: Final = _plain_python()
"""The interpreter, without packages."""
