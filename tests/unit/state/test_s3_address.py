"""Addresses of buckets, and the keys for them in an environment."""

import subprocess
import sys

import pytest

from ryecore.errors import ConfigError, StateUnreachable
from ryecore.state.object_places import check_address
from ryecore.state.s3.address import S3Address, S3Keys

SECRET = "s3cr3t-0f-Nobody"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.mark.parametrize(
    ("url", "environ", "shown", "region"),
    [
        ("s3://acme", {}, "s3://acme (at s3.us-east-1.amazonaws.com)", "us-east-1"),
        (
            "s3://acme/shop/one/",
            {"AWS_DEFAULT_REGION": "eu-west-1"},
            "s3://acme/shop/one (at s3.eu-west-1.amazonaws.com)",
            "eu-west-1",
        ),
        (
            "s3://acme?region=cn-north-1",
            {"AWS_REGION": "eu-west-1"},
            "s3://acme (at s3.cn-north-1.amazonaws.com.cn)",
            "cn-north-1",
        ),
        (
            "s3://acme/x?endpoint=http://127.0.0.1:9000/",
            {"AWS_ENDPOINT_URL_S3": "https://elsewhere.example"},
            "s3://acme/x (at 127.0.0.1:9000)",
            "us-east-1",
        ),
        (
            "s3://acme",
            {
                "AWS_ENDPOINT_URL_S3": "https://here.example",
                "AWS_ENDPOINT_URL": "https://no.example",
            },
            "s3://acme (at here.example)",
            "us-east-1",
        ),
    ],
)
def test_an_address_is_read_with_its_environment(
    url: str, environ: dict[str, str], shown: str, region: str
) -> None:
    found = S3Address.parse(url, environ)
    assert (found.shown, found.region) == (shown, region)
    assert check_address(url, environ) == url


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:acme",
        "s3://A",
        "s3://acme/../x",
        "s3://acme/a b",
        "s3://acme#x",
        f"s3://AKIA:{SECRET}@acme/x",
        f"s3://acme?secret_access_key={SECRET}",
        f"s3://acme?endpoint=https://AKIA:{SECRET}@host",
        "s3://acme?endpoint=ftp://host",
        "s3://acme?region=a/b",
        "s3://acme?region=eu-west-1&region=eu-west-2",
        "s3://acme?credentials=mine",
        "s3://acme?region",
        "s3://[acme",
    ],
)
def test_an_address_that_cant_be_used_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_address(url, KEYS)

    assert "s3://BUCKET/PREFIX" in refused.value.next_step
    assert SECRET not in f"{refused.value} {refused.value!r}"


def test_keys_come_from_the_environment_and_are_never_shown() -> None:
    address = S3Address.parse("s3://acme", {})
    found = S3Keys.of(address, {**KEYS, "AWS_SESSION_TOKEN": "t0ken"})
    assert found.static == {"access_key_id": "AKIA", "secret_access_key": SECRET, "token": "t0ken"}
    assert repr(found) == "S3Keys()"

    role = S3Keys.of(address, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/t", "AWS_ROLE_ARN": "arn:x"})
    assert role.static is None
    assert role.role == {"web_identity_token_file": "/t", "role_arn": "arn:x"}

    instance = S3Keys.of(S3Address.parse("s3://acme?credentials=instance", KEYS), KEYS)
    assert (instance.static, instance.role) == (None, {})

    for environ in ({}, {"AWS_ACCESS_KEY_ID": "AKIA"}):
        with pytest.raises(StateUnreachable, match="no keys for s3://acme") as refused:
            S3Keys.of(address, environ)
        assert "AWS_SECRET_ACCESS_KEY" in refused.value.next_step


def test_without_the_extra_an_address_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "from ryecore.errors import MissingExtra\n"
        "from ryecore.state.object_places import ObjectPlace, SharedObjects\n"
        "try:\n    SharedObjects(ObjectPlace('s3://acme', {})).open()\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'ryecore[s3]'" in done.stdout
