"""The whole of a directive, and what stands in the wrong place."""

from decimal import Decimal
from pathlib import Path

import pytest

from ryecore.directives.model import ContextSpec, ModelSpec
from ryecore.errors import MetadataError
from tests.unit.directives.files import file, parse

FULL = """\
# Tides

Prose.

```xml
<directive name="tides" version="2.1.0" extends="directive:base/research">
  <metadata>
    <description>Research the tides.</description>
    <category>acme</category>
    <author>ada</author>
    <model tier="fast" id="large" provider="acme" fallback="acme/small" parallel="true"
           cache="1h"/>
    <limits turns="8" max_tokens="1000"><spend>0.50</spend><duration_seconds>60</duration_seconds>
    </limits>
    <permissions>*</permissions>
    <cost><track>true</track></cost>
    <context><system>a/s</system><before>a/b</before><before>a/c</before><after>a/d</after>
    <suppress>x</suppress></context>
    <continuation_directive>acme/go_on</continuation_directive>
    <tags>sea</tags>
  </metadata>
  <inputs><input name="place" required="true"/></inputs>
  <outputs><output name="summary" required="true">What was found.</output></outputs>
  <process>
    <step><action primary="execute" item_id="tool:rye/bash">
    <param name="command">{input:place}</param>
    <param name="text">at {input:place}</param></action></step>
    <raw><action primary="execute"/></raw>
  </process>
</directive>
```

Look at {input:place}.
"""


def test_every_part_is_read():
    found = parse(FULL)
    assert (found.name, found.version, found.extends) == ("tides", "2.1.0", "base/research")
    assert (found.description, found.category, found.author) == (
        "Research the tides.",
        "acme",
        "ada",
    )
    assert found.model == ModelSpec("fast", "large", "acme", "acme/small", True, "1h")
    assert found.model.wanted == "acme/large"
    assert (found.limits.turns, found.limits.tokens) == (8, 1000)
    assert (found.limits.spend_usd, found.limits.duration_s) == (Decimal("0.50"), 60)
    assert found.limits.spawns is None
    assert found.permissions.capabilities == ("rye.*",)
    assert found.cost == {"track": "true"}
    assert found.context == ContextSpec(("a/s",), ("a/b", "a/c"), ("a/d",), ("x",))
    assert found.continuation_directive == "acme/go_on"
    assert found.other == {"tags": "sea"}
    assert [one.name for one in (*found.inputs, *found.outputs)] == ["place", "summary"]
    assert [action.to_dict() for action in found.actions] == [
        {
            "primary": "execute",
            "item_id": "tool:rye/bash",
            "params": {"command": "{input:place}", "text": "at {input:place}"},
        }
    ]


def test_inputs_are_put_into_every_text_and_a_lone_placeholder_keeps_its_type():
    found = parse(FULL).with_inputs({"place": [1]})
    assert found.body == "Look at [1]."
    assert "Look at [1]." in found.content
    assert '<param name="command">[1]</param>' in found.raw
    assert found.actions[0].parameters == {"command": [1], "text": "at [1]"}


def test_the_least_that_a_directive_needs():
    found = parse('```xml\n<directive name="tides"/>\n```\n')
    assert (found.name, found.version, found.category, found.body) == ("tides", "", None, "")


@pytest.mark.parametrize(
    ("content", "match", "line"),
    [
        (file().replace("directive", "tool"), "<tool> is the root", 4),
        (file().replace('name="tides"', ""), "<directive> has no name", 4),
        (file().replace("tides", "waves", 1), "the name 'waves', and the file is called", 4),
        (file().replace("version=", "versoin="), "attribute 'versoin'", 4),
        (file(extends="../x"), "not an item id", 4),
        (file(extends="tool:x"), "is not a directive", 4),
        (file("<limits turns='1'/>"), "<limits> stands in <metadata>", 6),
        (file("<permissions>*</permissions>"), "stands in <metadata>", 6),
        (file("<inputs/><inputs/>"), "<inputs> stands there twice", 6),
        (file("<metadata/>"), "<metadata> stands there twice", 6),
        (file(metadata="<limits/>\n<limits/>"), "<limits> stands there twice", 6),
        (file(metadata="<limits laps='3'/>"), "unknown limit 'laps': the limits are turns", 5),
        (file(metadata="<limits>\n<laps>3</laps></limits>"), "unknown limit 'laps'", 6),
        (file(metadata="<limits turns='-1'/>"), "turns is '-1', not a whole number", 5),
        (file(metadata="<limits turns='1.5'/>"), "not a whole number", 5),
        (file(metadata="<limits spend='NaN'/>"), "spend is 'NaN', not a number", 5),
        (file(metadata="<limits spend_currency='EUR'/>"), "counted in USD", 5),
        (file(metadata="<limits turns='1' max_turns='2'/>"), "say different things", 5),
        (file(metadata="<limits turns='1'><max_turns>2</max_turns></limits>"), "different", 5),
        (file(metadata="<limits turns='1'><turns>1</turns></limits>"), "stands there twice", 5),
        (file(metadata="<model/>"), "neither tier nor id", 5),
        (file(metadata="<model provider='a'/>"), "neither tier nor id", 5),
        (file(metadata="<model tier='a' provider='b'/>"), "a provider, but no id", 5),
        (file(metadata="<model tier='a' parallel='1'/>"), "neither true nor false", 5),
        (file(metadata="<model tier='a' cache='2h'/>"), "'2h', which isn't one of 5m, 1h, none", 5),
        (file(metadata="<model tier='a' cache=''/>"), "'', which isn't one of 5m, 1h, none", 5),
        (file(metadata="<context><system/></context>"), "names no item", 5),
        (file(metadata="<context><behind>a</behind></context>"), "<behind>; valid are <system>", 5),
        (file(metadata="<continuation_directive>a b</continuation_directive>"), "item id", 5),
        (file("<action><x/></action>"), "holds <x>; valid are <param>", 6),
        (file("<action><param name='a'/><param name='a'/></action>"), "once more", 6),
        (file("<outputs><output name='a' default='1'/></outputs>"), "attribute 'default'", 6),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(content, match, line):
    with pytest.raises(MetadataError, match=match) as refusal:
        parse(content)
    assert refusal.value.line == line
    assert refusal.value.next_step


def test_the_two_spellings_of_a_limit_may_agree():
    found = parse(file(metadata="<limits turns='8'><max_turns>8.0</max_turns></limits>"))
    assert found.limits.turns == 8


def test_the_name_is_the_files_stem_in_whichever_folder():
    assert parse(file(), Path("/x/y/tides.md")).name == "tides"
