"""Certificates: whoever is trusted with names signs one for every agent, and for the coordinator.

A folder holds ``ca.crt``, and of each party that lives there ``NAME.key``, which never leaves, and
``NAME.crt``. ``ca.crl`` lists certificates that the authority has revoked; it may be missing.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
import ssl
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ..errors import ModelError
from .faults import fault_of, file_words
from .messages import refused

# The coordinator's name; no agent has it.
COORDINATOR = "coordinator"
_DAYS = 365 * 5
# Days before its end at which a certificate is announced.
_SOON = 30
_FINGERPRINT = re.compile(r"(?:sha-?256[:= ]?)?([0-9a-f]{64})")


def stem(name: str) -> str:
    """Return the name of a party's files."""
    return re.sub(r"[^\w.-]", "_", name)


def make_authority(folder: Path, *, days: int = _DAYS, renew: bool = False) -> Path:
    """Make an authority: ``ca.key`` and ``ca.crt`` in a new folder.

    Parameters
    ----------
    folder : Path
    days : int
        Until the certificate expires.
    renew : bool
        Whether there is one, whose key signs a new certificate. All that it signed stays valid.

    Raises
    ------
    ModelError
        If there is one already, or none to renew.
    """
    _made(folder)
    key = _authority(folder)[0] if renew else ec.generate_private_key(ec.SECP256R1())
    builder = _builder("dpcvx authority", "dpcvx authority", key.public_key(), days, ca=True)
    if not renew:
        _new(folder / "ca.key", _private(key), secret=True)
    return _new(folder / "ca.crt", _pem(builder.sign(key, hashes.SHA256())), replace=renew)


def make_study(folder: Path, names: Sequence[str], *, days: int = _DAYS) -> list[Path]:
    """Make the authority, and the keys of the coordinator and of all owners, in one folder each.

    The caller holds all keys for a moment, and could act in the name of every party.

    Parameters
    ----------
    folder : Path
        Folder for ``authority``, ``coordinator/keys`` and ``NAME/keys``; is created.
    names : sequence of str
        Names of the agents.
    days : int
        Until the certificates expire.

    Returns
    -------
    list of Path
        The folders of keys, that of the coordinator first.

    Raises
    ------
    ModelError
        If names are missing or equal, or there are keys already.
    """
    parties = [COORDINATOR, *names]
    for name in names:
        _require_name(name)
    places = [folder / stem(name) / "keys" for name in parties]
    if not names or len(set(places)) != len(parties) or folder / "authority/keys" in places:
        raise ModelError(
            "dpcvx keys study needs the name of every agent once, and none that is 'coordinator' "
            "or 'authority': each party has a folder of its own. Characters other than letters, "
            "digits, '.', '-' and '_' become '_' in its name, and two may then be equal."
        )
    root = make_authority(folder / "authority", days=days)
    for name, target in zip(parties, places, strict=True):
        sign_request(folder / "authority", make_request(target, name), days=days)
        _new(target / "ca.crt", root.read_bytes())
    return places


def revoke(folder: Path, certificate: Path) -> Path:
    """Revoke a certificate: the authority's list ``ca.crl`` has it from now on.

    Parameters
    ----------
    folder : Path
        Folder of the authority.
    certificate : Path

    Returns
    -------
    Path
        The list, which takes effect where it lies next to a party's ``ca.crt``.

    Raises
    ------
    ModelError
        If there is no authority, or the certificate is none.
    """
    key, ca = _authority(folder)
    gone, path = _certificate(certificate), folder / "ca.crl"
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.subject)
        .last_update(now - dt.timedelta(hours=1))
        .next_update(ca.not_valid_after_utc + dt.timedelta(days=_DAYS))
    )
    revoked = [] if not path.exists() else [*_list(path)]
    entry = x509.RevokedCertificateBuilder().serial_number(gone.serial_number)
    for entry_ in (*revoked, entry.revocation_date(now).build()):
        builder = builder.add_revoked_certificate(entry_)
    signed = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return _new(path, signed, replace=True)


def make_request(folder: Path, name: str) -> Path:
    """Make a key that stays in a folder, and ``NAME.csr``, which goes to the authority.

    Raises
    ------
    ModelError
        If there is a key of that name, or the name is none.
    """
    _require_name(name)
    _made(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    _new(folder / f"{stem(name)}.key", _private(key), secret=True)
    request = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return _new(folder / f"{stem(name)}.csr", request)


def sign_request(
    folder: Path, request: Path, *, days: int = _DAYS, renew: bool = False
) -> tuple[str, Path]:
    """Sign a request with the authority in a folder; the certificate lies next to the request.

    Parameters
    ----------
    folder, request : Path
    days : int
        Until the certificate expires.
    renew : bool
        Whether it replaces one that was signed before.

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
    key, ca = _authority(folder)
    asked = _parsed(request, x509.load_pem_x509_csr, "request for a certificate")
    if not asked.is_signature_valid:
        raise ModelError(
            f"'{request.name}' is not a certificate request. Name the file that dpcvx keys "
            "request wrote."
        )
    name = _name(asked.subject)
    builder = _builder(name, _name(ca.subject), asked.public_key(), days, ca=False)
    signed = _pem(builder.sign(key, hashes.SHA256()))
    return name, _new(request.with_name(f"{stem(name)}.crt"), signed, replace=renew)


def fingerprint_of(pem: bytes) -> str:
    """Return ``sha256:`` and the digest of a certificate, as ``coordinator =`` names it.

    Raises
    ------
    ModelError
        If it is none.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ModelError("These bytes are no PEM certificate. Pass those of a .crt file.") from None
    return of_der(certificate.public_bytes(serialization.Encoding.DER))


def fingerprint_of_file(path: Path) -> str:
    """Return `fingerprint_of` the certificate in a file.

    Raises
    ------
    ModelError
        If the file cannot be read, or holds none.
    """
    return of_der(_certificate(path).public_bytes(serialization.Encoding.DER))


def fingerprint_in(text: str) -> str:
    """Return a fingerprint in our spelling; empty if the text is none.

    Upper case, colons, blanks, and ``SHA256 Fingerprint=`` in front are those of other tools.
    """
    bare = re.sub(r"fingerprint|[\s:=]", "", text.strip().lower())
    match = _FINGERPRINT.fullmatch(bare)
    return f"sha256:{match[1]}" if match else ""


def of_der(der: bytes) -> str:
    """Return the fingerprint of a certificate in the form that connections have it."""
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


@dataclass(frozen=True)
class PartyIdentity:
    """A party, with its key and the authority that it trusts."""

    folder: Path
    name: str
    certificate: str = field(default="", repr=False)

    @staticmethod
    def of(folder: Path, name: str, now: dt.datetime | None = None) -> PartyIdentity:
        """Return the party of this name, whose files are in a folder, if they can be used.

        Parameters
        ----------
        folder : Path
        name : str
        now : datetime, optional
            Time with a time zone; this machine's time if omitted.

        Raises
        ------
        ModelError
            If a file is missing, cannot be read, is not what its name says, or does not belong to
            the others; if a certificate is not valid now; if others may read the key.
        """
        now = dt.datetime.now(dt.UTC) if now is None else now
        if not os.path.isdir(folder):
            missing = "does not exist" if not os.path.lexists(folder) else "is a file"
            raise ModelError(f"The folder of keys '{folder.name}' {missing}. {_to_make(name)}")
        for part in ("ca.crt", f"{stem(name)}.key", f"{stem(name)}.crt"):
            if not os.path.lexists(folder / part):  # of names that are too long as well
                deeper = f"{folder.name}/keys"
                raise ModelError(
                    f"The folder of keys has no '{part}'. Name the folder '{deeper}', which has it."
                    if os.path.lexists(folder / "keys" / part)
                    else f"The folder of keys has no '{part}'. {_to_make(name)}"
                )
        identity = PartyIdentity(
            folder, name, _read(folder / f"{stem(name)}.crt").decode("latin-1")
        )
        identity._require_pair()
        identity._require_issued()
        identity._require_valid(now)
        identity._rehearse()
        return identity

    def _require_pair(self) -> None:
        """Refuse a key that others may read, or another one than the certificate's, or its name."""
        file = f"{stem(self.name)}.key"
        key = _private_key(self.folder / file)
        mode = os.stat(self.folder / file).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise ModelError(
                f"Others on this machine may read or write the key '{file}' (mode "
                f"{stat.S_IMODE(mode):04o}). Run: chmod 600 {file}. Whoever may have copied it can "
                "act in this name: if that is possible, make a new key."
            )
        cert = self._own()
        if cert.public_key() != key.public_key():
            raise ModelError(
                f"'{stem(self.name)}.crt' is not the certificate of the key '{file}'. Put the key "
                "back that the certificate was requested with, or request and sign a new one."
            )
        if _name(cert.subject) != self.name:
            raise ModelError(
                f"'{stem(self.name)}.crt' is the certificate of '{_name(cert.subject)}', and it "
                f"should be that of '{self.name}'. Put each party's files into its own folder, and "
                "compare agent = in owner.toml."
            )

    def _require_issued(self) -> None:
        cert, ca = self._own(), _certificate(self.folder / "ca.crt")
        try:
            cert.verify_directly_issued_by(ca)
        except (ValueError, TypeError, InvalidSignature):
            raise ModelError(
                f"'{stem(self.name)}.crt' was not signed by the authority of 'ca.crt' next to it. "
                "Get both from the same authority: the certificate, and its ca.crt."
            ) from None

    def _require_valid(self, now: dt.datetime) -> None:
        for file, cert in self._dated():
            clock = f"this machine's clock says {_day(now)}; if that is wrong, set the clock"
            if now > cert.not_valid_after_utc:
                raise ModelError(
                    f"The certificate '{file}' has expired on {_day(cert.not_valid_after_utc)}. "
                    f"Have it renewed at the authority, by: {_renewal(file)}. ({clock}.)"
                )
            if now < cert.not_valid_before_utc:
                raise ModelError(
                    f"The certificate '{file}' is not valid before "
                    f"{_day(cert.not_valid_before_utc)}: {clock}. Otherwise have it signed again."
                )

    def _rehearse(self) -> None:
        """Refuse what the other side would: a handshake in memory, with the party's own files."""
        server = self.name == COORDINATOR
        try:
            shown, sees = self.context(server=server), self.context(server=not server)
            shown.verify_mode = ssl.CERT_NONE  # who is looked at, is the other end
            into, back = ssl.MemoryBIO(), ssl.MemoryBIO()
            ends = [
                shown.wrap_bio(into, back, server_side=server),
                sees.wrap_bio(back, into, server_side=not server),
            ]
            for end in (*ends, *ends, *ends):
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        except OSError as error:
            raise ModelError(
                f"The certificate '{stem(self.name)}.crt' cannot be used for connections: "
                f"{fault_of(error).said}"
            ) from None

    def soon(self, now: dt.datetime | None = None) -> list[str]:
        """Return a sentence for each certificate that expires within 30 days.

        Parameters
        ----------
        now : datetime, optional
            Time with a time zone; this machine's time if omitted.
        """
        now = dt.datetime.now(dt.UTC) if now is None else now
        return [
            f"the certificate '{file}' expires on {_day(cert.not_valid_after_utc)}, in "
            f"{(cert.not_valid_after_utc - now).days} days; at the authority: {_renewal(file)}"
            for file, cert in self._dated()
            if cert.not_valid_after_utc - now <= dt.timedelta(days=_SOON)
        ]

    @property
    def until(self) -> str:
        """Return the day that the first of the party's certificates expires."""
        return _day(min(cert.not_valid_after_utc for _, cert in self._dated()))

    def _own(self) -> x509.Certificate:
        return _certificate(self.folder / f"{stem(self.name)}.crt")

    def _dated(self) -> list[tuple[str, x509.Certificate]]:
        files = (f"{stem(self.name)}.crt", "ca.crt")
        return [(file, _certificate(self.folder / file)) for file in files]

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Return a context of TLS 1.3 with certificates on both sides."""
        purpose = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # parties are known by their names, not by their machines
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(str(self.folder / "ca.crt"))
        if (self.folder / "ca.crl").exists():
            _list(self.folder / "ca.crl")
            context.load_verify_locations(str(self.folder / "ca.crl"))
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        stem_path = self.folder / stem(self.name)
        context.load_cert_chain(f"{stem_path}.crt", f"{stem_path}.key", password=_no_password)
        if server:
            # Nobody resumes a session. Tickets come behind the handshake, when one thread of an
            # owner reads and another writes: of a hundred connections, one then hears nothing.
            context.num_tickets = 0
        return context

    def watched(self, tell: Callable[[str], None]) -> ssl.SSLContext:
        """Return a server's context that tells, in a line, why a connection did not come about.

        Parameters
        ----------
        tell : callable
        """
        context = self.context(server=True)

        class Watched(ssl.SSLObject):
            """A connection that states a reason before it ends."""

            fault: ssl.SSLError | None = None

            def do_handshake(self) -> None:
                if self.fault is not None:
                    raise self.fault
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError as error:
                    self.fault = error
                    tell(f"a connection was turned away: {fault_of(error, server=True).said}")
                    if "CERT" not in str(error.reason):
                        raise  # whoever speaks no TLS reads no alert
                    # The alert is sent only if the handshake seems to go on: it ends once the
                    # other side has read it.
                    raise ssl.SSLWantReadError from None

        context.sslobject_class = Watched
        return context

    def signed(self, said: bytes) -> str:
        """Return a signature by the party's key, in hexadecimal digits."""
        key = _private_key(self.folder / f"{stem(self.name)}.key")
        return key.sign(said, ec.ECDSA(hashes.SHA256())).hex()

    def verify(self, name: str, certificate: str, said: bytes, signature: str) -> None:
        """Refuse what another party did not sign.

        Parameters
        ----------
        name : str
            Name of the other party.
        certificate : str
            Its own, as text.
        said : bytes
        signature : str

        Raises
        ------
        RefusedError
            With code "certificate" if it is not valid now or was revoked, else "stranger".
        """
        try:
            ca = x509.load_pem_x509_certificate((self.folder / "ca.crt").read_bytes())
            parsed = x509.load_pem_x509_certificate(certificate.encode())
            parsed.verify_directly_issued_by(ca)
            key = parsed.public_key()
            if _name(parsed.subject) != name or not isinstance(key, ec.EllipticCurvePublicKey):
                raise ValueError
            key.verify(bytes.fromhex(signature), said, ec.ECDSA(hashes.SHA256()))
        except (ValueError, TypeError, InvalidSignature):
            raise refused("stranger", f"'{name}'") from None
        now = dt.datetime.now(dt.UTC)
        valid = parsed.not_valid_before_utc <= now <= parsed.not_valid_after_utc
        if not valid or self._revoked(parsed):
            raise refused("certificate", f"that of '{name}'")

    def _revoked(self, certificate: x509.Certificate) -> bool:
        path, number = self.folder / "ca.crl", certificate.serial_number
        return path.exists() and any(entry.serial_number == number for entry in _list(path))


def peer_name(certificate: dict[str, Any] | None) -> str:
    """Return the name on a connection's certificate; empty without one."""
    parts = () if certificate is None else certificate.get("subject", ())
    return next((value for part in parts for key, value in part if key == "commonName"), "")


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(subject: x509.Name) -> str:
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise ModelError("A certificate names one party.")
    return str(names[0].value)


def _builder(name: str, issuer: str, key: Any, days: int, *, ca: bool) -> x509.CertificateBuilder:
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
        .not_valid_after(now + dt.timedelta(days=days))
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


def _require_name(name: str) -> None:
    """Refuse a party's name that no certificate has."""
    if not name or len(name) > 64 or not name.isprintable():
        raise ModelError(
            f"The name {name!r} cannot be that of a certificate. Write 1 to 64 printable "
            "characters, such as north: the name of the agent in the model."
        )


def _made(folder: Path) -> None:
    """Make a folder, unless it exists."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ModelError(
            f"'{folder.name}' is a file, and a folder is needed. Name another one; it is created."
        ) from None
    except OSError as error:
        raise ModelError(file_words(error, folder, "created")) from None


def _to_make(name: str) -> str:
    return (
        f'Make a key by: dpcvx keys request "{name}"; have it signed at the authority, by: dpcvx '
        "keys sign; and put the certificate and ca.crt next to the key."
    )


def _new(path: Path, content: bytes, *, secret: bool = False, replace: bool = False) -> Path:
    """Write a file that does not exist yet, or in the place of one, whole or not at all."""
    mode, draft = 0o600 if secret else 0o644, path
    if replace:
        draft = path.with_name(f"{path.name}.new")
        draft.unlink(missing_ok=True)
    try:
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        again = (
            ", or write --renew for another one of the same key" if path.suffix == ".crt" else ""
        )
        raise ModelError(
            f"There is a '{path.name}' already, and dpcvx does not replace it. Remove it first, "
            f"or name another folder{again}."
        ) from None
    with os.fdopen(number, "wb") as file:
        file.write(content)
    if replace:
        os.replace(draft, path)
    return path


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(file_words(error, path, "read")) from None


def _parsed(path: Path, parse: Callable[[bytes], Any], what: str) -> Any:
    """Return the contents of a file of one kind; refuse another with the kind that it is."""
    raw = _read(path)
    try:
        return parse(raw)
    except (ValueError, TypeError):
        label = re.search(rb"-----BEGIN ([A-Z0-9 ]+)-----", raw)
        holds = f"It holds a {label[1].decode().lower()}. " if label else ""
        raise ModelError(
            f"'{path.name}' is no {what}, or is damaged. {holds}Name the file that dpcvx keys "
            "wrote, as text that begins with -----BEGIN."
        ) from None


def _certificate(path: Path) -> x509.Certificate:
    return _parsed(path, x509.load_pem_x509_certificate, "certificate")


def _list(path: Path) -> x509.CertificateRevocationList:
    return _parsed(path, x509.load_pem_x509_crl, "list of revoked certificates")


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = _parsed(path, _unlocked, "key without a password")
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ModelError(
            f"'{path.name}' is no key that dpcvx keys request makes. Make a new one: owners "
            "verify signatures by elliptic curves alone."
        )
    return key


def _unlocked(raw: bytes) -> Any:
    return serialization.load_pem_private_key(raw, None)


def _authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    if folder.is_dir() and not os.path.lexists(folder / "ca.key"):
        raise ModelError(
            f"The folder '{folder.name}' is no authority: it has no 'ca.key'. Name the folder that "
            "dpcvx keys authority made, or folder/authority after dpcvx keys study."
        )
    if not folder.is_dir():
        raise ModelError(
            f"The folder '{folder.name}' of the authority does not exist. Name the one that dpcvx "
            "keys authority made, or folder/authority after dpcvx keys study."
        )
    return _private_key(folder / "ca.key"), _certificate(folder / "ca.crt")


def _no_password() -> str:
    """Answer in the place of OpenSSL's prompt, which would wait for a person."""
    return ""


def _day(when: dt.datetime) -> str:
    return when.strftime("%Y-%m-%d")


def _renewal(file: str) -> str:
    if file == "ca.crt":
        return "dpcvx keys authority FOLDER --renew"
    return f"dpcvx keys sign FOLDER {Path(file).stem}.csr --renew"
