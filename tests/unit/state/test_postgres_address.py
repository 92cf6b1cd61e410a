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


def test_an_option_is_for_the_driver_what_it_is_for_libpq() -> None:
    conninfo = pytest.importorskip("psycopg.conninfo", reason="needs the extra postgres")
    url = "postgresql:///rye?options=-c%20statement_timeout%3D9s&application_name=a%2Bb+c"
    for address in (PostgresAddress.parse(url), QueueAddress.parse(f"{url}&queue=q").state):
        read = conninfo.conninfo_to_dict(PostgresAddress.parse(address.without_password).url)
        assert read["options"] == "-c statement_timeout=9s"
        assert read["application_name"] == "a+b+c"
