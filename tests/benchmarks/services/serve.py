"""Serve one help desk on a free port, which is printed: `python -m ….serve MODULE`."""

import importlib
import socket
import sys

import uvicorn


def main(name: str) -> None:
    """Serve a module's `app` until the process is ended."""
    module = importlib.import_module(f"tests.benchmarks.services.{name}")
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(module.app, http="h11", access_log=False, log_level="error")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1])
