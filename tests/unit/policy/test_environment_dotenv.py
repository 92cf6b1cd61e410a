"""Which names a project's `.env` may set, whoever asks for them."""

import pytest

from ryecore.policy.environment import may_set_from_dotenv, variables_named_in
from tests.variables import STEERING

HARMLESS = [
    "API_URL", "APP_ENV", "DATABASE", "DATABASE_URL", "DB_HOST", "DEBUG", "FEATURE_FLAGS",
    "GITHUB_TOKEN", "GLOBAL_LIMIT", "GOAL", "GOOGLE_PROJECT", "HISTORY_DAYS", "HOMEPAGE",
    "LDAP_HOST", "LESSON", "LOG_LEVEL", "MAKER", "MY_PATH_TO", "OPENAI_API_KEY", "PORT",
    "PROJECT_ID", "PROMPT_TEMPLATE", "REDIS_URL", "REGION", "STRIPE_SK", "TERMS_URL", "TIMEOUT_S",
    "TF_VAR_region", "_private", "a1",
]  # fmt: skip


def test_a_dotenv_never_sets_what_steers_programs() -> None:
    assert [name for name in STEERING if may_set_from_dotenv(name)] == []


@pytest.mark.parametrize("name", ["BASH_FUNC_ls%%", "a-b", "1A", "", "A B", "Ä", "A" * 300])
def test_a_dotenv_never_sets_what_is_not_a_variable(name: str) -> None:
    assert not may_set_from_dotenv(name)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_dotenv_may_set_what_only_tools_read(name: str) -> None:
    assert may_set_from_dotenv(name)


def test_variables_are_found_wherever_signed_configuration_names_them() -> None:
    config = {
        "url": "${HOST:-x}:${PORT}",
        "args": ["$lower", {"deep": "${DEEP}"}],
        "n": 1,
        "t": "$",
    }
    assert variables_named_in(config) == {"HOST", "PORT", "lower", "DEEP"}
