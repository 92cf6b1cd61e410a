"""Public fakes, and conformance suites for adapters that others write."""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore.testing.scripted import FunctionProvider as FunctionProvider
    from ryecore.testing.scripted import MadeMedia as MadeMedia
    from ryecore.testing.scripted import MediaItem as MediaItem
    from ryecore.testing.scripted import ModelFunction as ModelFunction
    from ryecore.testing.scripted import ProviderOptions as ProviderOptions
    from ryecore.testing.scripted import ScriptedMediaProvider as ScriptedMediaProvider
    from ryecore.testing.scripted import ScriptedProvider as ScriptedProvider
    from ryecore.testing.scripted import ScriptItem as ScriptItem
    from ryecore.testing.scripted import Spoken as Spoken
    from ryecore.testing.scripted import make as make
    from ryecore.testing.turns import Turn as Turn
    from ryecore.testing.turns import TurnEnding as TurnEnding
    from ryecore.testing.turns import TurnStep as TurnStep
    from ryecore.testing.turns import call as call
    from ryecore.testing.turns import cut as cut
    from ryecore.testing.turns import fail as fail
    from ryecore.testing.turns import hang as hang
    from ryecore.testing.turns import raw as raw
    from ryecore.testing.turns import say as say
    from ryecore.testing.turns import think as think
else:
    __getattr__, __dir__ = lazy_names(__name__)
