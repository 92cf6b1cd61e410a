"""What the reference pages show that a parser of source can't see; mkdocs.yml loads this.

The names that `lazy_names` makes public, and the parameters of classes that attrs makes, with their
defaults.
"""

from typing import Any

import griffe

_DECORATORS = {"ryecore.frozen.frozen", "attrs.frozen", "attrs.define", "attrs.mutable"}


class Reference(griffe.Extension):
    """Complete a package as the reference shows it."""

    def on_module(self, *, mod: griffe.Module, **_kwargs: Any) -> None:
        """Export the imports for type checkers of a module with lazy names, as `__all__` would."""
        if "lazy_names" in mod.members:
            imports = (member for member in mod.members.values() if member.is_alias)
            mod.exports = [member.name for member in imports if not member.runtime]

    def on_package(self, *, pkg: griffe.Module, **_kwargs: Any) -> None:
        """Give each class of attrs its constructor, once all classes are known."""
        for cls in _classes(pkg):
            if "__init__" not in cls.members and _arguments(cls) is not None:
                _add_constructor(cls)


def _classes(owner: griffe.Module | griffe.Class) -> list[griffe.Class]:
    found: list[griffe.Class] = []
    for member in owner.members.values():
        if isinstance(member, griffe.Module | griffe.Class):
            found += [member] if isinstance(member, griffe.Class) else []
            found += _classes(member)
    return found


def _arguments(cls: griffe.Class) -> dict[str, Any] | None:
    """Return the arguments of the decorator of attrs; None without one."""
    for decorator in cls.decorators:
        if getattr(decorator.value, "canonical_path", "") in _DECORATORS:
            return _keywords(decorator.value)
    return None


def _keywords(call: Any) -> dict[str, Any]:
    if not isinstance(call, griffe.ExprCall):
        return {}
    return {one.name: one.value for one in call.arguments if isinstance(one, griffe.ExprKeyword)}


def _add_constructor(cls: griffe.Class) -> None:
    found: dict[str, griffe.Parameter] = {}
    for base in [*reversed(cls.mro()), cls]:
        options = _arguments(base)
        if options is not None and str(options.get("init")) != "False":
            found |= {one.name: one for one in _parameters(base, str(options.get("kw_only")))}
    parameters = sorted(
        found.values(), key=lambda one: one.kind is griffe.ParameterKind.keyword_only
    )
    itself = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    init = griffe.Function(
        "__init__", parameters=griffe.Parameters(itself, *parameters), returns="None", parent=cls
    )
    cls.set_member("__init__", init)
    _list_as_parameters(cls, set(found))


def _parameters(cls: griffe.Class, kw_only: str) -> list[griffe.Parameter]:
    """Return the parameters for the fields of a class itself."""
    found = []
    for member in cls.members.values():
        if not isinstance(member, griffe.Attribute) or member.annotation is None:
            continue
        is_class_variable = "instance-attribute" not in member.labels
        if "property" in member.labels or is_class_variable:
            continue
        is_field = getattr(member.value, "canonical_path", "") == "attrs.field"
        field = _keywords(member.value) if is_field else {"default": member.value}
        if str(field.get("init")) == "False":
            continue
        default = field.get("default")
        if "factory" in field:
            default = griffe.ExprCall(field["factory"], [])
        elif default is None and f"{member.name}.default" in _decorators(cls):
            default = "..."
        named = "True" in (kw_only, str(field.get("kw_only")))
        found.append(
            griffe.Parameter(
                member.name.removeprefix("_"),
                annotation=member.annotation,
                kind=griffe.ParameterKind.keyword_only
                if named
                else griffe.ParameterKind.positional_or_keyword,
                default=default,
            )
        )
    return found


def _decorators(cls: griffe.Class) -> set[str]:
    functions = (one for one in cls.members.values() if isinstance(one, griffe.Function))
    return {str(decorator.value) for one in functions for decorator in one.decorators}


def _list_as_parameters(cls: griffe.Class, names: set[str]) -> None:
    """List a class's attributes as its parameters, and so with their defaults."""
    if cls.docstring is None:
        return
    sections = cls.docstring.parse("google")
    listed = [one for one in sections if one.kind is griffe.DocstringSectionKind.attributes]
    if len(listed) == 1 and {one.name for one in listed[0].value} <= names:
        cls.docstring.value = cls.docstring.value.replace("\nAttributes:\n", "\nArgs:\n", 1)
