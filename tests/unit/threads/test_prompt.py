"""What a thread's model is told first."""

import re

from hypothesis import given
from hypothesis import strategies as st

from ryecore.directives.returns import render_returns
from ryecore.threads.prompt import (
    ContextBlock,
    directive_prompt,
    first_message,
    system_text,
)
from tests.unit.directives.files import file, parse

OUTPUTS = '<outputs><output name="sum" type="integer" required="true">The sum.</output></outputs>'


def block(text, position="before", hook="h", **options):
    return ContextBlock(hook, f"acme/{text}", position, text, **options)


def test_the_directive_stands_between_what_it_brings_and_what_hooks_bring():
    directive = parse(file())
    blocks = [
        block("hook-after", "after", wrap=False),
        block("own-after", "after", None, wrap=False),
        block("own-before", "before", None, wrap=False),
        block("hook-before", wrap=False),
        block("hook-before-2", wrap=False),
        block("system", "system", None, wrap=False),
    ]
    assert first_message(blocks, directive).split("\n\n") == [
        "hook-before", "hook-before-2", "own-before",
        '<directive name="tides">\nDo it.\n</directive>',
        "own-after", "hook-after",
    ]  # fmt: skip
    assert system_text(blocks) == "system"


def test_there_is_no_system_prompt_by_itself():
    assert system_text([]) == ""
    assert system_text([block("before")]) == ""


def test_the_prompt_holds_what_a_model_needs_and_returns_at_its_end():
    directive = parse(
        file(
            OUTPUTS + '<inputs><input name="topic"/></inputs>',
            metadata="<description>Tides &amp; such.</description><limits turns='3'/>"
            "<permissions>*</permissions>",
            body="Read about {input:topic}.",
        )
    ).with_inputs({"topic": "the moon"})
    prompt = directive_prompt(directive, render_returns(directive.outputs))
    assert "Read about the moon." in prompt
    assert "<description>Tides &amp; such.</description>" in prompt
    for kept in ("<outputs>", "<inputs>", "<limits", "<permissions>", "```"):
        assert kept not in prompt
    returns = render_returns(directive.outputs)
    assert prompt.endswith(f"{returns}\n</directive>")
    assert '<output name="sum" type="integer" required="true">' in returns


@given(st.text(alphabet=st.sampled_from("</ contextCONTEXT>\n\"'ab&"), max_size=200))
def test_no_text_gets_out_of_its_tag_or_begins_another(text):
    shown = ContextBlock("h", 'a"><b', "before", text).render()
    assert len(re.findall(r"<\s*/\s*context\b", shown, re.IGNORECASE)) == 1
    assert len(re.findall(r"<\s*context\b", shown, re.IGNORECASE)) == 1
    assert shown.startswith('<context id="a&quot;&gt;&lt;b" type="knowledge">\n')
    assert shown.endswith("\n</context>")


def test_a_block_without_a_tag_is_its_text_alone():
    assert block("plain", wrap=False).render() == "plain"


def test_what_the_transcript_holds_of_a_block():
    assert block("k").to_dict() == {
        "hook": "h", "item_id": "acme/k", "position": "before", "text": "k",
    }  # fmt: skip
