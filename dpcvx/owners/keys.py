"""Certificates: whoever is trusted with names signs one for every agent, and for the coordinator.

A folder holds ``ca.crt``, and of each party that lives there ``NAME.key``, which never leaves, and
``NAME.crt``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ..errors import ModelError
from .messages import refused

# The coordinator's name; no agent has it.
COORDINATOR = "coordinator"
_YEARS = 5


def stem(name: str) -> str:
    """Return the name of a party's files."""
    return re.sub(r"[^\w.-]", "_", name)


def make_authority(folder: Path) -> Path:
    """Make an authority: ``ca.key`` and ``ca.crt`` in a new folder.

    Raises
    ------
    ModelError
        If there is one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder("dpcvx authority", "dpcvx authority", key.public_key(), ca=True)
    _new(folder / "ca.key", _private(key), secret=True)
    _new(folder / "ca.crt", _pem(builder.sign(key, hashes.SHA256())))
    return folder / "ca.crt"


def make_request(folder: Path, name: str) -> Path:
    """Make a key that stays in a folder, and ``NAME.csr``, which goes to the authority.

    Raises
    ------
    ModelError
        If there is a key of that name, or the name is none.
    """
    if not name or len(name) > 64 or not name.isprintable():
        raise ModelError(f"dpcvx keys request {name!r}: a name has 1 to 64 printable characters.")
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    _new(folder / f"{stem(name)}.key", _private(key), secret=True)
    request = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return _new(folder / f"{stem(name)}.csr", request)


def sign_request(folder: Path, request: Path) -> tuple[str, Path]:
    """Sign a request with the authority in a folder; the certificate lies next to the request.

    Returns
    -------
    name : str
        Which the certificate is for: make sure that whoever asks is called so.
    path : Path

    Raises
    ------
    ModelError
        If there is no authority, or the request is none.
    """
    try:
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        asked = x509.load_pem_x509_csr(request.read_bytes())
    except FileNotFoundError as error:
        raise ModelError(f"There is no file '{Path(str(error.filename)).name}'.") from None
    except ValueError:
        raise ModelError(f"'{request.name}' is no request for a certificate.") from None
    if not asked.is_signature_valid or not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ModelError(f"'{request.name}' is no request for a certificate.")
    name = _name(asked.subject)
    builder = _builder(name, _name(ca.subject), asked.public_key(), ca=False)
    signed = _pem(builder.sign(key, hashes.SHA256()))
    return name, _new(request.with_name(f"{stem(name)}.crt"), signed)


def fingerprint_of(pem: bytes) -> str:
    """Return ``sha256:`` and the digest of a certificate, as ``coordinator =`` names it.

    Raises
    ------
    ModelError
        If it is none.
    """
    try:
        found = x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ModelError("This is no certificate.") from None
    return of_der(found.public_bytes(serialization.Encoding.DER))


def of_der(der: bytes) -> str:
    """Return the fingerprint of a certificate in the form that connections have it."""
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


@dataclass(frozen=True)
class PartyIdentity:
    """One party, with its key and the authority that it trusts."""

    folder: Path
    name: str
    certificate: str = field(default="", repr=False)

    @staticmethod
    def of(folder: Path, name: str) -> PartyIdentity:
        """Return the party of this name, whose files are in a folder.

        Raises
        ------
        ModelError
            If a file is missing.
        """
        for part in ("ca.crt", f"{stem(name)}.key", f"{stem(name)}.crt"):
            if not os.path.isfile(folder / part):  # of names that are too long as well
                raise ModelError(
                    f"The folder of keys has no '{part}'. Make a key by: dpcvx keys request "
                    f'"{name}"; have it signed at the authority, by: dpcvx keys sign; and put the '
                    "certificate and ca.crt next to the key."
                )
        return PartyIdentity(folder, name, (folder / f"{stem(name)}.crt").read_text())

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Return a context of TLS 1.3 with certificates on both sides."""
        purpose = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # parties are known by their names, not by their machines
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(str(self.folder / "ca.crt"))
        own = self.folder / stem(self.name)
        context.load_cert_chain(f"{own}.crt", f"{own}.key")
        if server:
            # Nobody resumes a session. Tickets come behind the handshake, when one thread of an
            # owner reads and another writes: of a hundred connections, one then hears nothing.
            context.num_tickets = 0
        return context

    def signed(self, said: bytes) -> str:
        """Return a signature by the party's key, in hexadecimal digits."""
        path = self.folder / f"{stem(self.name)}.key"
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ModelError(
                f"'{path.name}' is no key that dpcvx keys request makes. Make a new one: owners "
                "verify signatures by elliptic curves alone."
            )
        return key.sign(said, ec.ECDSA(hashes.SHA256())).hex()

    def verify(self, name: str, certificate: str, said: bytes, signature: str) -> None:
        """Refuse what another party did not sign.

        Parameters
        ----------
        name : str
            Of the other party.
        certificate : str
            Its own, as text.
        said : bytes
        signature : str

        Raises
        ------
        RefusedError
            With code "stranger".
        """
        try:
            ca = x509.load_pem_x509_certificate((self.folder / "ca.crt").read_bytes())
            own = x509.load_pem_x509_certificate(certificate.encode())
            own.verify_directly_issued_by(ca)
            now = dt.datetime.now(dt.UTC)
            valid = own.not_valid_before_utc <= now <= own.not_valid_after_utc
            key = own.public_key()
            if not valid or _name(own.subject) != name:
                raise refused("stranger", f"'{name}'")
            if not isinstance(key, ec.EllipticCurvePublicKey):
                raise refused("stranger", f"'{name}'")
            key.verify(bytes.fromhex(signature), said, ec.ECDSA(hashes.SHA256()))
        except (ValueError, TypeError, InvalidSignature):
            raise refused("stranger", f"'{name}'") from None


def peer_name(certificate: dict[str, Any] | None) -> str:
    """Return the name on a connection's certificate; empty without one."""
    parts = () if certificate is None else certificate.get("subject", ())
    return next((value for part in parts for key, value in part if key == "commonName"), "")


def unvouched(error: Exception) -> str:
    """Return the fault of the other end's certificate; empty if the error has another cause."""
    return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else ""


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(subject: x509.Name) -> str:
    found = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(found) != 1:
        raise ModelError("A certificate names one party.")
    return str(found[0].value)


def _builder(name: str, issuer: str, key: Any, *, ca: bool) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(_subject(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca, 0 if ca else None), True)
        .add_extension(usage, True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _new(path: Path, content: bytes, *, secret: bool = False) -> Path:
    """Write a file that does not exist yet."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    except FileExistsError:
        raise ModelError(
            f"There is a '{path.name}' already, and nothing replaces it. Remove it first, or name "
            "another folder."
        ) from None
    with os.fdopen(number, "wb") as file:
        file.write(content)
    return path
