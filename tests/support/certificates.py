"""Certificates for 127.0.0.1, made for one test."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Authority:
    """Signs certificates for 127.0.0.1, as PEM files in a folder."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        self.pem = self._sign(self._subject, self._key, authority=True)
        (self.folder / f"{self.name}.pem").write_bytes(self.pem)

    @property
    def path(self) -> str:
        return str(self.folder / f"{self.name}.pem")

    def issue(self, name: str) -> tuple[str, str]:
        """Paths of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        raw = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate, secret = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(self._sign(subject, key, authority=False))
        secret.write_bytes(raw)
        return str(certificate), str(secret)

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool) -> bytes:
        now = dt.datetime.now(dt.UTC)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return built.public_bytes(serialization.Encoding.PEM)
