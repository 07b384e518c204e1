"""Signed models: who made them, and that nobody changed them."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from scheduled import compile_model
from tvm.relax import op

from tvm_tile.cli import main
from tvm_tile.errors import SavedModelError
from tvm_tile.runtime import CompiledModel, load

MANIFEST = "manifest.json"


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compile_model(op.nn.relu, ((6, 16),))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one.pem, one.pub, other.pem and other.pub, and keys of no use."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization as text
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    folder = tmp_path_factory.mktemp("keys")
    pem, pkcs8 = text.Encoding.PEM, text.PrivateFormat.PKCS8
    info, plain = text.PublicFormat.SubjectPublicKeyInfo, text.NoEncryption()
    kinds = {name: ed25519.Ed25519PrivateKey.generate() for name in ("one", "other")}
    for name, key in {**kinds, "curve": ec.generate_private_key(ec.SECP256R1())}.items():
        (folder / f"{name}.pem").write_bytes(key.private_bytes(pem, pkcs8, plain))
        (folder / f"{name}.pub").write_bytes(key.public_key().public_bytes(pem, info))
    locked = kinds["one"].private_bytes(pem, pkcs8, text.BestAvailableEncryption(b"word"))
    (folder / "locked.pem").write_bytes(locked)
    (folder / "text.pem").write_bytes(b"no key")
    return folder


class TestSignatures:
    def test_what_is_signed_loads_with_its_key(
        self, model: CompiledModel, keys: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "m.tvmtile"
        model.save(path, key=keys / "one.pem")
        assert load(path, key=keys / "one.pub").program == load(path).program == model.program
        with pytest.raises(SavedModelError, match="signed with another key"):
            load(path, key=keys / "other.pub")
        model.save(tmp_path / "unsigned.tvmtile")
        with pytest.raises(SavedModelError, match="not signed"):
            load(tmp_path / "unsigned.tvmtile", key=keys / "one.pub")
        words = ["sign", str(path), "--key", str(keys / "other.pem")]
        assert main(words) == 0
        assert load(path, key=keys / "other.pub").program == model.program
        assert main(["explain", str(path), "--verify-key", str(keys / "one.pub")]) == 2
        assert main(["run", str(path), "--verify-key", str(keys / "other.pub")]) == 0

    def test_what_is_changed_is_not(self, model: CompiledModel, keys: Path, tmp_path: Path) -> None:
        signed = tmp_path / "signed.tvmtile"
        model.save(signed, key=keys / "one.pem")
        with zipfile.ZipFile(signed) as archive:
            signature = archive.comment.partition(b" ")[2]
            manifest = json.loads(archive.read("manifest.json"))
        manifest["device"] = "another"
        text = json.dumps(manifest).encode()
        path = tmp_path / "m.tvmtile"
        for comment in (signature, b"ed25519:" + b"00" * 64, b"ed25519:zz", b"ed25519:"):
            with zipfile.ZipFile(signed) as source, zipfile.ZipFile(path, "w") as archive:
                for name in source.namelist():
                    archive.writestr(name, text if name == MANIFEST else source.read(name))
                archive.comment = hashlib.sha256(text).hexdigest().encode() + b" " + comment
            assert load(path).device_name == "another"
            with pytest.raises(SavedModelError):
                load(path, key=keys / "one.pub")

    def test_keys_of_no_use(self, model: CompiledModel, keys: Path, tmp_path: Path) -> None:
        path = tmp_path / "m.tvmtile"
        for name in ("one.pub", "curve.pem", "locked.pem", "text.pem", "none.pem", "."):
            with pytest.raises(SavedModelError, match="key"):
                model.save(path, key=keys / name)
        assert not path.exists()
        model.save(path, key=keys / "one.pem")
        for name in ("one.pem", "curve.pub", "text.pem", "none.pub"):
            with pytest.raises(SavedModelError, match="key"):
                load(path, key=keys / name)
