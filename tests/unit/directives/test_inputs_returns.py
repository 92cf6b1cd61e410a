"""The `<returns>` section, to the letter."""

from ryecore.directives.inputs import Declared, render_returns

GOLDEN = """\
<returns>
<output name="summary" type="string" required="true">Found: &lt;short&gt; &amp; plain.</output>
<output name="sources" type="array"></output>
<output name="due" type="string" format="date"></output>
</returns>
When you are done, call rye_directive_return with these outputs."""


def test_outputs_are_rendered_the_same_each_time():
    outputs = (
        Declared("summary", required=True, description="Found: <short> & plain."),
        Declared("sources", type="array"),
        Declared("due", format="date"),
    )
    assert render_returns(outputs) == render_returns(iter(outputs)) == GOLDEN


def test_nothing_declared_is_nothing_rendered():
    assert render_returns(()) == ""
