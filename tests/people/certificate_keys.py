"""Whether a private key belongs to a certificate."""

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key


def key_fits(certificate: bytes, key: bytes) -> bool:
    public = load_pem_private_key(key, password=None).public_key()
    return x509.load_pem_x509_certificates(certificate)[0].public_key() == public
