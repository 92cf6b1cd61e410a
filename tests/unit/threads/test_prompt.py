"""What a thread's model is told first."""

import re

from hypothesis import given
from hypothesis import strategies as st

from ryecore.directives.inputs import render_returns
from ryecore.llm.parts import Message
from ryecore.runs.resume import Continuation
from ryecore.threads.planner.prompt import (
    ContextBlock,
    continued_message,
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
    assert first_message(blocks, directive, {}).split("\n\n") == [
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
    )
    prompt = directive_prompt(directive, {"topic": "the moon"}, render_returns(directive.outputs))
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


def going_on(kind="resume", *, said=(), message=""):
    told = tuple(Message.user(text) for text in said)
    return Continuation(kind, "acme/tides-1", "acme/tides-1", told, message)


def test_a_thread_that_goes_on_is_told_its_directive_only_where_that_was_cut_off():
    directive = parse(file(OUTPUTS))
    prompt = directive_prompt(directive, {}, render_returns(directive.outputs))
    assert continued_message([], directive, {}, going_on(message="More.")) == f"{prompt}\n\nMore."
    kept = going_on(said=[f"Some context.\n\n{prompt}", "And then?"], message="More.")
    assert continued_message([], directive, {}, kept) == "More."


def test_context_of_a_thread_that_goes_on_stands_around_what_is_said_now():
    directive = parse(file())
    kept = going_on(said=[directive_prompt(directive, {})], message="More.")
    blocks = [block("before", wrap=False), block("after", "after", wrap=False)]
    assert continued_message(blocks, directive, {}, kept) == "before\n\nMore.\n\nafter"


def test_where_nobody_says_anything_the_model_is_told_why_it_goes_on():
    directive = parse(file())
    texts = {
        kind: continued_message(
            [], directive, {}, going_on(kind, said=[directive_prompt(directive, {})])
        )
        for kind in ("handoff", "resume", "fork")
    }
    assert "only its end is left" in texts["handoff"]
    assert "interrupted" in texts["resume"]
    assert texts["fork"].startswith("Go on")


def test_what_the_transcript_holds_of_a_block():
    assert block("k").to_dict() == {
        "hook": "h", "item_id": "acme/k", "position": "before", "text": "k",
    }  # fmt: skip
