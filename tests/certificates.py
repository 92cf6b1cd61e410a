"""Certificates for servers of the tests, signed by a test CA."""

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ryecore.node.identity import TlsFiles

__all__ = ["make_certificates"]


def make_certificates(folder: Path) -> TlsFiles:
    """Write a test CA, and a certificate of 127.0.0.1 that it signed."""
    now = datetime.datetime.now(datetime.UTC)

    def make(
        name: str, issuer: str, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey
    ) -> x509.Certificate:
        is_ca = name == issuer
        subject, signed_by = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, issuer)
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(signed_by)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        )
        if not is_ca:
            names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(by, hashes.SHA256())

    ca_key, own_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    pem = serialization.Encoding.PEM
    ca = make("test CA", "test CA", ca_key, ca_key)
    own = make("node", "test CA", own_key, ca_key)
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    (folder / "node.pem").write_bytes(own.public_bytes(pem))
    (folder / "node.key").write_bytes(
        own_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return TlsFiles(folder / "node.pem", folder / "node.key")
