import hashlib
from base64 import urlsafe_b64encode

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ryecore.errors import SigningError
from ryecore.items.signature import (
    COMMENT_FORMS,
    CommentForm,
    Signature,
    comment_form,
    make_signature,
    parse_payload,
    split_content,
)
from ryecore.items.signing import sign_content
from ryecore.lillux.keys import SigningKey

KEY = SigningKey(bytes(range(32)))  # the same in every process, for it names tests
TIME = "2026-01-31T12:00:00Z"
ADDED = {".rb": CommentForm.of("#"), ".lua": CommentForm.of("--"), ".el": CommentForm.of(";")}
EXTENSIONS = sorted(COMMENT_FORMS) + sorted(ADDED)
BOM = b"\xef\xbb\xbf"

LINES = st.lists(
    st.sampled_from(
        [
            b"",
            b"print('x')",
            b"# comment",
            b"#!/bin/sh",
            b"// x",
            b"<!-- -->",
            "é".encode(),
            b"\xff",
        ]
    ),
    max_size=6,
)
CONTENT = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda lines, end, shebang, final: shebang + end.join(lines) + (end if final else b""),
        LINES,
        st.sampled_from([b"\n", b"\r\n", b"\r"]),
        st.sampled_from([b"", b"#!/usr/bin/env python3\n", b"#!/bin/sh\r\n", b"#!/bin/sh"]),
        st.booleans(),
    ),
)


def sign(content: bytes, extension: str = ".py") -> bytes:
    signed, _, _ = sign_content(
        content, extension, "tool", f"acme/x{extension}", KEY, timestamp=TIME, file_types=ADDED
    )
    return signed


def signature(payload_end: str = "") -> str:
    return make_signature("0" * 64, "tool", "x.py", KEY, TIME).payload + payload_end


@given(CONTENT, st.sampled_from(EXTENSIONS))
@example(b"", ".py")
@example(b"#!/bin/sh", ".sh")
@example(b"#!/bin/sh\n", ".sh")
@example(b"#!/bin/sh\r\necho\r\n", ".sh")
@example(b"no final newline", ".md")
def test_a_signature_goes_in_and_out_again(content: bytes, extension: str) -> None:
    assume(not content.startswith(BOM))
    form = comment_form(extension, ADDED)
    assert form is not None
    signed = sign(content, extension)
    parts = split_content(signed, form)
    assert parts.line is not None
    found = parse_payload(parts.line)
    assert found is not None
    assert found.holds("tool", f"acme/x{extension}", KEY.public)
    assert found.content_hash == hashlib.sha256(parts.before + parts.after).hexdigest()
    assert parts.before + parts.after in (content, content + b"\n")
    assert (parts.before + parts.after == content) or b"\n" not in content
    assert parts.before == b"" or parts.before.startswith(b"#!")
    assert sign(signed, extension) == signed, "signing again replaces the line"


@given(CONTENT, st.sampled_from(EXTENSIONS))
def test_the_line_stands_first_or_behind_a_shebang(content: bytes, extension: str) -> None:
    assume(not content.startswith(BOM))
    form = comment_form(extension, ADDED)
    assert form is not None
    lines = sign(content, extension).split(b"\n")
    line = lines[1 if content.startswith(b"#!") else 0].decode().removesuffix("\r")
    assert line.startswith(form.prefix + "rye:signed:")
    assert line.endswith(form.suffix)


@pytest.mark.parametrize(
    ("extension", "prefix", "suffix"),
    [
        *((end, "# ", "") for end in (".py", ".yaml", ".yml", ".sh", ".toml")),
        *((end, "// ", "") for end in (".js", ".ts", ".mjs", ".cjs")),
        (".md", "<!-- ", " -->"),
    ],
)
def test_the_comment_form_follows_the_extension(extension: str, prefix: str, suffix: str) -> None:
    assert sign(b"x\n", extension).decode() == (
        f"{prefix}{_payload(extension, b'x' + bytes([10]))}{suffix}\nx\n"
    )


def _payload(extension: str, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    return make_signature(digest, "tool", f"acme/x{extension}", KEY, TIME).payload


def test_a_runtime_adds_forms_and_changes_none() -> None:
    changed = {".py": CommentForm.of("//"), ".rb": CommentForm.of("#")}
    assert comment_form(".py", changed) == CommentForm("# ")
    assert comment_form(".rb", changed) == CommentForm("# ")
    assert comment_form(".rb") is None


@pytest.mark.parametrize("extension", [".json", ".so", ".bin", "", ".PY"])
def test_a_file_without_comments_is_signed_beside_itself(extension: str) -> None:
    content = b"\x7fELF\x00" if extension == ".so" else b"{}"
    payload, _, is_sidecar = sign_content(
        content, extension, "tool", f"x{extension}", KEY, timestamp=TIME
    )
    assert is_sidecar
    digest = hashlib.sha256(content).hexdigest()
    assert payload.startswith(f"rye:signed:{TIME}:{digest}:".encode())
    assert payload.endswith(KEY.public.fingerprint.encode() + b"\n")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("shebang", [b"", b"#!/bin/sh"])
def test_the_line_ends_as_the_file_s_lines_do(newline: bytes, shebang: bytes) -> None:
    content = newline.join([*([shebang] if shebang else []), b"one", b"two", b""])
    signed = sign(content, ".sh")
    assert signed.count(newline) == content.count(newline) + 1
    assert signed.count(b"\n") == content.count(b"\n") + 1
    assert signed.replace(newline, b"").count(b"\r") == 0


def test_line_ends_are_part_of_the_content() -> None:
    form = COMMENT_FORMS[".py"]
    unix, dos = (split_content(sign(text), form) for text in (b"a\nb\n", b"a\r\nb\r\n"))
    assert unix.content_hash != dos.content_hash


def test_a_byte_order_mark_is_refused_with_what_to_do() -> None:
    with pytest.raises(SigningError, match="begins with a byte order mark") as refused:
        sign(BOM + b"print()\n")
    assert "UTF-8 without one" in refused.value.next_step
    assert sign(b"print()\n")  # the next step


def test_a_byte_order_mark_in_front_hides_the_line() -> None:
    assert split_content(BOM + sign(b"x\n"), COMMENT_FORMS[".py"]).line is None


def test_a_second_signature_line_is_content() -> None:
    form, first = COMMENT_FORMS[".py"], sign(b"x\n")
    line, _, rest = first.partition(b"\n")
    parts = split_content(line + b"\n" + first, form)
    assert parts.after == first
    assert parts.content_hash == hashlib.sha256(first).hexdigest()
    assert parts.content_hash != hashlib.sha256(rest).hexdigest()


@pytest.mark.parametrize(
    "content",
    [
        b"#rye:signed:x\n",
        b"#  rye:signed:x\n",
        b" # rye:signed:x\n",
        b"\n# rye:signed:x\n",
        b"// rye:signed:x\n",
        b"#!/bin/sh\n\n# rye:signed:x\n",
        b"#!/bin/sh",
        b"",
    ],
)
def test_elsewhere_or_otherwise_there_is_no_signature_line(content: bytes) -> None:
    parts = split_content(content, COMMENT_FORMS[".py"])
    assert parts.line is None
    assert parts.before + parts.after == content


def test_a_payload_reads_back_as_it_is_written() -> None:
    found = parse_payload(signature("|github@ann-1"))
    assert found is not None
    assert found.provenance == "github@ann-1"
    assert found.timestamp == TIME
    assert found.fingerprint == KEY.public.fingerprint
    assert len(found.value) == 64
    assert found.payload == signature("|github@ann-1")


@given(st.text(min_size=1, max_size=8))
@example(" ")
@example("\n")
@example("\r")
@example("=")
@example("0")
@example("|a")
@example("|a@")
@example("|@b")
@example("|a@b c")
@example("|a@b|c@d")
@example("|a@b\n")
@example("|ä@b")
def test_text_behind_the_payload_is_refused(text: str) -> None:
    found = parse_payload(signature(text))
    assert found is None or found.payload == signature(text)
    if found is not None:
        assert text.startswith("|")


def test_text_before_the_payload_is_refused() -> None:
    assert parse_payload(" " + signature()) is None
    assert parse_payload("\n" + signature()) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TIME, "2026-01-31T12:00:00"),
        (TIME, "2026-01-31T12:00:00+00:00"),
        (TIME, "2026-01-31T12:00:00.5Z"),
        (TIME, "2026-01-31 12:00:00Z"),
        (TIME, "2026-01-31T12:00:00z"),
        (TIME, "٢٠٢٦-01-31T12:00:00Z"),
        (":" + "0" * 64, ":" + "0" * 63),
        (":" + "0" * 64, ":" + "0" * 65),
        (":" + "0" * 64, ":" + "A" * 64),
        ("rye:signed:", "rye:signed"),
        ("rye:signed:", "RYE:signed:"),
        ("rye:signed:", "rye:validated:"),
        (KEY.public.fingerprint, KEY.public.fingerprint[:-1]),
        (KEY.public.fingerprint, "ABCDEF0123456789"),
        (KEY.public.fingerprint, "０" * 16),
    ],
)
def test_a_payload_of_another_form_is_refused(old: str, new: str) -> None:
    assert old in signature()
    assert parse_payload(signature().replace(old, new)) is None


@pytest.mark.parametrize("padding", ["=", "=="])
def test_padded_base64_is_refused(padding: str) -> None:
    head, value, fingerprint = signature().rsplit(":", 2)
    assert parse_payload(f"{head}:{value}{padding}:{fingerprint}") is None


@given(st.binary(min_size=64, max_size=64))
def test_a_signature_has_one_spelling(value: bytes) -> None:
    text = urlsafe_b64encode(value).decode().rstrip("=")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    accepted = [
        last
        for last in alphabet
        if parse_payload(f"rye:signed:{TIME}:{'0' * 64}:{text[:-1]}{last}:{'0' * 16}") is not None
    ]
    # The last character carries four bits that count, so four of the 64 characters are canonical.
    assert text[-1] in accepted
    assert len(accepted) == 4


@pytest.mark.parametrize("value", ["+" * 86, "/" * 86, "A" * 85, "A" * 87, "A" * 88])
def test_base64_of_another_alphabet_or_length_is_refused(value: str) -> None:
    assert parse_payload(f"rye:signed:{TIME}:{'0' * 64}:{value}:{'0' * 16}") is None


PATHS = st.text(min_size=1, max_size=20).filter(lambda path: "\0" not in path)


@given(PATHS, PATHS)
@example("a\nb", "a")
@example("é", "e\u0301")
@example("a%0Ab", "a\nb")
@example("\udcff", "%FF")
def test_what_is_signed_is_ascii_of_five_lines_and_differs_with_the_path(
    one: str, other: str
) -> None:
    assume(all(_is_file_name(path) for path in (one, other)))
    made = make_signature("0" * 64, "tool", "x.py", KEY, TIME)
    message = made.message("tool", one)
    assert message.isascii()
    assert message.split(b"\n")[0] == b"rye-item-v2"
    assert len(message.split(b"\n")) == 5
    assert (message == made.message("tool", other)) == (one == other)


def _is_file_name(path: str) -> bool:
    try:
        path.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def test_what_is_signed_covers_each_fact() -> None:
    made = Signature(TIME, "0" * 64, b"", "f" * 16)
    assert made.message("tool", "acme/x.py").decode() == (
        f"rye-item-v2\ntool:acme/x.py\n{TIME}\n{'0' * 64}\n"
    )
    others = {
        made.message("config", "acme/x.py"),
        made.message("tool", "acme/x.sh"),
        made.message("tool", "acme/y.py"),
        Signature("2026-01-31T12:00:01Z", "0" * 64, b"", "").message("tool", "acme/x.py"),
        Signature(TIME, "1" * 64, b"", "").message("tool", "acme/x.py"),
        Signature(TIME, "0" * 64, b"", "", "hub@ann").message("tool", "acme/x.py"),
    }
    assert len(others | {made.message("tool", "acme/x.py")}) == 7
