"""A certificate authority for tests of TLS between servers."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority for servers at 127.0.0.1 and localhost."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self.sign(name, self.key, is_authority=True)
        (folder / f"{name}-ca.pem").write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if is_authority else self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            builder = builder.add_extension(x509.SubjectAlternativeName(self.alternative_names(name)), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def alternative_names(self, _name: str) -> list[x509.GeneralName]:
        """The names in the certificate of a server: here the same for all."""
        return [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]

    def files(self, name: str) -> dict[str, Path]:
        """Creates the files of a server and returns them as arguments."""
        key = ec.generate_private_key(ec.SECP256R1())
        paths = {"tls_cert": self.folder / f"{name}.pem", "tls_key": self.folder / f"{name}-key.pem"}
        paths["tls_cert"].write_bytes(self.sign(name, key).public_bytes(serialization.Encoding.PEM))
        paths["tls_key"].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths | {"tls_ca": self.folder / f"{self.name}-ca.pem"}
