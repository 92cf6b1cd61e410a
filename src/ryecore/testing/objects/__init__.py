"""The suite that every store of objects passes, with processes that race and are killed."""

from ryecore.state.object_store import ObjectStore, StoredObject
from ryecore.testing.objects.bench import run_object_conformance
from ryecore.testing.objects.contents import ContentCases
from ryecore.testing.objects.failures import FailureCases
from ryecore.testing.objects.processes import ProcessCases

__all__ = ["ObjectConformance", "ObjectStore", "StoredObject", "run_object_conformance"]


class ObjectConformance(ContentCases, FailureCases, ProcessCases):
    """What every store of objects must do.

    Subclass it in a test module and open the store:

        class TestMine(ObjectConformance):
            @contextmanager
            def open_store(self, place: Path) -> Iterator[ObjectStore]:
                store = MyObjects.connect(self.settings["address"], prefix=place.name)
                try:
                    yield store
                finally:
                    store.close()

    pytest and unittest find its methods; `run_object_conformance` needs neither.

    Source: ADR 043.
    """
