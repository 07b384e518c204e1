"""Signatures of saved models: Ed25519, with keys in PEM files as OpenSSL writes them.

``openssl genpkey -algorithm ed25519 -out private.pem`` makes a key, and
``openssl pkey -in private.pem -pubout -out public.pem`` its public half.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tvm_tile.errors import SavedModelError
from tvm_tile.files.whole_file import read_regular

# So that a signature of something else, made with the same key, is none of a model.
_CONTEXT = b"tvm_tile saved model\0"
_MOST_BYTES_OF_KEY = 1 << 16


def make_signature(content: bytes, private_key: str | os.PathLike[str]) -> bytes:
    """The signature (64 bytes) of some content.

    Args:
        content: the signed content.
        private_key: a PEM file with an Ed25519 private key, not encrypted.

    Raises:
        SavedModelError: there is no such key in the file, or ``cryptography`` is not installed.
    """
    serialization, ed25519, _ = _cryptography()
    pem = _read(private_key)
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except Exception as error:  # of an encrypted key a TypeError, of others what they like
        raise _no_key("private", private_key, str(error)) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _no_key("private", private_key, type(key).__name__)
    return bytes(key.sign(_CONTEXT + content))


def is_signed(content: bytes, signature: bytes, public_key: str | os.PathLike[str]) -> bool:
    """Whether a signature is that of some content by the holder of a key.

    Args:
        content: the content that may be signed.
        signature: bytes that may be its signature.
        public_key: a PEM file with an Ed25519 public key.

    Raises:
        SavedModelError: there is no such key in the file, or ``cryptography`` is not installed.
    """
    serialization, ed25519, invalid_signature = _cryptography()
    pem = _read(public_key)
    try:
        key = serialization.load_pem_public_key(pem)
    except Exception as error:  # the library raises its own kinds and Python's
        raise _no_key("public", public_key, str(error)) from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise _no_key("public", public_key, type(key).__name__)
    try:
        key.verify(signature, _CONTEXT + content)
    except invalid_signature:
        return False
    return True


def _cryptography() -> tuple[Any, Any, Any]:
    """The parts of the package cryptography that signatures need."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise SavedModelError(
            "signatures need the package cryptography",
            str(error),
            'pip install "tvm-tile[sign]"',
        ) from error
    return serialization, ed25519, InvalidSignature


def _read(key: str | os.PathLike[str]) -> bytes:
    """Content of a key's file."""
    try:
        return read_regular(Path(key), _MOST_BYTES_OF_KEY)
    except (OSError, TypeError, ValueError) as error:
        raise SavedModelError(
            "the file of a key must be readable", f"{key}: {error}", "check the path"
        ) from error


def _no_key(kind: str, path: object, found: str) -> SavedModelError:
    """The error for a file that holds no key of this kind."""
    remedy = "openssl genpkey -algorithm ed25519 -out private.pem"
    if kind == "public":
        remedy = "openssl pkey -in private.pem -pubout -out public.pem"
    return SavedModelError(
        f"a {kind} key must be one for Ed25519, in a PEM file, not encrypted",
        f"{path}: {' '.join(found.split())[:200]}",
        f"make one: {remedy}",
    )
