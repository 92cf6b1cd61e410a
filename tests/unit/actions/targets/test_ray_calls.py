"""What is sent to the processes of a Ray cluster. tests/integration/test_ray.py sends it."""

import pytest

from ryecore.actions.targets.ray_calls import RayPayload, RayThread
from ryecore.errors import InputError


@pytest.mark.parametrize("form", [RayPayload, RayThread])
@pytest.mark.parametrize("document", [b"{}", b'{"version": 2, "run_id": "a"}'])
def test_a_document_of_another_version_is_refused(
    form: type[RayPayload | RayThread], document: bytes
) -> None:
    with pytest.raises(InputError, match=r"has the version .*, and this worker reads 1") as refused:
        form.from_bytes(document)

    assert refused.value.next_step.startswith("Install the same version of ryecore")
