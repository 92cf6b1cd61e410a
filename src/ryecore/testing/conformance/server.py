"""A local HTTP/1.1 server that answers by a script, and breaks off where that says so."""

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BufferedReader
from itertools import accumulate
from types import TracebackType
from typing import Self, TypeAlias

from ryecore.testing.conformance.script import HttpResponse, RawRequest, Script, SeenRequest, Wire

__all__ = ["Answer", "WireServer"]

Answer: TypeAlias = Script | HttpResponse | Callable[[SeenRequest], Script | HttpResponse]
"""The answer of the server to one request."""


class WireServer:
    """A server on 127.0.0.1, in threads of its own, that speaks one vendor's wire format.

    Each request takes the next answer; the last one stays. Without a wire it answers only with an
    `HttpResponse`.

    Args:
        wire: Writes scripts, and reads requests.

    Attributes:
        raw: Every request, as it was received.
        seen: Every request, read by the wire.
        problems: The exceptions while it read or answered.
    """

    def __init__(self, wire: Wire | None = None) -> None:
        self._wire = wire
        self._answers: list[Answer] = []
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._closing = False
        self.raw: list[RawRequest] = []
        self.seen: list[SeenRequest] = []
        self.problems: list[Exception] = []

    @property
    def base_url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="wire-server", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            for one in self._connections:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self.wait_until(lambda: not self._connections, 5.0)

    def answer(self, *answers: Answer) -> None:
        """Set the answers to the next requests, in place of earlier ones."""
        with self._changed:
            self._answers = list(answers)

    def forget(self) -> None:
        """Forget the requests so far."""
        with self._changed:
            self.raw.clear()
            self.seen.clear()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        with self._changed:
            return len(self._connections)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait, in this thread, until a condition holds, checked at each event of the server.

        Args:
            condition: Returns whether it holds; called with the server's lock.
            timeout_s: The bound of the wait, in seconds.

        Returns:
            Whether it holds.
        """
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)

    def reply(self, answer: Answer, seen: SeenRequest | None) -> HttpResponse:
        """Return an answer as an HTTP response."""
        if callable(answer):
            if seen is None:
                raise ValueError(
                    "A server without a wire can't read requests: pass WireServer a wire."
                )
            answer = answer(seen)
        if isinstance(answer, HttpResponse):
            return answer
        if self._wire is None or seen is None:
            raise ValueError(
                "A server without a wire can't write scripts: answer with an HttpResponse."
            )
        if seen.streaming is not False:
            pieces = tuple(self._wire.stream(answer))
            return HttpResponse(pieces, media_type=self._wire.stream_media_type)
        return HttpResponse((self._wire.whole(answer),))

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = connection.makefile("rb")
        try:
            # No variable here keeps a request: it would hold a key while the next one is awaited.
            while not self._closing and self._respond(connection, _read(reader)):
                pass
        except OSError:
            pass
        except Exception as error:
            self.problems.append(error)
        finally:
            with suppress(OSError):
                reader.close()
            connection.close()
            with self._changed:
                self._connections.discard(connection)
                self._changed.notify_all()

    def _respond(self, connection: socket.socket, raw: RawRequest | None) -> bool:
        if raw is None:
            return False
        seen = self._wire.read_request(raw) if self._wire is not None else None
        with self._changed:
            self.raw.append(raw)
            if seen is not None:
                self.seen.append(seen)
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            self._changed.notify_all()
        return _send(connection, self.reply(answer, seen))


def _read(reader: BufferedReader) -> RawRequest | None:
    """Return the next request; None if the client has gone, or the request isn't HTTP/1.1."""
    method, _, rest = reader.readline().decode("latin-1").partition(" /")
    path, _, version = rest.rpartition(" ")
    if not version.startswith("HTTP/1.1"):
        return None
    headers: dict[str, str] = {}
    while (line := reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        chunks: list[bytes] = []
        while size := int(reader.readline().split(b";")[0] or b"0", 16):
            chunks.append(reader.read(size))
            reader.readline()
        reader.readline()
        return RawRequest(method, f"/{path}", headers, b"".join(chunks))
    return RawRequest(
        method, f"/{path}", headers, reader.read(int(headers.get("content-length", "0")))
    )


def _send(connection: socket.socket, reply: HttpResponse) -> bool:
    """Send a response, and return whether the connection may be used again."""
    if reply.stop_at == -1:
        return _stop(connection, reply)
    headers = {
        "Content-Type": reply.media_type,
        "Transfer-Encoding": "chunked",
        **reply.headers,
    }
    lines = [f"HTTP/1.1 {reply.status} Status", *(f"{name}: {headers[name]}" for name in headers)]
    connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    for piece in _until(reply.body, reply.stop_at):
        connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
    if reply.stop_at is not None and reply.then != "end":
        return _stop(connection, reply)
    connection.sendall(b"0\r\n\r\n")
    return True


def _until(body: Sequence[bytes], stop_at: int | None) -> Sequence[bytes]:
    """Return the pieces of a body, cut after so many bytes, without empty ones."""
    if stop_at is None:
        return [piece for piece in body if piece]
    ends = accumulate(len(piece) for piece in body)
    cut = (
        piece[: max(0, stop_at - end + len(piece))] for piece, end in zip(body, ends, strict=True)
    )
    return [piece for piece in cut if piece]


def _stop(connection: socket.socket, reply: HttpResponse) -> bool:
    if reply.then == "hang":
        # Wait for the client to close the connection, whatever it still sends.
        while connection.recv(4096):
            pass
    return False
