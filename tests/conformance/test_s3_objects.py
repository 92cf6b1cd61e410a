"""The suite that every store of objects passes, on a bucket of a real server."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ryecore.testing.objects import ObjectConformance, ObjectStore
from ryecore.testing.objects.bench import Opens
from tests.matrix import IS_SOAK
from tests.s3 import BUCKET, SECRET, needs_s3

WRONG = "wr0ng-of-the-test"


@needs_s3
class TestS3Objects(ObjectConformance):
    """Objects in a bucket."""

    kills = 20 if IS_SOAK else 2
    secrets = (SECRET, WRONG)

    @pytest.fixture(autouse=True)
    def _server(self, s3_environ: Mapping[str, str]) -> None:
        type(self).settings = s3_environ

    @contextmanager
    def open_store(self, place: Path) -> Iterator[ObjectStore]:
        with self._opened(place) as store:
            yield store

    def alter(self, place: Path, sha256: str, content: bytes) -> None:
        path = Path(self.settings["RYE_TEST_S3_FOLDER"], place.name, sha256)
        assert os.stat(path).st_size == len(content)
        path.write_bytes(content)

    def broken_stores(self, place: Path) -> dict[str, Opens]:
        return {
            "no server": lambda: self._away(place),
            "a wrong secret": lambda: self._opened(place, AWS_SECRET_ACCESS_KEY=WRONG),
            "an unknown key": lambda: self._opened(place, AWS_ACCESS_KEY_ID="AKIANOBODY"),
            "no keys": lambda: self._opened(place, AWS_ACCESS_KEY_ID=""),
            "no such bucket": lambda: self._opened(place, bucket="nowhere"),
            "the wrong region": lambda: self._opened(place, AWS_REGION="eu-central-1"),
        }

    @contextmanager
    def _opened(self, place: Path, bucket: str = BUCKET, **environ: str) -> Iterator[ObjectStore]:
        from ryecore.state.s3.objects import S3Objects

        address = f"s3://{bucket}/{place.name}"
        yield S3Objects.open(address, {**self.settings, **environ})

    @contextmanager
    def _away(self, place: Path) -> Iterator[ObjectStore]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ryecore.state.s3.objects._RETRIES", 1)  # of the usual three
            with self._opened(place, AWS_ENDPOINT_URL_S3="http://127.0.0.1:1") as store:
                yield store
