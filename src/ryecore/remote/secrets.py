"""The secrets that travel with a call: those that a signed element names and remotes.yaml lists.

Source: decision 69.
"""

from collections.abc import Callable, Collection, Mapping

from ryecore.chain.dotenv import DotenvReader, asked_variables
from ryecore.chain.model import Chain
from ryecore.chain.trace import Trace
from ryecore.errors import ItemNotFound
from ryecore.items.refs import ItemRef
from ryecore.lillux.witness import Evidence
from ryecore.policy.environment import may_set_from_dotenv

__all__ = ["RemoteSecrets"]


class RemoteSecrets:
    """Finds the secrets of a call.

    Args:
        build: Builds a tool's verified chain.
        dotenv: Reads the project's `.env`.
        environ: The environment that tools may inherit from.
    """

    def __init__(
        self,
        build: Callable[[ItemRef, Trace, Evidence], Chain],
        dotenv: DotenvReader,
        environ: Mapping[str, str],
    ) -> None:
        self._build = build
        self._dotenv = dotenv
        self._environ = environ

    def __call__(self, ref: ItemRef, listed: Collection[str]) -> dict[str, str]:
        """Return the secrets that a tool's chain names, of those listed.

        A tool that only the node has gets none. A variable that steers programs never is one.

        Raises:
            RyeError: The chain can't be verified.
        """
        try:
            chain = self._build(ref, Trace(None), Evidence())
        except ItemNotFound:
            return {}
        asked, _ = asked_variables(chain)
        values = {**self._dotenv.values(Evidence()), **self._environ}
        return {
            name: value
            for name in sorted(asked.intersection(listed))
            if (value := values.get(name)) is not None and may_set_from_dotenv(name)
        }
