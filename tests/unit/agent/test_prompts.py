"""Prompt templates: put in once, and never read again. Source: decision 60."""

import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.agent.prompts import (
    PromptTemplate,
    ReadFileMissing,
    TemplateMiss,
    mentions_secrets,
)
from ryecore.errors import ConfigError


def render(template, scope=None, read=None):
    async def run():
        return await PromptTemplate.parse(template).render(scope or {}, read)

    return anyio.run(run)


SCOPE = {
    "inputs": {"topic": "tides", "n": 3, "list": ["a", "b"], "none": None, "deep": [{"x": 1}]},
    "ctx": {"who": "me"},
    "run": {"outputs": {"before": {"text": "said"}}},
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "plain"),
        ("{{ inputs.topic }}", "tides"),
        ("{{inputs.topic}} of {{ctx.who}}", "tides of me"),
        ("{{ run.outputs.before.text | upper }}", "SAID"),
        ("{{ inputs.n }}", "3"),
        ("{{ inputs.list }}", '["a", "b"]'),
        ("{{ inputs.list.1 }}{{ inputs.list[0] }}", "ba"),
        ("{{ inputs.deep[0].x }}", "1"),
        ('{{ inputs.list | join(", ") }}', "a, b"),
        ("{{ inputs.list | first }}{{ inputs.list | last }}{{ inputs.list | length }}", "ab2"),
        ('{{ inputs.gone | default("x|y}}") }}', "x|y}}"),
        ('{{ inputs.none | default("-") }}', "-"),
        ("{{ inputs.none }}", "null"),
        ("{{ inputs.topic | json }}", '"tides"'),
        ('{{ "{{" }} stays', "{{ stays"),
        ('{{ "  x " | trim | upper }}', "X"),
        ("{ {x} }", "{ {x} }"),
        ('{{ inputs.gone || inputs.none || "-" | upper }}', "-"),
        ("{{ inputs.gone || inputs.topic }} {{ inputs.list[-1] }}", "tides b"),
    ],
)
def test_values_are_put_in(template, text):
    assert render(template, SCOPE) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{", "{{ }}", "{{ inputs.x", "{{ x }}", "{{ secrets.key }}", "{{ inputs..x }}",
        "{{ inputs.x | nope }}", "{{ inputs.x | default }}", "{{ inputs.x | join(1, 2) }}",
        "{{ inputs.x | trim(1) }}", '{{ inputs.x | default("a }}', "{{ inputs.x y }}",
        "{{ __class__ }}", "{{ inputs | }}", "{{ inputs.list[" + "9" * 5000 + "] }}",
    ],
)  # fmt: skip
def test_a_broken_template_is_refused_with_its_place(template):
    with pytest.raises(ConfigError, match=r"line 2, column 3"):
        PromptTemplate.parse(f"one\n  {template}")


@pytest.mark.parametrize(
    "template",
    [
        "{{ inputs.gone }}", "{{ inputs.topic.x }}", "{{ inputs.list[9] }}",
        "{{ ctx.gone | upper }}",
        "{{ inputs.n | first }}", "{{ inputs.topic | join(1) }}", "{{ inputs.n | length }}",
        "{{ inputs.list.² }}", "{{ inputs.list[999999999] }}", "{{ inputs.gone || ctx.gone }}",
    ],
)  # fmt: skip
def test_what_leads_nowhere_or_doesnt_fit_is_a_miss(template):
    with pytest.raises(TemplateMiss):
        render(template, SCOPE)


def test_a_value_that_is_nested_without_end_is_a_miss():
    deep = []
    for _ in range(5000):
        deep = [deep]
    for template in ("{{ inputs.x }}", "{{ inputs.x | json }}", "{{ inputs.x | upper }}"):
        with pytest.raises(TemplateMiss):
            render(template, {"inputs": {"x": deep}})


@pytest.mark.parametrize(
    "template",
    ["{{" * 20_000, '{{ "' + r"\"" * 20_000, '{{ "' + r"\"" * 20_000 + " }}",
     "{{ " + "[" * 20_000 + " }}", "{{ inputs.x | default(" + "[" * 20_000 + ") }}"],
)  # fmt: skip
def test_an_enormous_template_is_read_in_one_pass(template):
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        PromptTemplate.parse(template)
    assert not mentions_secrets(template)
    assert time.process_time() - began < 5
    assert len(str(caught.value)) < 500


def test_no_attribute_of_python_is_ever_reached():
    with pytest.raises(TemplateMiss):
        render("{{ inputs.__class__ }}", {"inputs": object()})
    with pytest.raises(TemplateMiss):
        render("{{ inputs.keys }}", {"inputs": {}})


def test_a_file_is_read_only_where_the_host_offers_it():
    async def read(path):
        return f"<{path}> {{{{ inputs.topic }}}}"

    assert render("{{ inputs.topic | read_file }}", SCOPE, read) == "<tides> {{ inputs.topic }}"
    with pytest.raises(ReadFileMissing):
        render("{{ inputs.topic | read_file }}", SCOPE)
    with pytest.raises(TemplateMiss):
        render("{{ inputs.n | read_file }}", SCOPE, read)


@given(st.text(), st.text())
def test_a_value_is_put_in_as_it_is_whatever_it_holds(value, around):
    around = around.replace("{{", "")
    template = f"{around.rstrip('{')} {{{{ inputs.x }}}} {around}"
    assert render(template, {"inputs": {"x": value}}) == f"{around.rstrip('{')} {value} {around}"


@given(st.text(alphabet='{}|". inputs.x()read_file\\\n', max_size=60))
def test_any_text_is_a_template_or_a_clear_error(text):
    try:
        source = PromptTemplate.parse(text).source
    except ConfigError as error:
        source = text if "line" in str(error) else str(error)
    assert source == text


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("{{ secrets.x }}", True), ("{{secrets}}", True), ("{{ inputs.x | secrets }}", True),
        ("{{\nsecrets.x}}", True), ("secrets", False), ("{{ inputs.secretsmith }}", False),
        ("{{ inputs.x }} secrets", False), ("}{{{{ a { secrets", True),
        ("{ secrets }} {{ x", False),
    ],
)  # fmt: skip
def test_a_mention_of_secrets_is_seen(text, mentions):
    assert mentions_secrets(text) is mentions
