"""Serving certificates, each with its own authority, whose key is discarded after signing.

A discarded key can't be stolen, and can't sign a second certificate for the same webhook.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from reservation_core.domain.network.serving_certificates import Authority, Serving

_BACKDATED = timedelta(minutes=5)
"""Certificates are valid a little earlier, as clocks differ."""

_COMMON_NAME = 64


class BadCertificateError(Exception):
    """The input is not a certificate in PEM; the text says why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A serving certificate, its key, and the certificate of the authority that signed it; all PEM."""

    certificate: bytes
    authority: bytes
    key: bytes = field(repr=False)


def make_pair(names: Iterable[str], valid_for: timedelta, now: datetime) -> Pair:
    """Make a certificate for host names and IP addresses (at least one), valid from now on."""
    wanted = sorted(set(names))
    begins, ends = now - _BACKDATED, now + valid_for
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    # Authorities with the same subject would make clients try both keys; the serial number distinguishes them.
    serial = x509.random_serial_number()
    issuer = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"gpu-dev webhook authority {serial:x}"[:_COMMON_NAME])]
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        x509.CertificateBuilder(issuer, issuer, authority_key.public_key(), serial, begins, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, wanted[0][:_COMMON_NAME])])
    certificate = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), begins, ends)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in wanted]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Pair(
        certificate.public_bytes(pem),
        authority.public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def read_serving(certificate: bytes, authorities: bytes) -> Serving:
    """Read a serving certificate and find its signer in `authorities` ('' for none). Raises BadCertificateError."""
    first = _certificates(certificate)[0]
    signer = next((authority for authority in _certificates(authorities) if _signed(first, authority)), None)
    return Serving(
        names=frozenset(_names(first)),
        made_at=first.not_valid_before_utc + _BACKDATED,
        ends_at=first.not_valid_after_utc,
        authority="" if signer is None else _fingerprint(signer),
    )


def read_authorities(bundle: bytes) -> tuple[Authority, ...]:
    """The authorities in a bundle, in its order. Raises BadCertificateError."""
    return tuple(
        Authority(_fingerprint(certificate), certificate.not_valid_after_utc) for certificate in _certificates(bundle)
    )


def select_authorities(bundle: bytes, fingerprints: Iterable[str]) -> bytes:
    """The authorities of a bundle with these fingerprints, without repetition. Raises BadCertificateError."""
    wanted = set(fingerprints)
    kept = b""
    for certificate in _certificates(bundle):
        if _fingerprint(certificate) in wanted:
            wanted.discard(_fingerprint(certificate))
            kept += certificate.public_bytes(serialization.Encoding.PEM)
    return kept


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except ValueError as problem:
        raise BadCertificateError(f"not a certificate in PEM: {problem}") from problem
    if not certificates:
        raise BadCertificateError("no certificate is there")
    return certificates


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    return [*extension.value.get_values_for_type(x509.DNSName), *map(str, addresses)]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex()
