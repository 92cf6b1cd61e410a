"""Which variables look like credentials."""

import pytest

from ryecore.policy.environment import (
    is_credential,
    is_short_listed,
    looks_like_credential,
    may_inherit,
)

SECRET_NAMES = [
    "ANTHROPIC_APIKEY", "API_KEYS", "APP_SESSION", "AUTH", "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CONNECTION_STRING", "BASIC_AUTH",
    "BORG_PASSPHRASE", "CELERY_BROKER_URL", "CI_JOB_JWT", "DATABASE_URL", "DB_CREDS", "DB_PASS",
    "DB_PASSWORD", "DB_URI", "DISCORD_WEBHOOK_URL", "DJANGO_SECRET_KEY", "DOCKER_AUTH_CONFIG",
    "ENCRYPTION_KEY", "GH_PAT", "GITHUBTOKEN", "GITHUB_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
    "JDBC_URL", "KEY_PASSPHRASE", "KRB5CCNAME", "KUBECONFIG", "LICENSE_KEY", "MONGODB_URI",
    "MYSQL_PWD", "NETRC", "NPM_AUTH", "OPENAI_API_KEY", "OPENAI_KEY", "OPENAI_KEY_PROD",
    "OTP_CODE", "RYE_OBJECTS", "RYE_STATE", "PASSWORDS", "PGPASS", "PGPASSFILE", "PGPASSWORD",
    "POSTGRES_URL",
    "RAILS_MASTER_KEY", "REDISCLI_AUTH", "REDIS_URL", "SALT", "SENTRY_DSN", "SESSION_COOKIE",
    "SESSION_ID", "SLACK_WEBHOOK", "SMTP_PASS", "SSHPASS", "SSH_AUTH_SOCK", "SSH_KEY",
    "STRIPE_PK", "STRIPE_SK", "SUPABASE_SERVICE_KEY", "TLS_KEY", "VAULT_TOKEN", "XAUTHORITY",
    "dbPass", "my_secret", "paſsword", "APİ_KEY", "apı_key", "TO\u212aEN",
    "npm_config_//registry.example/:_authToken", "npm_config__auth",
]  # fmt: skip
PLAIN_NAMES = [
    "API_URL", "AUTHOR", "BYPASS", "CACHE_DIR", "CI", "COMPASS", "DB_HOST", "DESKTOP_SESSION",
    "DISPLAY", "EDITOR", "EMAIL", "GIT_AUTHOR_NAME", "GOPATH", "HOME", "HOSTNAME", "HTTP_PROXY",
    "KEYBOARD", "KEYMAP", "KEYTIMEOUT", "LANG", "LS_COLORS", "MONKEY", "NODE_ENV", "OLDPWD",
    "PASSENGER_COUNT", "PATENT", "PATH", "PKG_CONFIG_PATH", "PWD", "RANDOM_SEED",
    "RYE_SIGNING_KEY_DIR", "SESSION_MANAGER", "SHLVL", "SKETCH", "SKIP", "SSH_CONNECTION",
    "TOKENIZERS_PARALLELISM", "XDG_SESSION_ID",
]  # fmt: skip
SECRET_VALUES = [
    "postgres://me:pw@db/app", "https://me:p@ss@example.com", "http://x:y@proxy:3128",
    "redis://:pw@host:6379", "ssh://git:pw@host", "https://ghp_abcdefghijklmnop1234@github.com/x",
    "Server=a;Password=hunter22;", "https://example.com/?token=abcdef",
    "https://hooks.slack.com/services/T0/B0/x", "-----BEGIN OPENSSH PRIVATE KEY-----",
    "sk-ant-api03-aaaaaaaaaaaaaaaaaaaa", "Bearer abcdefghij",
]  # fmt: skip
PLAIN_VALUES = [
    "https://example.com/a:b@c", "git@github.com:x/y", "https://example.com/path?x=1", "user@host",
    "http://[::1]:80/", "ssh://git@github.com/x", "/usr/bin:/bin", "unix:path=/run/user/1000/bus",
    "local/host:@/tmp/.ICE-unix/1,unix/host:/tmp", "rs=0:di=01;34:ln=01;36", "Basic training",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_what_looks_like_a_credential_is_not_inherited(name: str) -> None:
    assert looks_like_credential(name)
    assert not may_inherit(name, "safe")
    assert not may_inherit(name, ["ANOTHER"])
    assert may_inherit(name, [name])


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_other_variables_are_inherited(name: str) -> None:
    assert may_inherit(name, "safe", "value")


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_value_that_carries_a_password_is_a_credential_whatever_its_name(value: str) -> None:
    assert is_credential("PLAIN", value)
    assert not may_inherit("HTTP_PROXY", "safe", value)


@pytest.mark.parametrize("value", PLAIN_VALUES)
def test_other_values_are_inherited(value: str) -> None:
    assert not is_credential("PLAIN", value)


@pytest.mark.parametrize(
    "value", ["://" * 30_000, "a://" + "b:" * 30_000, "eyJ-" * 20_000, "password " * 9000]
)
def test_a_long_value_takes_no_long_time(value: str) -> None:
    assert not is_credential("PLAIN", value)


def test_the_short_list_is_what_programs_need_to_start() -> None:
    names = [*PLAIN_NAMES, *SECRET_NAMES, "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LC_ALL"]
    found = {name for name in names if is_short_listed(name)}
    assert found == {"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TZ", "USER"}
    assert {name for name in names if may_inherit(name, "none")} == found
