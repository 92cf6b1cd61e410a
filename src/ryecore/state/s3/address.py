"""The address of a bucket, and the keys for it, which are only in the environment.

Source: docs/how-to/keep-objects.md.
"""

import re
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import parse_qsl, urlsplit

from attrs import field

from ryecore.errors import ConfigError, StateUnreachable
from ryecore.frozen import frozen

__all__ = ["S3Address", "S3Keys"]

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_PREFIX: Final = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*", re.ASCII
)
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,40}", re.ASCII)
_OPTIONS: Final = frozenset({"endpoint", "region", "credentials"})
_INSTANCE: Final = "instance"
_DEFAULT_REGION: Final = "us-east-1"
_ROLES: Final = {
    "container_credentials_relative_uri": "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "container_credentials_full_uri": "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "container_authorization_token_file": "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "web_identity_token_file": "AWS_WEB_IDENTITY_TOKEN_FILE",
    "role_arn": "AWS_ROLE_ARN",
    "role_session_name": "AWS_ROLE_SESSION_NAME",
    "sts_endpoint": "AWS_ENDPOINT_URL_STS",
}
"""The settings of the driver that name a role, and their variables."""


@frozen
class S3Address:
    """The address of one project's objects in a bucket.

    Attributes:
        bucket: The bucket.
        prefix: What the keys of all objects begin with; empty, or names joined by `/`.
        endpoint: The URL of the service.
        region: Its region.
        has_instance_role: Whether the machine's own role gives the keys.
    """

    bucket: str
    prefix: str
    endpoint: str
    region: str
    has_instance_role: bool = False

    @property
    def shown(self) -> str:
        """The address for people."""
        place = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return f"{place} (at {urlsplit(self.endpoint).netloc})"

    @classmethod
    def parse(cls, url: str, environ: Mapping[str, str]) -> Self:
        """Parse a URL such as `s3://bucket/prefix?region=eu-central-1`.

        Args:
            url: The URL. `endpoint` names another service than AWS.
            environ: The environment, whose `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_REGION`
                and `AWS_DEFAULT_REGION` count where the URL names none.

        Raises:
            ConfigError: It isn't one. The message doesn't repeat it.
        """
        try:
            parts = urlsplit(url)
            named = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise _refused("it isn't a URL") from None
        options = dict(named)
        prefix = parts.path.strip("/")
        if "@" in parts.netloc:
            raise _refused("keys don't belong into it")
        if not _BUCKET.fullmatch(parts.netloc):
            raise _refused("it names no bucket")
        if prefix and not _PREFIX.fullmatch(prefix):
            raise _refused("its prefix isn't of letters, digits, dots, underscores and hyphens")
        if not options.keys() <= _OPTIONS or len(options) < len(named) or parts.fragment:
            raise _refused("it has other options than endpoint, region and credentials")
        if options.get("credentials", _INSTANCE) != _INSTANCE:
            raise _refused(f"credentials may be {_INSTANCE} only")
        region = options.get("region") or _first(environ, "AWS_REGION", "AWS_DEFAULT_REGION")
        region = region or _DEFAULT_REGION
        endpoint = options.get("endpoint") or _first(
            environ, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"
        )
        if not _REGION.fullmatch(region):
            raise _refused("its region isn't one")
        return cls(
            parts.netloc,
            prefix,
            _check_endpoint(endpoint) if endpoint else _amazon(region),
            region,
            "credentials" in options,
        )


@frozen
class S3Keys:
    """The keys for a bucket, or the settings of a role that gives them.

    Attributes:
        static: The keys as the driver takes them; None where a role gives them.
        role: The driver's settings that name the role.
    """

    static: Mapping[str, str | None] | None = field(repr=False)
    role: Mapping[str, str] = field(factory=dict, repr=False)

    @classmethod
    def of(cls, address: S3Address, environ: Mapping[str, str]) -> Self:
        """Return the keys in an environment.

        Raises:
            StateUnreachable: There are none, nor a role.
        """
        if address.has_instance_role:
            return cls(None)
        key, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
        if key and secret:
            token = environ.get("AWS_SESSION_TOKEN") or None
            return cls({"access_key_id": key, "secret_access_key": secret, "token": token})
        role = {name: environ[one] for name, one in _ROLES.items() if environ.get(one)}
        if not role:
            raise StateUnreachable(
                f"There are no keys for {address.shown} in the environment.",
                next_step="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; on a machine whose own "
                f"role may use the bucket, add ?credentials={_INSTANCE} to the address.",
            )
        return cls(None, role)


def _first(environ: Mapping[str, str], *names: str) -> str | None:
    return next((environ[one] for one in names if environ.get(one)), None)


def _amazon(region: str) -> str:
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://s3.{region}.{domain}"


def _check_endpoint(endpoint: str) -> str:
    wrong = _refused("its endpoint isn't a URL such as https://HOST:PORT")
    try:
        parts = urlsplit(endpoint)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise wrong from None
    if not is_url or "@" in parts.netloc or parts.query or parts.fragment:
        raise wrong
    return endpoint.rstrip("/")


def _refused(why: str) -> ConfigError:
    return ConfigError(
        f"The address of the objects can't be used: {why}.",
        next_step="Write s3://BUCKET/PREFIX, with ?region=REGION, and &endpoint=https://HOST for "
        "another service than AWS; the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    )
