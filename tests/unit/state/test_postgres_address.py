"""The address of a state, as drivers and other processes get it."""

import pytest

from ryecore.remote.queue_address import QueueAddress
from ryecore.state.postgres.address import PostgresAddress


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("postgresql://db/rye", "postgresql://db/rye?schema=ryecore"),
        ("postgresql://me:secret@db/rye?schema=shop", "postgresql://me@db/rye?schema=shop"),
        ("postgres://me:a%40b@db:99/rye", "postgres://me@db:99/rye?schema=ryecore"),
        (
            "postgresql:///rye?password=secret&host=/run/pg&schema=shop",
            "postgresql:///rye?host=%2Frun%2Fpg&schema=shop",
        ),
    ],
)
def test_an_address_is_sent_without_its_password(url: str, sent: str) -> None:
    address = PostgresAddress.parse(url)

    assert address.without_password == sent
    assert PostgresAddress.parse(sent).place == address.place


@pytest.mark.parametrize("url", ["postgresql:///rye?host=/run/pg", "postgresql:///rye"])
def test_an_address_without_a_host_keeps_its_slashes_for_the_driver(url: str) -> None:
    assert PostgresAddress.parse(url).url.startswith("postgresql:///rye")
    queue = QueueAddress.parse(f"{url}{'&' if '?' in url else '?'}queue=batch")
    assert queue.state.url.startswith("postgresql:///rye")
    assert queue.name == "batch"
