"""Which variables look like credentials, by their names and by their values. Pure.

Source: decision 20.
"""

import re
from typing import Final

__all__ = ["is_credential", "looks_like_credential"]

_STORES: Final = (
    r"DATABASE|DB|POSTGRES(?:QL)?|PG|MYSQL|MARIADB|MSSQL|SQLSERVER|ORACLE|MONGO(?:DB)?|REDIS|VALKEY"
    r"|KEYDB|MEMCACHED?|CACHE|AMQP|RABBIT(?:MQ)?|CLOUDAMQP|BROKER|CELERY|QUEUE|KAFKA|NATS|MQTT"
    r"|CLICKHOUSE|ELASTIC(?:SEARCH)?|OPENSEARCH|SOLR|NEO4J|COUCH(?:DB|BASE)|CASSANDRA|INFLUX(?:DB)?"
    r"|SQLALCHEMY|JDBC|LDAP|SMTP|IMAP|MAIL(?:ER)?|EMAIL|SENTRY|SUPABASE|JAWSDB|CLEARDB"
)
_NAME: Final = re.compile(
    # anywhere in the name
    r"API_?KEY|TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|PASSCODE|PASSFILE|CREDENTIAL|ACCESS_?KEY"
    r"|PRIVATE_?KEY|SIGNING_?KEY(?!_DIR$)|ENCRYPTION_?KEY|MASTER_?KEY|SERVICE_?ACCOUNT|SERVICE_?KEY"
    r"|CONN(?:ECTION)?_?STR|WEB_?HOOK|COOKIE|MNEMONIC|BEARER|AUTHORIZATION|KEYFILE|KEYSTORE|KEYTAB"
    r"|KEYRING|HTPASSWD|SESSION_?KEY|PHPSESSID|_SESSID"
    # as a word, or the end of one
    r"|(?:^|_)(?:SK|PK|PW|PWD|PSK|JWT|PAT|PIN|OTP|TOTP|SALT|PEPPER|HMAC|CREDS?|AUTH_?KEY|LICENSE)"
    r"(?=_|$)"
    r"|(?<!BY)(?<!COM)(?<!SUR)(?<!TRES)PASS(?=_|$)"
    r"|(?<!MON)(?<!TUR)(?<!HOC)(?<!DON)(?<!WHIS)(?<!JOC)KEYS?$"
    r"|(?:^|_)KEY_(?!(?:DIR|REPEAT|DELAY|MAP|BINDINGS?|TIMEOUT)$)"
    r"|(?:^|_)(?:O?AUTH\d?)(?:_(?:HEADER|CODE|DATA|INFO|SOCK|STRING|CONFIG|FILE|JSON|COOKIE))?$"
    r"|(?:^|_)(?:PEM|P12|PFX|WALLET_SEED|SEED_PHRASE|SIGNATURE|SESSION(?:_ID|ID)?)$|DSN$"
    # stores, whose addresses often carry a password
    rf"|(?:^|_)(?:{_STORES})\w*_UR[LI]S?$|(?:^|_)(?:{_STORES})UR[LI]$"
    # files and sockets that hold credentials, or lend them
    r"|^(?:KUBECONFIG|KUBE_CONFIG\w*|DOCKER_CONFIG|DOCKER_AUTH\w*|NETRC|GNUPGHOME|GPG_AGENT_INFO"
    r"|SSH_AUTH_SOCK|SSH_AGENT_PID|AWS_CONFIG_FILE|BOTO_CONFIG|BOTO_PATH|CLOUDSDK_CONFIG"
    r"|AZURE_CONFIG_DIR|KRB5CCNAME|KRB5_\w*KTNAME|XAUTHORITY|ICEAUTHORITY|GNOME_KEYRING\w*"
    r"|PGSERVICEFILE|NPM_CONFIG_USERCONFIG|VAULT_CACERT|TF_VAR_\w*KEY\w*|REDISCLI_AUTH)$",
    re.IGNORECASE,
)
_HARMLESS: Final = re.compile(
    r"PWD|OLDPWD|(?:XDG|DESKTOP|GNOME|KDE|DBUS|GDM|TERM|ITERM|WT|WAYLAND|GNOME_DESKTOP)\w*SESSION\w*"
    r"|RYE_SIGNING_KEY_DIR",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(
    # a URL with a password, or with a token in the place of the user
    r"[A-Za-z][A-Za-z0-9+.\-]{0,40}://(?:[^/?#\s@:]*:[^/?#\s]+|[^/?#\s@:]{16,})@"
    # a setting of a connection string or a query
    r"|(?:^|[?&;,\s])(?:password|passwd|pwd|secret|api_?key|access_?key|token|sig|signature"
    r"|accountkey|sharedaccesskey|_authtoken|client_secret)\s*=\s*[^\s;&]{4,}"
    # what well-known issuers write
    r"|-----BEGIN [A-Z0-9 ]*PRIVATE KEY|\bAGE-SECRET-KEY-|\beyJ[\w-]{10,400}\.eyJ"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}"
    r"|\b(?:gh[pousr]|github_pat|glpat|xox[abeoprs]|xapp|npm|pypi|dop_v1|hf|gsk|shpat|sq0\w{3})"
    r"[_-][\w-]{16,}|\b(?:sk|rk|pk|whsec)[_-][\w-]{16,}"
    r"|://hooks\.slack\.com/|://[\w.]*discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/"
    r"|^(?:Bearer\s+\S{8,}|Basic\s+[A-Za-z0-9+/=]{16,}$)",
    re.IGNORECASE,
)
_MAX_LOOKED_AT: Final = 64 * 1024


def looks_like_credential(name: str) -> bool:
    """Return whether a variable of this name probably holds a secret, or leads to one."""
    return _NAME.search(name) is not None and _HARMLESS.fullmatch(name) is None


def is_credential(name: str, value: str) -> bool:
    """Return whether a variable probably holds a secret, by its name or its value.

    Args:
        name: The variable's name.
        value: The variable's value: a URL with a password is a secret whatever its name is.
    """
    return looks_like_credential(name) or _VALUE.search(value[:_MAX_LOOKED_AT]) is not None
