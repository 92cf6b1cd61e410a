"""Which host a URL leads to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.tools.policy import check_domain, is_listed, target_of

LISTED = [
    "example.org",
    "*.example.net",
    "example.com:8443",
    "192.0.2.7",
    "[2001:db8::1]",
    "localhost",
]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org",
        "http://example.org/x?y=http://evil.test#z",
        "HTTPS://EXAMPLE.ORG/",
        "https://example.org:443/",
        "http://example.org:80/",
        "https://example.org./",
        "https://a.example.net/",
        "https://a.b.example.net/",
        "https://example.com:8443/x",
        "http://192.0.2.7/",
        "http://[2001:db8::1]/",
        "http://[2001:DB8:0:0::1]/",
        "http://localhost/@x",
    ],
)
def test_a_listed_host_is_found(url: str) -> None:
    assert is_listed(target_of(url), LISTED)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org.evil.test/",
        "https://evilexample.org/",
        "https://xexample.net/",
        "https://example.net/",
        "https://sub.example.org/",
        "https://example.org:8443/",
        "https://example.com/",
        "https://example.com:443/",
        "http://example.org:443/",
        "http://192.0.2.8/",
        "http://192.0.2.7.example.test/",
        "http://[::1]/",
        "http://[::ffff:192.0.2.7]/",
        "https://xn--exmple-cua.org/",
        "https://1.example.network/",
    ],
)
def test_another_host_is_not(url: str) -> None:
    assert not is_listed(target_of(url), LISTED)


@pytest.mark.parametrize(
    "url",
    [
        "",
        None,
        7,
        "example.org",
        "//example.org",
        "/etc/passwd",
        "ftp://example.org",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https:example.org",
        "https:/example.org",
        "https:///example.org",
        "https://",
        "https://user@example.org/",
        "https://example.org@evil.test/",
        "https://example.org:x@evil.test/",
        "https://evil.test\\@example.org/",
        "https://evil.test\\.example.org/",
        "https://example.org\t.evil.test/",
        "https://exam\nple.org/",
        " https://example.org/",
        "https://example.org /",
        "https://example.org\0.evil.test/",
        "https://example%2eorg/",
        "https://example.org%00.evil.test/",
        "https://еxample.org/",
        "https://ｅxample.org/",
        "https://example。org/",
        "https://example.org../",
        "https://.example.org/",
        "https://example..org/",
        "https://-example.org/",
        "https://example.org:/",
        "https://example.org:99999/",
        "https://example.org:8a/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://192.0.2.7./",
        "https://192.0.2.256/",
        "https://[2001:db8::1%25eth0]/",
        "https://[2001:db8::1/",
        "https://[v1.x]/",
        "https://[192.0.2.7]/",
    ],
)
def test_what_readers_take_differently_is_no_target(url: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        target_of(url)


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "ex*mple.org", "*example.org", "https://example.org", "a/b", "u@a.test",
     "é.org", "*.192.0.2.7", "0x7f.1", "a.test:", "a b", "*.*.org", "[::1"],
)  # fmt: skip
def test_an_entry_that_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="isn't a host"):
        check_domain(entry)


@given(st.from_regex(r"[a-z][a-z0-9]{0,8}(\.[a-z][a-z0-9]{0,8}){0,3}", fullmatch=True))
def test_a_name_lists_itself_and_a_star_what_lies_below(name: str) -> None:
    target, below = target_of(f"https://{name}/"), target_of(f"https://x.{name.upper()}./")

    assert is_listed(target, [name])
    assert not is_listed(target, [f"*.{name}"])
    assert is_listed(below, [f"*.{name}"])
    assert not is_listed(below, [name])
    assert not is_listed(target_of(f"https://{name}.evil.test/"), [name, f"*.{name}"])


@given(st.text(max_size=30))
def test_any_text_is_a_target_or_none(text: str) -> None:
    for url in (text, f"https://{text}", f"https://example.org{text}"):
        try:
            target = target_of(url)
        except ValueError:
            continue
        assert target.host.isascii()
        assert not set(target.host) & set("@/\\ %?#")
