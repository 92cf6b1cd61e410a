"""The machine's authorities are read once, and vouch for servers."""

import ssl

from ryecore.providers.certificates import authorities


def test_all_pools_share_authorities_that_are_read_once() -> None:
    assert authorities() is authorities()


def test_a_server_that_nobody_vouches_for_or_of_another_name_is_refused() -> None:
    assert authorities().verify_mode is ssl.CERT_REQUIRED
    assert authorities().check_hostname
