"""Which model a name stands for."""

import pytest

from ryecore.convert.config import Configuration
from ryecore.directives.model_names import AGENT_CONFIG, choose_model, read_model_names
from ryecore.errors import ConfigError, InputError

CONFIG = {
    "tiers": {"fast": "acme/small", "both": "acme/small"},
    "models": {
        "large": ["acme/large", "other/large"],
        "one": ["acme/one"],
        "both": "acme/large",
        "nested": "router/maker/large-2",
    },
}


def names(values):
    return read_model_names(Configuration.of(AGENT_CONFIG, values))


@pytest.mark.parametrize(
    ("wanted", "model"),
    [
        ("any/thing", "any/thing"),
        ("router/maker/model:free", "router/maker/model:free"),
        ("fast", "acme/small"),
        ("one", "acme/one"),
        ("small", "acme/small"),
        ("maker/large-2", "maker/large-2"),
    ],
)
def test_a_name_stands_for_one_model(wanted, model):
    assert choose_model(wanted, names(CONFIG)) == model


@pytest.mark.parametrize(
    ("wanted", "candidates"),
    [
        ("large", ("acme/large", "other/large")),
        ("both", ("acme/small", "acme/large")),
        ("unknown", ("both", "fast", "large", "nested", "one")),
    ],
)
def test_none_or_several_are_refused_with_the_candidates(wanted, candidates):
    with pytest.raises(InputError) as refusal:
        choose_model(wanted, names(CONFIG))
    assert refusal.value.candidates == candidates
    for candidate in candidates:
        assert candidate in str(refusal.value)


@pytest.mark.parametrize("wanted", ["", " ", "a/", "/b", "a b/c", "a/b c", 3, None, "x" * 300])
def test_what_is_no_name_is_refused(wanted):
    with pytest.raises(InputError) as refusal:
        choose_model(wanted, names(CONFIG))
    assert refusal.value.next_step


def test_without_configuration_the_fix_is_named():
    with pytest.raises(InputError, match=r"\.ai/config/agent/agent\.yaml"):
        choose_model("fast", {})


@pytest.mark.parametrize(
    "config",
    [
        {"tiers": ["fast"]},
        {"tiers": {"fast": 3}},
        {"models": {"a": "no-provider"}},
        {"models": {"a": ["x/y", None]}},
    ],
)
def test_a_configuration_of_another_form_is_refused_with_the_place(config):
    with pytest.raises(ConfigError, match=r"agent/agent\.yaml: (tiers|models)"):
        names(config)
