"""The rules between neighbours: spaces, inputs and outputs, versions."""

import pytest

from ryecore.chain.builder import ChainValidator
from ryecore.chain.model import ValidChain
from ryecore.errors import IncompatibleChain
from tests.unit.chain.elements import chain, element


def problems_of(*elements: object) -> str:
    """The refusal's text; empty where the chain is fine."""
    try:
        ChainValidator().validate_chain(chain(*elements))  # type: ignore[arg-type]
    except IncompatibleChain as refusal:
        return refusal.message
    return ""


@pytest.mark.parametrize(
    ("child", "parent", "refusal"),
    [
        ("project", "project", None),
        ("project", "user", None),
        ("project", "system", None),
        ("user", "project", "cannot depend on"),
        ("user", "user", None),
        ("user", "system", None),
        ("system", "project", "cannot delegate to mutable project"),
        ("system", "user", "cannot delegate to mutable user"),
        ("system", "system", None),
    ],
)
def test_a_child_depends_on_its_own_space_or_a_lower_one(child, parent, refusal):
    problems = problems_of(element("a/tool", child), element("a/runtime", parent))
    assert (refusal in problems) if refusal else not problems


def test_the_refusal_names_both_elements_and_lists_every_problem():
    with pytest.raises(IncompatibleChain) as refusal:
        ChainValidator().validate_chain(
            chain(
                element("a/tool", "user", outputs=["x"]),
                element("a/runtime", "project", inputs=["y"]),
            )
        )
    assert len(refusal.value.problems) == 2
    assert "'a/tool' from user space" in refusal.value.message
    assert "'a/runtime'" in refusal.value.message
    assert "rye trace tool:a/tool" in refusal.value.next_step


def test_a_system_element_in_the_middle_cannot_lead_back_to_a_mutable_one():
    problems = problems_of(
        element("a/tool", "project"), element("a/sealed", "system"), element("a/runtime", "project")
    )
    assert "system tool 'a/sealed' cannot delegate to mutable project tool 'a/runtime'" in problems


@pytest.mark.parametrize(
    ("outputs", "inputs", "fits"),
    [
        (["a", "b"], ["a"], True),
        (["a"], ["a"], True),
        (["a"], ["a", "b"], False),
        ({"a": "string"}, {"a": "string", "c": "string"}, False),
        ([], ["a"], True),
        (["a"], [], True),
    ],
)
def test_a_parents_inputs_are_among_the_childs_outputs_where_both_are_declared(
    outputs, inputs, fits
):
    problems = problems_of(element("a/t", outputs=outputs), element("a/r", inputs=inputs))
    assert not problems if fits else "requires inputs" in problems


def test_undeclared_inputs_and_outputs_fit():
    assert not problems_of(element("a/t"), element("a/r", inputs=["x"]))
    assert not problems_of(element("a/t", outputs=["x"]), element("a/r"))


@pytest.mark.parametrize("by_child", [False, True])
@pytest.mark.parametrize(
    ("version", "limits", "refusal"),
    [
        ("1.2.0", {"min_version": "1.0.0"}, None),
        ("1.0.0", {"min_version": "1.0.0", "max_version": "1.0.0"}, None),
        ("0.9", {"min_version": "1.0.0"}, "below 1.0.0"),
        ("1.10.0", {"max_version": "1.9.0"}, "above 1.9.0"),
        ("1.0.0", {"min_version": "soon"}, "declares 'soon', not a version"),
    ],
)
def test_a_parent_constrains_its_childs_version(version, limits, refusal, by_child):
    constraints = {"a/t": limits} if by_child else limits
    problems = problems_of(
        element("a/t", version=version), element("a/r", child_constraints=constraints)
    )
    assert (refusal in problems) if refusal else not problems


def test_limits_by_child_id_leave_other_children_alone():
    limits = {"a/other": {"min_version": "9"}}
    assert not problems_of(element("a/t", version="1.0"), element("a/r", child_constraints=limits))


@pytest.mark.parametrize(("declared", "said"), [({}, "none"), ({"version": "x.y"}, "'x.y'")])
def test_a_version_that_cannot_be_compared_is_a_warning(declared, said):
    valid = ChainValidator().validate_chain(
        chain(element("a/t", **declared), element("a/r", child_constraints={"min_version": "1"}))
    )
    assert isinstance(valid, ValidChain)
    assert len(valid.warnings) == 1
    assert said in valid.warnings[0]


def test_the_checked_pairs_are_listed_child_first():
    valid = ChainValidator().validate_chain(chain(element("a/t"), element("a/r")))
    assert valid.validated_pairs == (("a/t", "a/r"), ("a/r", "rye/core/primitives/execute"))
