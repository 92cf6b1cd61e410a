"""A directive together with those that it extends."""

from ryecore.convert.config import Configuration
from ryecore.directives.hooks import read_hooks
from ryecore.directives.model import compose, extends_by_hook
from ryecore.policy.hooks import HookLayer
from tests.unit.directives.files import file, parse

ROOT = parse(
    file(
        metadata="<permissions>*</permissions><context><before>a</before><before>b</before>"
        '</context><hooks><hook id="r" event="error"><action control="fail"/></hook>'
        '<hook id="h" event="error"><action control="retry"/></hook></hooks>'
    )
)
MIDDLE = parse(file(metadata="<permissions><fetch>*</fetch></permissions>"))
LEAF = parse(
    file(
        metadata="<context><before>b</before><before>c</before><suppress>a</suppress></context>"
        '<hooks><hook id="h" event="error"><action control="abort"/></hook></hooks>'
    )
)


def test_the_nearest_that_declares_permissions_counts():
    assert compose([LEAF, MIDDLE, ROOT]).permissions.capabilities == ("rye.fetch.*",)
    assert compose([LEAF, ROOT]).permissions.capabilities == ("rye.*",)
    assert compose([LEAF]).permissions.capabilities == ()


def test_empty_permissions_are_declared_ones_and_grant_nothing():
    empty = parse(file(metadata="<permissions/>"))
    assert compose([empty, ROOT]).permissions.capabilities == ()


def test_context_comes_root_first_each_item_once_and_what_is_suppressed_is_left_out():
    context = compose([LEAF, MIDDLE, ROOT]).context
    assert context.before == ("b", "c")
    assert context.suppress == ("a",)


def test_of_hooks_with_one_id_the_nearest_to_the_directive_counts():
    hooks = compose([LEAF, ROOT]).hooks
    assert [(hook.id, hook.actions[0].control) for hook in hooks] == [("r", "fail"), ("h", "abort")]


def test_the_first_hook_that_answers_says_what_is_extended():
    def reroute(name, to, layer):
        declared = {
            "id": name,
            "event": "resolve_extends",
            "condition": {"path": "category", "op": "eq", "value": "acme"},
            "action": {"set_extends": to},
        }
        return read_hooks(Configuration.of("hooks.yaml", {"hooks": [declared]}), layer)

    hooks = reroute("p", "base/p", HookLayer.PROJECT) + reroute("u", "base/u", HookLayer.USER)
    assert extends_by_hook(hooks, {"category": "acme"}) == "base/u"
    assert extends_by_hook(hooks, {"category": "other"}) is None
