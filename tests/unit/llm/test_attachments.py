"""Images and files to send: from a path, bytes or a URL, bounded, and never from private places."""

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ryecore.errors import ConfigError, InputError
from ryecore.llm import Media, MediaPart, MemoryMediaStore, TextPart
from ryecore.llm.fetching import is_public
from ryecore.llm.media import media_type_of

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)

own = partial(Media, allow_private=True)


async def test_a_path_and_bytes_become_a_medium_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"  # which it isn't: the content counts
    path.write_bytes(PNG)
    store = MemoryMediaStore()
    for source, name in ((path, "photo.jpg"), (str(path), "photo.jpg"), (PNG, "")):
        part = await Media(source).part(store)
        assert isinstance(part, MediaPart)
        assert (part.media_type, part.size_bytes, part.name) == ("image/png", len(PNG), name)
        assert store.read(part) == PNG
    named = await Media(PNG, "image/x-mine", "mine").part(store)
    assert isinstance(named, MediaPart)
    assert (named.media_type, named.name) == ("image/x-mine", "mine")


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-1.7", "application/pdf"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"\0\0\0\x20ftypheic", "image/heic"),
        (b"\0\0\0\x20ftypisom", "video/mp4"),
        (b"\x7fELF", "application/octet-stream"),
    ],
)
def test_the_type_is_guessed_by_the_content(content: bytes, media_type: str) -> None:
    assert media_type_of(content) == media_type


async def test_text_is_sent_as_text_behind_its_name(tmp_path: Path) -> None:
    (tmp_path / "tides.csv").write_text("port,time\nDover,11:20\n")
    store = MemoryMediaStore()
    part = await Media(tmp_path / "tides.csv").part(store)
    assert part == TextPart("tides.csv:\n\nport,time\nDover,11:20\n")
    assert await Media("héllo".encode()).part(store) == TextPart("héllo")


async def test_what_can_not_be_sent_is_refused_with_what_to_do(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "big").write_bytes(PNG)
    wrong: list[tuple[Any, str]] = [
        (Media(tmp_path / "absent.png"), "can't be read"),
        (Media(tmp_path), "isn't a file|can't be read"),
        (Media(tmp_path / "pipe"), "isn't a file"),
        (Media("a\0b"), "can't be read"),
        (Media(tmp_path / "empty"), "empty"),
        (Media(tmp_path / "big", max_bytes=10), "more than 10 bytes"),
        (Media(PNG, max_bytes=10), "more than 10 bytes"),
        (Media(b"\x7fELF\0"), "can't be guessed"),
        (Media(""), "can't be read"),
        (Media("data:image/png;base64," + "A" * 100_000), "isn't a URL that is fetched"),
        (Media("file:///etc/passwd"), "isn't a URL that is fetched"),
    ]
    for medium, said in wrong:
        with pytest.raises(InputError, match=said) as refused:
            await medium.part(MemoryMediaStore())
        assert refused.value.next_step
        assert len(str(refused.value)) < 500
    source: Any = 5
    with pytest.raises(ConfigError):
        Media(source)
    assert "PNG" not in repr(Media(PNG))


@pytest.mark.parametrize("media_type", ["nonsense", "image/", "image/*", "image/png\r\nX: y"])
def test_what_is_no_media_type_is_refused_at_once(media_type: str) -> None:
    with pytest.raises(ConfigError, match="isn't a media type"):
        Media(PNG, media_type)


def test_only_true_allows_private_addresses() -> None:
    no: Any = "no"
    with pytest.raises(ConfigError, match="allow_private"):
        Media("http://127.0.0.1/", allow_private=no)


async def test_a_media_type_may_come_from_a_header() -> None:
    part = await Media(PNG, "Image/JPEG; charset=utf-8").part(MemoryMediaStore())
    assert isinstance(part, MediaPart)
    assert part.media_type == "image/jpeg"


async def test_a_file_name_that_is_no_utf_8_is_sent_nevertheless(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    Path(os.fsdecode(path)).write_text("open")

    class BytesPath(os.PathLike[bytes]):
        def __fspath__(self) -> bytes:
            return path

    source: Any = BytesPath()
    assert await Media(source).part(MemoryMediaStore()) == TextPart("caf?.txt:\n\nopen")


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)  # type: ignore[attr-defined]
        if path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", path.removeprefix("/to/"))
            self.end_headers()
            return
        self.send_response(404 if path == "/absent" else 200)
        self.end_headers()
        self.wfile.write(PNG)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Callable[[str], str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as served:
        served.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()

        def url(path: str) -> str:
            return f"http://127.0.0.1:{served.server_port}{path}"

        url.asked = served.asked  # type: ignore[attr-defined]
        yield url
        served.shutdown()
        thread.join()


async def test_a_url_is_fetched_and_redirects_are_followed(server: Callable[[str], str]) -> None:
    store = MemoryMediaStore()
    for path in ("/photo.png", "/to//photo.png"):
        part = await own(server(path)).part(store)
        assert isinstance(part, MediaPart)
        assert (part.media_type, store.read(part)) == ("image/png", PNG)
        assert part.name == "photo.png"


async def test_a_url_may_have_letters_of_any_language(server: Any) -> None:
    part = await own(server("/café/a b%20c.png?q=ü#top")).part(MemoryMediaStore())
    assert isinstance(part, MediaPart)
    assert server.asked == ["/caf%C3%A9/a%20b%20c.png"]
    assert part.name == "a b c.png"


@pytest.mark.parametrize("url", ["http://[::1", "http://a.invalid:99999/", f"http://{'é' * 300}/"])
async def test_what_is_no_url_says_so(url: str) -> None:
    with pytest.raises(InputError, match="can't be fetched"):
        await own(url).part(MemoryMediaStore())


async def test_a_url_of_a_private_address_is_not_asked(server: Any) -> None:
    port = server("").rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
        with pytest.raises(InputError, match="isn't public") as refused:
            await Media(f"http://{host}:{port}/photo.png").part(MemoryMediaStore())
        assert "allow_private" in refused.value.next_step
    assert server.asked == []


async def test_a_url_that_fails_says_why_without_its_query(server: Callable[[str], str]) -> None:
    wrong = [
        ("/absent?sig=sk-1", "status 404", {}),
        ("/photo.png?sig=sk-1", "more than 10 bytes", {"max_bytes": 10}),
        ("/to/file:///etc/passwd", "isn't a URL that is fetched", {}),
        ("/to/http://127.0.0.1:1/", "can't be fetched", {}),
    ]
    for path, said, options in wrong:
        with pytest.raises(InputError, match=said) as refused:
            await own(server(path), **options).part(MemoryMediaStore())
        assert "sk-1" not in f"{refused.value} {refused.value.next_step}"
    loop = server("/to/")
    with pytest.raises(InputError, match="redirected more than"):
        await own(loop + loop * 6).part(MemoryMediaStore())
    with pytest.raises(InputError, match="isn't a URL that is fetched"):
        await own("http://me:secret@127.0.0.1/x").part(MemoryMediaStore())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.216.34", True), ("2606:4700::1111", True), ("127.0.0.1", False),
        ("10.0.0.1", False), ("169.254.169.254", False), ("100.64.0.1", False),
        ("0.0.0.0", False), ("224.0.0.1", False), ("255.255.255.255", False), ("::1", False),
        ("fe80::1%eth0", False), ("fc00::1", False), ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False), ("2002:7f00:1::", False),
    ],
)  # fmt: skip
def test_only_addresses_of_the_public_internet_are_public(address: str, expected: bool) -> None:
    assert is_public(address) is expected
