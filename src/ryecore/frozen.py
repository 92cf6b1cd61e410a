"""The decorator of frozen classes: `attrs.frozen`, with less to compile for each class.

attrs writes and compiles `__eq__`, `__hash__` and `__repr__` for each class. That is half of the
0.6 ms that a class takes in each process that imports it; here they are closures.

Classes of many fields that are made in each turn are `frozen(slots=False)`: without slots, an
object of eight fields is made in 40% of the time.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import frozen
else:
    from operator import attrgetter
    from reprlib import recursive_repr

    from attrs import NOTHING, define

    def frozen(cls=None, **options):
        """Make a class as `attrs.frozen` does, with the same options.

        A field's `eq` and `repr` are flags, not functions, and it has no `hash` of its own.

        Raises:
            TypeError: The class is an exception, or a field has what isn't supported here.
        """
        is_compared, is_shown = options.pop("eq", True), options.pop("repr", True)

        def make(cls):
            made = define(cls, frozen=True, eq=False, repr=False, **options)
            own = vars(made)
            _check(made)
            if is_compared and "__eq__" not in own:
                _compare_by_fields(made)
            if is_shown and "__repr__" not in own:
                made.__repr__ = _show
            return made

        return make if cls is None else make(cls)

    def _check(made):
        if issubclass(made, BaseException):  # attrs compares them by identity
            raise TypeError(f"{made.__qualname__} is an exception: use attrs.frozen.")
        for field in made.__attrs_attrs__:
            if callable(field.repr) or field.eq_key is not None or field.hash is not None:
                raise TypeError(
                    f"{made.__qualname__}.{field.name} has an eq, repr or hash of its own: use "
                    "attrs.frozen."
                )

    def _compare_by_fields(made):
        names = [field.name for field in made.__attrs_attrs__ if field.eq]
        values = attrgetter(*names) if names else lambda _: ()

        def equals(self, other):
            if other.__class__ is not self.__class__:
                return NotImplemented
            return values(self) == values(other)

        made.__eq__ = equals
        if "__hash__" not in vars(made):
            made.__hash__ = lambda self: hash(values(self))

    @recursive_repr()
    def _show(self):
        shown = (
            f"{field.name}={getattr(self, field.name, NOTHING)!r}"
            for field in self.__attrs_attrs__
            if field.repr
        )
        return f"{type(self).__qualname__.rpartition('>.')[2]}({', '.join(shown)})"


__all__ = ["frozen"]
