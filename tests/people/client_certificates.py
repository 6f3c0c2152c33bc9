"""Certificates by which those who ask are known."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def signed_client(folder: Path, name: str = "kube-apiserver") -> tuple[Path, Path]:
    """An authority, and a client's certificate that it signed with its key behind it, as files of PEM."""
    now = datetime.now(UTC)

    def certificate(subject: str, key: EllipticCurvePrivateKey, issuer: str, signer: EllipticCurvePrivateKey) -> bytes:
        names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, listed_name)]) for listed_name in (subject, issuer)]
        wanted = (
            x509.CertificateBuilder(*reversed(names), key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=key is signer, path_length=None), critical=True)
        )
        return wanted.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)

    authority_key, key = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    authority, shown = folder / f"{name}-authority.pem", folder / f"{name}.pem"
    authority.write_bytes(certificate("authority", authority_key, "authority", authority_key))
    kept = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    shown.write_bytes(certificate(name, key, "authority", authority_key) + kept)
    return authority, shown
