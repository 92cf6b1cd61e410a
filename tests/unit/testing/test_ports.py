"""Ports that stay free while a server on them is restarted."""

import socket
from pathlib import Path

import pytest

from ryecore.testing import ports
from ryecore.testing.node import free_port


@pytest.mark.parametrize(
    ("dynamic", "least", "most"),
    [
        ("32768 60999", 24_000, 65_535),
        ("1025 65534", 1_024, 65_535),  # only its two ends are left
        ("1024 65535", 1_024, 65_535),  # none is left
    ],
)
def test_a_free_port_is_outside_of_what_the_system_picks_where_that_leaves_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dynamic: str, least: int, most: int
) -> None:
    file = tmp_path / "range"
    file.write_text(f"{dynamic}\n")
    monkeypatch.setattr(ports, "_RANGE", file)
    first, last = map(int, dynamic.split())

    port = free_port()

    assert least <= port <= most
    if dynamic != "1024 65535":
        assert not first <= port <= last
    with socket.create_server(("127.0.0.1", port)):
        pass
