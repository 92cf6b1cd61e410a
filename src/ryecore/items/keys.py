"""The author's own key: created on request, in files that only its owner can read."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ryecore.errors import ConfigError, MetadataError, SigningError
from ryecore.items.files import write_atomically
from ryecore.items.paths import folder_to_be
from ryecore.items.spaces import Space
from ryecore.items.trust import (
    TRUSTED_KEYS_PATH,
    KeyFile,
    is_past,
    parse_key_file,
    render_trusted_key,
)
from ryecore.lillux.keys import PublicKey, SigningKey

__all__ = ["AuthorKeys"]

KEY_FOLDER_VARIABLE: Final = "RYE_SIGNING_KEY_DIR"
_PRIVATE, _PUBLIC = "private_key.pem", "public_key.pem"


class AuthorKeys:
    """The signing key of the author, and the keys that the author trusts.

    Source: decision 5.
    """

    def __init__(self, user: Space, environ: Mapping[str, str]) -> None:
        self._user = user
        self.folder = _chosen_folder(environ) or user.folder("config") / "keys" / "signing"

    def generate(self, owner: str = "") -> SigningKey:
        """Create the key, and trust it in user space. An existing one isn't overwritten."""
        private = self.folder / _PRIVATE
        key = SigningKey.generate()
        render_trusted_key(key.public, owner)  # refuse an invalid owner first
        try:
            self._make_folder()
            write_atomically(private, key.pem, mode=0o600, replace=False)
        except FileExistsError:
            raise self._refusal_of_present() or SigningError(
                f"There is a signing key already: {private}.",
                next_step="Sign with it, or move it away first: a key is never overwritten.",
            ) from None
        except OSError as problem:
            raise self._unwritable(problem) from problem
        try:
            write_atomically(self.folder / _PUBLIC, key.public.pem, mode=0o644)
            self.trust(key.public, owner, signer=key)
        except BaseException as problem:
            private.unlink(missing_ok=True)  # half a key would block the next attempt
            if isinstance(problem, OSError):
                raise self._unwritable(problem) from problem
            raise
        return key

    def _unwritable(self, problem: OSError) -> SigningError:
        return SigningError(
            f"The key can't be written to {self.folder}: {problem.strerror}.",
            next_step=f"See that the folder can be written, or set {KEY_FOLDER_VARIABLE}.",
        )

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = self.folder.stat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise SigningError(
                f"Others can write to {self.folder}, where the key would be kept.",
                next_step=f"Set {KEY_FOLDER_VARIABLE} to a folder of its own.",
            )
        self.folder.chmod(0o700)

    def load(self) -> SigningKey:
        """Return the author's key. One that is open to others, revoked or expired is refused."""
        key = self._read()
        if (refusal := self._refusal(key)) is not None:
            raise refusal
        return key

    def _refusal(self, key: SigningKey) -> SigningError | None:
        """Return why the author's key can't sign: it was revoked, or has expired."""
        key_file = self._key_file(key.public)
        why = None if key_file is None else key_file.why_it_ended()
        if key_file is None or why is None:
            return None
        private, fingerprint = self.folder / _PRIVATE, key.public.fingerprint
        away = ["mv", "-n", str(private), str(private.with_suffix(f".{fingerprint}.pem"))]
        again = f"rye keys trust {shlex.quote(str(key_file.path))}"
        return SigningError(
            f"Your signing key {fingerprint} {why} ({key_file.path}): what it signs would be "
            "refused.",
            next_step=f"Make a new key: {shlex.join(away)} && rye keys generate. Or, if this one "
            f"may count again: {again}{' --reinstate' if key_file.revoked else ''}",
        )

    def _refusal_of_present(self) -> SigningError | None:
        try:
            return self._refusal(self._read())
        except SigningError:
            return None

    def _key_file(self, key: PublicKey) -> KeyFile | None:
        """Return the key file of user space for a key; None where none can be read."""
        path = self._user.folder("config") / TRUSTED_KEYS_PATH / f"{key.fingerprint}.toml"
        try:
            return parse_key_file(path.read_bytes(), str(path))
        except (OSError, MetadataError, SigningError, KeyError, TypeError, OverflowError):
            return None

    def _read(self) -> SigningKey:
        private = self.folder / _PRIVATE
        try:
            with private.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                pem = file.read()
        except FileNotFoundError:
            raise SigningError(
                f"There is no signing key in {self.folder}.",
                next_step="Make one: rye keys generate",
            ) from None
        except OSError as problem:
            raise SigningError(
                f"The signing key {private} can't be read: {problem.strerror}.",
                next_step="See that it is a file that you may read.",
            ) from None
        if mode & 0o077:
            raise SigningError(
                f"Others can read the signing key {private}.",
                next_step=f"Close it: chmod 600 {shlex.quote(str(private))}",
            )
        try:
            return SigningKey.from_pem(pem)
        except SigningError as error:
            raise SigningError(
                f"{private} is not a signing key: {error.message}",
                next_step="Put the key back from a copy; or move the file away and make another "
                "key: rye keys generate",
            ) from None

    def trust(
        self,
        key: PublicKey,
        owner: str,
        *,
        space: Space | None = None,
        signer: SigningKey | None = None,
        not_after: str | None = None,
        revoked: bool = False,
        reinstate: bool = False,
    ) -> Path:
        """Write the key file that makes a key trusted, signed by the author's key.

        Args:
            space: The user's space by default; a project's, to trust the key in that project's
                folder alone; or a bundle's.
            signer: The author's key by default.
            reinstate: Whether to trust a revoked key again.

        Raises:
            SigningError: The author has no key to sign with, or it was revoked or has expired and
                something else than that is to be written; `not_after` is not a future UTC time,
                the key was revoked, a revocation names another space than the user's, or the file
                can't be written.
            LinkLeavesSpace: A link among the file's folders leads out of the space.

        Source: decision 6. A revocation stands in user space, where nobody but the user can put an
        older file in its place.
        """
        space = space or self._user
        if signer is None:
            # Any key may sign a revocation; the author's own key may reinstate itself.
            signer = self._read()
            if not revoked and (signer.public != key or space != self._user):
                signer = self.load()
        if revoked and space != self._user:
            raise SigningError(
                f"A revocation in {space.label} space could be undone by an older key file.",
                next_step="Revoke the key in your user space, which counts everywhere: leave out "
                "--in-project.",
            )
        if not revoked:
            self._check_trustable(key, not_after, space, reinstate=reinstate)
        name = f"{TRUSTED_KEYS_PATH}/{key.fingerprint}.toml"
        content = render_trusted_key(
            key,
            owner,
            space=space.label,
            project=space.root.parent if space.name == "project" else None,
            not_after=not_after,
            revoked=revoked,
        )
        from ryecore.items.signing import write_signed  # noqa: PLC0415 - keys are read more often

        return write_signed(space, name, content, signer)

    def _check_trustable(
        self, key: PublicKey, not_after: str | None, space: Space, *, reinstate: bool
    ) -> None:
        if is_past(not_after):
            raise SigningError(
                f"{not_after} is over: the key {key.fingerprint} would never count.",
                next_step="Name a time to come, or revoke the key: --revoke",
            )
        before = self._key_file(key)
        if before is None or not before.revoked:
            return
        if not reinstate:
            raise SigningError(
                f"The key {key.fingerprint} was revoked: {before.path}.",
                next_step="If it may count again after all, add --reinstate.",
            )
        if space != self._user:
            raise SigningError(
                f"The key {key.fingerprint} was revoked in user space ({before.path}), which no "
                f"file in {space.label} space changes.",
                next_step="If it may count again in every project: leave out --in-project.",
            )


def _chosen_folder(environ: Mapping[str, str]) -> Path | None:
    chosen = environ.get(KEY_FOLDER_VARIABLE)
    if not chosen:
        return None
    if chosen.startswith(("/", "~")):
        return folder_to_be(chosen, "key folder")
    raise ConfigError(
        f"{KEY_FOLDER_VARIABLE} is {chosen!r}, which is not an absolute path.",
        next_step=f"Set {KEY_FOLDER_VARIABLE} to an absolute path.",
    )
