"""The checks of what expressions, conditions and prompts refer to: existence and type."""

from collections.abc import Iterable, Mapping
from typing import Final

from ryecore.agent.prompts import PromptTemplate
from ryecore.convert.config import did_you_mean, known_names
from ryecore.convert.lines import Place, bounded, key_path, quoted
from ryecore.graph.validation.drafts import Draft
from ryecore.graph.validation.problems import Problems
from ryecore.graph.validation.scopes import (
    BUILT_IN,
    Known,
    Scope,
    filtered,
    kind_of_text,
    misfits,
    takes,
)
from ryecore.graph.validation.value_types import Kind, NoSuchPart, kind_of_schema, kind_of_value
from ryecore.policy.conditions import Comparison, Condition, Negation
from ryecore.policy.expressions import Expression, Template
from ryecore.policy.paths import ValuePath, parse_path

__all__ = ["References"]

_ORDER: Final = ("gt", "gte", "lt", "lte")


class References:
    """The checker of the references in a graph's values; it collects which state is read."""

    def __init__(self, known: Known, problems: Problems) -> None:
        self._known, self._problems = known, problems
        self.read: set[str] = set()
        self.reads_all = False

    @property
    def reads_time(self) -> bool:
        """Return whether anything reads the time."""
        return bool(self.read & {"_now", "_timestamp"})

    def check(self, draft: Draft) -> None:
        """Check a node."""
        after = self._known.after(draft.type, draft.as_)
        before = self._known.before()
        for slot in draft.slots:
            match slot.what:
                case "assign":
                    scope = after
                case "params":
                    scope = self._known.before(as_=draft.as_)
                case _:
                    scope = before
            self._check_template(slot.template, slot.place, scope)
            if slot.what == "over":
                self._check_over(slot.template, slot.place, scope)
            if slot.what == "assign":
                self._check_assigned(str(slot.place[-1]), slot.template, slot.place, scope)
        if draft.collect is not None:
            self._check_collected(draft.collect, draft.at("collect"))
        for one in draft.edges:
            if one.edge.when is not None:
                self._check_condition(one.edge.when, (*one.place[:-1], "when"), after)
        if draft.agent is not None:
            scope = self._known.before(as_=draft.as_)
            self._check_prompt(draft.agent.node.prompt_template, draft.at("prompt_template"), scope)

    def note(self, condition: Condition | None) -> None:
        """Record the keys of the state that a hook's condition reads."""
        for one in _comparisons(condition):
            self._note(parse_path(one.path).parts)

    def _check_template(self, template: Template, place: Place, scope: Scope) -> None:
        for one in template.expressions:
            where = (*place, *one.place)
            for path in one.paths:
                self._check_path(path.parts, where, scope, bounded(str(one)))
            self._check_filters(one, where, scope)

    def _check_path(self, path: Place, place: Place, scope: Scope, text: str) -> Kind | None:
        """Return the kind of what stands at a path; None where a problem was reported."""
        root = path[0]
        self._note(path)
        if root not in scope.roots:
            why = scope.absent.get(str(root)) or (
                f"{quoted(root)} is not known here."
                f"{did_you_mean(str(root), scope.roots) or known_names(scope.roots)}"
            )
            self._problems.error(
                place, f"{text}: {why.rstrip('.?')}{'?' if why[-1] == '?' else '.'}"
            )
            return None
        try:
            return scope.kind(path)
        except NoSuchPart as problem:
            self._problems.error(place, f"{text}: {str(problem).rstrip('.')}{_stop(str(problem))}")
            return None

    def _note(self, path: Place) -> None:
        if path[:1] == ("state",):
            if len(path) > 1:
                self.read.add(str(path[1]))
            else:
                self.reads_all = True

    def _check_filters(self, one: Expression, place: Place, scope: Scope) -> None:
        kind = scope.kind_of(Expression(one.choices))
        for name in one.filters:
            if not takes(name, kind):
                self._problems.error(place, f"{bounded(str(one))}: {name} can't be used on {kind}.")
                return
            kind = filtered(name)

    def _check_over(self, template: Template, place: Place, scope: Scope) -> None:
        source = template.source
        kind = (
            kind_of_text(source, template.expressions, scope)
            if isinstance(source, str)
            else kind_of_value(source)
        )
        if source is not None and not kind.may_be("array"):
            self._problems.error(place, f"over is {quoted(source)}, which is {kind}, not a list.")

    def _check_assigned(self, key: str, template: Template, place: Place, scope: Scope) -> None:
        if key in BUILT_IN:
            self._problems.error(place, f"{key} is built in, and can't be set.")
            return
        schema = self._known.state_schema
        if schema is None:
            return
        declared = self._declared(key, place)
        for where, why in misfits(template, declared, schema, scope):
            named = key_path((key, *where))
            self._problems.error((*place, *where), f"{named} doesn't fit state_schema: {why}.")

    def _check_collected(self, key: str, place: Place) -> None:
        if key in BUILT_IN:
            self._problems.error(place, f"{key} is built in, and can't be set.")
            return
        schema = self._known.state_schema
        declared = self._declared(key, place)
        if declared is not None and not kind_of_schema(declared, schema).may_be("array"):
            self._problems.error(
                place, f"{key} doesn't fit state_schema: what is collected is a list."
            )

    def _declared(self, key: str, place: Place) -> object:
        """Return the schema of a key in state_schema; None where it has none."""
        schema = self._known.state_schema or {}
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        if key not in properties and schema.get("additionalProperties") is False:
            self._problems.error(
                place, f"state_schema declares no {quoted(key)}.{did_you_mean(key, properties)}"
            )
        return properties.get(key)

    def _check_condition(self, condition: Condition, place: Place, scope: Scope) -> None:
        for one in _comparisons(condition):
            path = parse_path(one.path).parts
            if not path or "${" in one.path:
                self._problems.error(
                    place,
                    f"The path {quoted(one.path)} of a condition is wrong: "
                    "write it without ${ }.",
                )
                continue
            if isinstance(one.value, str) and "${" in one.value:
                self._problems.error(
                    place,
                    f"The value {quoted(one.value)} of a condition is taken as it is: no "
                    "expression in it is evaluated.",
                )
                continue
            kind = self._check_path(path, place, scope, bounded(one.path))
            why = _never_holds(one, kind) if kind is not None else ""
            if why:
                self._problems.error(
                    place, f"{bounded(one.path)} {one.op} {quoted(one.value)}: {why}."
                )

    def _check_prompt(self, prompt: PromptTemplate, place: Place, scope: Scope) -> None:
        """Check the paths of a prompt, which knows the state as `run.outputs`.

        A foreach's member stands in `ctx`, by its name.
        """
        for steps, has_default in prompt.paths:
            text = f"{{{{ {ValuePath(steps)} }}}}"
            path: Place = steps
            if steps[0] == "run":
                if steps[1:2] != ("outputs",):
                    self._problems.error(place, f"{text}: run has only outputs.")
                    continue
                path = ("state", *steps[2:])
            elif steps[0] == "ctx":
                path = steps[1:] or ("state",)
            if has_default:
                self._note(path)
            else:
                self._check_path(path, place, scope, text)
        if "${" in prompt.source:
            self._problems.warn(
                place,
                "A prompt replaces {{ inputs.x }} and {{ run.outputs.x }}; ${…} stays as it is.",
            )


def _stop(text: str) -> str:
    return "" if text.endswith("?") else "."


def _comparisons(condition: Condition | None) -> Iterable[Comparison]:
    if condition is None:
        return
    to_look_at: list[Condition] = [condition]
    while to_look_at:
        one = to_look_at.pop()
        if isinstance(one, Comparison):
            yield one
        elif isinstance(one, Negation):
            to_look_at.append(one.part)
        else:
            to_look_at += reversed(one.parts)


def _never_holds(one: Comparison, kind: Kind) -> str:
    """Return why a comparison can never hold; empty where it can."""
    value = kind_of_value(one.value)
    match one.op:
        case op if op in _ORDER:
            if not value.names & {"integer", "fraction", "string"}:
                return f"{value} has no order"
            types = ("string",) if value.names == {"string"} else ("number",)
            return "" if kind.may_be(*types) else f"{kind} and {value} have no order"
        case "in":
            if not value.names & {"string", "array", "object"}:
                return f"nothing is in {value}"
        case "contains":
            if not kind.may_be("string", "array", "object"):
                return f"{kind} contains nothing"
        case "regex":
            if not kind.may_be("string"):
                return f"{kind} matches no regular expression"
        case "eq":
            if value.names != {"null"} and not value.meets(kind) and kind.names:
                return f"{kind} is never {value}"
    return ""
