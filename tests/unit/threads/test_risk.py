"""Risk classes of capabilities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.chain.trace import Trace
from ryecore.convert.config import Configuration
from ryecore.directives.permissions import AcknowledgedRisk
from ryecore.errors import ConfigError, InputError
from ryecore.policy.permissions import allows
from ryecore.threads.planner.risk import (
    DEFAULT_RISKS,
    RISK_CLASSES,
    RISK_CONFIG,
    Risks,
    check_risks,
    judge,
    read_risks,
    risk_of,
)
from tests.unit.directives.files import file, parse

UNRESTRICTED = AcknowledgedRisk("unrestricted", "It runs in a container.")
ELEVATED = AcknowledgedRisk("elevated", "It needs a shell.")


@pytest.mark.parametrize(
    ("capability", "risk"),
    [
        ("rye.*", "unrestricted"),
        ("rye.sign.*", "unrestricted"),
        ("rye.sign.tool.acme.x", "unrestricted"),
        ("rye.fetch.*", "safe"),
        ("rye.fetch.knowledge.acme.tides", "safe"),
        ("rye.execute.*", "elevated"),
        ("rye.execute.tool.*", "elevated"),  # the shell lies within it
        ("rye.execute.tool.rye.bash", "elevated"),
        ("rye.execute.tool.rye.*", "elevated"),
        ("rye.execute.tool.rye.file-system.*", "write"),
        ("rye.execute.tool.rye.file-system.write", "write"),
        ("rye.execute.tool.rye.file-system.read", "safe"),
        ("rye.execute.tool.acme.csv", "write"),
        ("rye.execute.tool.acme.*", "write"),
        ("rye.execute.directive.acme.research", "write"),
        ("other.thing", "unrestricted"),
        ("*", "unrestricted"),
    ],
)
def test_the_most_specific_pattern_counts_and_what_lies_within_a_wide_one(capability, risk):
    assert risk_of(capability) == risk


def test_a_grant_is_of_no_lower_class_than_what_it_crosses():
    risks: Risks = {
        "rye.*": "safe",
        "rye.execute.tool.*.deploy": "unrestricted",
        "rye.execute.tool.acme.*": "write",
    }
    assert risk_of("rye.execute.tool.acme.*", risks) == "unrestricted"
    assert risk_of("rye.execute.tool.acme.deploy", risks) == "unrestricted"
    assert risk_of("rye.execute.tool.acme.read", risks) == "write"
    assert risk_of("rye.execute.tool.other.*", risks) == "unrestricted"
    as_specific: Risks = {"rye.a.*": "safe", "rye.*.b": "unrestricted"}
    assert risk_of("rye.a.b", as_specific) == risk_of("rye.a.*", as_specific) == "unrestricted"
    assert risk_of("rye.sign.tool.x", {"rye.*": "safe", "rye.sign.*": "safe"}) == "unrestricted"


NAMES = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4).map(
    lambda parts: "rye." + ".".join(parts)
)


@given(NAMES, NAMES.filter(lambda name: "*" not in name), st.dictionaries(
    NAMES, st.sampled_from(RISK_CLASSES), max_size=5
))  # fmt: skip
def test_no_wildcard_brings_what_is_more_dangerous_than_itself(pattern, item, risks):
    """Whatever is configured, an item that a pattern grants is of no higher class than it."""
    if allows((pattern,), item):
        assert RISK_CLASSES.index(risk_of(item, risks)) <= RISK_CLASSES.index(
            risk_of(pattern, risks)
        )


def test_unrestricted_is_blocked_unless_it_is_acknowledged():
    report = judge(["rye.*", "rye.fetch.*"], ())
    assert report.allowed == ("rye.fetch.*",)
    assert report.blocked == ("rye.*",)
    assert judge(["rye.*"], [UNRESTRICTED]).allowed == ("rye.*",)
    assert judge(["rye.*"], [ELEVATED]).blocked == ("rye.*",)


def test_a_star_beside_an_acknowledgement_grants_all():
    permissions = parse(
        file(
            metadata='<permissions>*<acknowledge risk="unrestricted">It is boxed in.</acknowledge>'
            "</permissions>"
        )
    ).permissions
    assert judge(permissions.capabilities, permissions.risks).allowed == ("rye.*",)


def test_elevated_is_granted_with_a_warning_unless_it_or_worse_is_acknowledged():
    report = judge(["rye.execute.*"], [AcknowledgedRisk("write")])
    assert report.allowed == ("rye.execute.*",)
    assert len(report.warnings) == 1
    assert "rye.execute.*" in report.warnings[0]
    for said in (ELEVATED, UNRESTRICTED):
        assert judge(["rye.execute.*"], [said]).warnings == ()


def test_a_blocked_directive_is_told_what_to_write():
    with pytest.raises(InputError, match=r"'rye\.\*': unrestricted") as refusal:
        check_risks(judge(["rye.*"], ()), Trace())
    assert '<acknowledge risk="unrestricted">' in refusal.value.next_step
    log = Trace()
    check_risks(judge(["rye.execute.*"], ()), log)
    assert log.events[0]["step"] == "risk"


def test_configuration_is_read_and_what_cannot_be_is_refused_with_its_place():
    assert read_risks(Configuration.of(RISK_CONFIG, {})) == DEFAULT_RISKS
    assert read_risks(Configuration.of(RISK_CONFIG, {"patterns": {"rye.*": "safe"}})) == {
        "rye.*": "safe"
    }
    for config in (
        {"patterns": {"rye.*": "wild"}}, {"patterns": {"bash": "safe"}}, {"patterns": []},
        {"rules": {}}, {"patterns": {3: "safe"}},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=r"agent/capability_risk\.yaml"):
            read_risks(Configuration.of(RISK_CONFIG, config))
