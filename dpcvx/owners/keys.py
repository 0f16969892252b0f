"""Keys and certificates: an authority signs one certificate per agent, and the coordinator's.

A party's folder holds ``ca.crt``, its private key ``NAME.key``, which never leaves the folder, and
``NAME.crt``. ``ca.crl`` lists certificates that the authority has revoked; it may be missing.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import os
import re
import ssl
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .._words import plural
from ..errors import ModelError
from .faults import fault_of, file_words, read_whole
from .messages import refused

# The coordinator's name on its certificate; no agent may have this name.
COORDINATOR = "coordinator"
_DAYS = 365 * 5
# Days before the end of a certificate from which its expiry is announced.
_SOON = 30
# Elliptic curves of keys that TLS 1.3 uses for certificates.
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
# First line of a PEM block, as OpenSSL reads it: not indented, and with nothing behind it.
_BEGINS = re.compile(rb"(?m)(?:\A\xef\xbb\xbf|^)-----BEGIN ([A-Z0-9 ]+)-----[ \t]*\r?$")
_FINGERPRINT = re.compile(r"(?:sha-?256[:= ]?)?([0-9a-f]{64})")


def stem(name: str) -> str:
    """Return the stem of a party's file names: its name, with special characters replaced."""
    return re.sub(r"[^\w.-]", "_", name)


def make_authority(folder: Path, *, days: int = _DAYS, renew: bool = False) -> Path:
    """Make an authority: ``ca.key`` and ``ca.crt`` in a folder. Return the path of ``ca.crt``.

    Parameters
    ----------
    folder : Path
        Folder of the authority; created if it does not exist.
    days : int
        Days until the authority's certificate expires.
    renew : bool
        Whether to renew the certificate of an existing authority with its key. Certificates that
        it has signed stay valid.

    Raises
    ------
    ModelError
        If the folder has an authority already, or has none to renew.
    """
    _made(folder)
    key = _authority(folder)[0] if renew else ec.generate_private_key(ec.SECP256R1())
    builder = _builder("dpcvx authority", "dpcvx authority", key.public_key(), days, ca=True)
    if not renew:
        _new(folder / "ca.key", _private(key), secret=True)
    return _new(folder / "ca.crt", _pem(builder.sign(key, hashes.SHA256())), replace=renew)


def make_study(folder: Path, names: Sequence[str], *, days: int = _DAYS) -> list[Path]:
    """Make the authority, and the keys of the coordinator and of all owners, in one folder each.

    The caller has all keys until they are handed out, and could act in the name of every party.

    Parameters
    ----------
    folder : Path
        Folder for ``authority``, ``coordinator/keys`` and ``NAME/keys``; created if missing.
    names : sequence of str
        Names of the agents.
    days : int
        Days until the certificates expire.

    Returns
    -------
    list of Path
        Folders of keys: first the coordinator's, then the agents' in their order.

    Raises
    ------
    ModelError
        If there are no names, if two have equal folders, or if keys exist already.
    """
    parties = [COORDINATOR, *names]
    for name in names:
        _require_name(name)
    places = [folder / stem(name) / "keys" for name in parties]
    if not names or len(set(places)) != len(parties) or folder / "authority/keys" in places:
        raise ModelError(
            "dpcvx keys study needs the name of every agent once, and no agent named "
            "'coordinator' or 'authority'. Give agents different names. Each party has a folder "
            "of its own, in whose name '_' replaces all characters but letters, digits, '.', '-' "
            "and '_'."
        )
    root = make_authority(folder / "authority", days=days)
    for name, target in zip(parties, places, strict=True):
        sign_request(folder / "authority", make_request(target, name), days=days)
        _new(target / "ca.crt", root.read_bytes())
    return places


def revoke(folder: Path, certificate: Path) -> Path:
    """Revoke a certificate: add it to the authority's list ``ca.crl``.

    Parameters
    ----------
    folder : Path
        Folder of the authority.
    certificate : Path
        File of the certificate.

    Returns
    -------
    Path
        The list. It takes effect for every party that puts it next to its ``ca.crt``.

    Raises
    ------
    ModelError
        If the folder is no authority, or the file is no certificate.
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
    """Make a party's key and a certificate request ``NAME.csr``; return the request's path.

    Raises
    ------
    ModelError
        If the folder has a key of that name, or the name is invalid.
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
    """Sign a certificate request as the authority; write the certificate next to the request.

    Parameters
    ----------
    folder, request : Path
        Folder of the authority, and file of the request.
    days : int
        Days until the certificate expires.
    renew : bool
        Whether the certificate may replace an earlier one.

    Returns
    -------
    name : str
        Name on the certificate: verify that it belongs to the party that sent the request.
    path : Path
        File of the certificate.

    Raises
    ------
    ModelError
        If the folder is no authority, or the file is no request.
    """
    key, ca = _authority(folder)
    asked = _parsed(request, x509.load_pem_x509_csr, "request for a certificate")
    if not asked.is_signature_valid:
        raise ModelError(
            f"'{request.name}' is not a certificate request. Name the file that dpcvx keys "
            "request wrote."
        )
    name = _name(asked.subject)
    if not name:
        raise ModelError(
            f"'{request.name}' names no party, or several. Name the file that dpcvx keys request "
            "wrote: its subject has one common name (CN)."
        )
    builder = _builder(name, _name(ca.subject), asked.public_key(), days, ca=False)
    signed = _pem(builder.sign(key, hashes.SHA256()))
    return name, _new(request.with_name(f"{stem(name)}.crt"), signed, replace=renew)


def fingerprint_of(pem: bytes) -> str:
    """Return the fingerprint of a PEM certificate, as ``coordinator =`` in owner.toml has it.

    Raises
    ------
    ModelError
        If the bytes are no PEM certificate.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ModelError(
            "These bytes are no PEM certificate. Pass the bytes of a .crt file."
        ) from None
    return of_der(certificate.public_bytes(serialization.Encoding.DER))


def fingerprint_of_file(path: Path) -> str:
    """Return the fingerprint of the certificate in a file; see `fingerprint_of`.

    Raises
    ------
    ModelError
        If the file cannot be read, or holds no certificate.
    """
    return of_der(_certificate(path).public_bytes(serialization.Encoding.DER))


def fingerprint_in(text: str) -> str:
    """Return a fingerprint in the form of `fingerprint_of`; empty if the text is no fingerprint.

    Other tools write upper case, colons, blanks, and ``SHA256 Fingerprint=`` in front.
    """
    bare = re.sub(r"fingerprint|[\s:=]", "", text.strip().lower())
    match = _FINGERPRINT.fullmatch(bare)
    return f"sha256:{match[1]}" if match else ""


def of_der(der: bytes) -> str:
    """Return the fingerprint of a certificate in DER encoding: ``sha256:`` and its digest."""
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


@dataclass(frozen=True)
class PartyIdentity:
    """Identity of an owner or coordinator: name, certificate, and the folder of its key."""

    folder: Path
    name: str
    certificate: str = field(default="", repr=False)

    @staticmethod
    def of(folder: Path, name: str, now: dt.datetime | None = None) -> PartyIdentity:
        """Return a party's identity, after checking that its files can be used.

        Parameters
        ----------
        folder : Path
            Folder of the party's keys.
        name : str
            Name of the party.
        now : datetime, optional
            Time with a time zone; this machine's time if omitted.

        Raises
        ------
        ModelError
            If a file is missing, unreadable, of another kind, or does not match the other files; if
            a certificate is not valid at this time; if other users may read or write the key.
        """
        now = dt.datetime.now(dt.UTC) if now is None else now
        if not _exists(folder) or not os.path.isdir(folder):
            missing = "does not exist"
            if _exists(folder):
                missing = "is a file" if os.path.isfile(folder) else "is a link to no folder"
            raise ModelError(f"The folder of keys '{folder.name}' {missing}. {_to_make(name)}")
        for part in (f"{stem(name)}.key", f"{stem(name)}.crt", "ca.crt"):
            if not _exists(folder / part):
                fix = _to_complete(folder, part, name)
                raise ModelError(f"The folder of keys has no '{part}'. {fix}")
        identity = PartyIdentity(
            folder, name, _read(folder / f"{stem(name)}.crt").decode("latin-1")
        )
        identity._require_pair()
        identity._require_issued()
        identity._require_valid(now)
        identity._require_unrevoked(now)
        identity._rehearse()
        return identity

    def _require_pair(self) -> None:
        """Refuse a key that others may read, and a certificate of another key or another name."""
        file = f"{stem(self.name)}.key"
        key = _private_key(self.folder / file)
        mode = os.stat(self.folder / file).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise ModelError(
                f"Others on this machine may read or write the key '{file}' (mode "
                f"{stat.S_IMODE(mode):04o}). Run: chmod 600 {file}. Whoever may have copied it can "
                "act in this name: if that is possible, make a new key."
            )
        cert, written = self._own(), f"{stem(self.name)}.crt"
        party = _name(cert.subject)
        if party != self.name:
            whose = f"'{party}'" if party else "no single party (CN)"
            raise ModelError(
                f"'{written}' is the certificate of {whose}, but '{self.name}' is expected. Put "
                "each party's files into its own folder, and compare agent = in owner.toml."
            )
        if cert.public_key() != key.public_key():
            raise ModelError(
                f"'{written}' is not the certificate of the key '{file}'. Restore the key with "
                "which the certificate was requested, or request and sign a new certificate."
            )

    def _require_issued(self) -> None:
        cert, ca = self._own(), _certificate(self.folder / "ca.crt")
        several = x509.load_pem_x509_certificates
        authorities = _parsed(self.folder / "ca.crt", several, "certificate")
        if len(authorities) != 1:
            raise ModelError(
                f"'ca.crt' holds {len(authorities)} certificates, and each of them could vouch for "
                "any name. Keep the certificate of the study's authority alone in it."
            )
        try:
            cert.verify_directly_issued_by(ca)
        except (ValueError, TypeError, InvalidSignature):
            raise ModelError(
                f"'{stem(self.name)}.crt' was not signed by the authority of 'ca.crt' beside it. "
                "Get the certificate and ca.crt from the same authority."
            ) from None

    def _require_unrevoked(self, now: dt.datetime) -> None:
        """Refuse a revoked certificate, and a list of revoked ones that cannot be used."""
        if not _exists(self.folder / "ca.crl"):
            return
        revoked, ca = _list(self.folder / "ca.crl"), _certificate(self.folder / "ca.crt")
        if revoked.issuer != ca.subject or not revoked.is_signature_valid(_elliptic(ca)):
            raise ModelError(
                "The list 'ca.crl' was not signed by the authority of 'ca.crt' beside it. Get both "
                "from the same authority."
            )
        since, until = revoked.last_update_utc, revoked.next_update_utc
        if now < since:
            raise ModelError(
                f"The list 'ca.crl' of revoked certificates is not valid before {_day(since)}: "
                f"{_clock(now)}. Otherwise have the certificate revoked again."
            )
        if until is not None and now > until:
            raise ModelError(
                f"The list 'ca.crl' of revoked certificates has expired on {_day(until)}. Get the "
                f"newest one from the authority. ({_clock(now)}.)"
            )
        if self._revoked(self._own()):
            raise ModelError(
                f"The certificate '{stem(self.name)}.crt' was revoked by the authority: 'ca.crl' "
                f'lists it. Make a key in a new folder by: dpcvx keys request "{self.name}" --keys '
                "FOLDER; and have it signed."
            )

    def _require_valid(self, now: dt.datetime) -> None:
        clock = _clock(now)
        for file, cert in self._dated():
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
        """Refuse files that a TLS handshake would refuse; rehearse one in memory with itself."""
        server = self.name == COORDINATOR
        try:
            shown, sees = self.context(server=server), self.context(server=not server)
            shown.verify_mode = ssl.CERT_NONE  # only the other end verifies a certificate
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
            f"the certificate '{file}' expires on {_day(cert.not_valid_after_utc)}, "
            f"{_within((cert.not_valid_after_utc - now).days)}; at the authority: {_renewal(file)}"
            for file, cert in self._dated()
            if cert.not_valid_after_utc - now <= dt.timedelta(days=_SOON)
        ]

    @property
    def until(self) -> str:
        """Date, as text, when the first of the party's certificates expires."""
        return _day(min(cert.not_valid_after_utc for _, cert in self._dated()))

    def _own(self) -> x509.Certificate:
        return _certificate(self.folder / f"{stem(self.name)}.crt")

    def _dated(self) -> list[tuple[str, x509.Certificate]]:
        files = (f"{stem(self.name)}.crt", "ca.crt")
        return [(file, _certificate(self.folder / file)) for file in files]

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Return a TLS 1.3 context that presents a certificate and requires the other side's."""
        purpose = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # certificates name parties and not hosts
        context.verify_mode = ssl.CERT_REQUIRED
        with _read_by_openssl("ca.crt"):
            context.load_verify_locations(str(self.folder / "ca.crt"))
        if _exists(self.folder / "ca.crl"):
            _list(self.folder / "ca.crl")
            with _read_by_openssl("ca.crl"):
                context.load_verify_locations(str(self.folder / "ca.crl"))
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        stem_path = self.folder / stem(self.name)
        with _read_by_openssl(f"{stem_path.name}.crt", f"{stem_path.name}.key"):
            context.load_cert_chain(f"{stem_path}.crt", f"{stem_path}.key", password=_no_password)
        if server:
            # No session is ever resumed. Tickets would follow the handshake while one thread of an
            # owner reads and another writes: about one of a hundred connections then receives
            # nothing.
            context.num_tickets = 0
        return context

    def watched(self, tell: Callable[[str], None]) -> ssl.SSLContext:
        """Return a server's TLS context that reports why a handshake failed.

        Parameters
        ----------
        tell : callable
            Called with a line of text for each failed handshake.
        """
        context = self.context(server=True)

        class Watched(ssl.SSLObject):
            """TLS connection that reports a failed handshake, and sends an alert before it ends."""

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
                        raise  # a program that does not speak TLS reads no alert
                    # The alert is sent only if the handshake seems to continue; the next call ends
                    # it, after the other side has read the alert.
                    raise ssl.SSLWantReadError from None

        context.sslobject_class = Watched
        return context

    def signed(self, said: bytes) -> str:
        """Return the signature of a message by the party's key, in hexadecimal digits."""
        key = _private_key(self.folder / f"{stem(self.name)}.key")
        return key.sign(said, ec.ECDSA(hashes.SHA256())).hex()

    def verify(self, name: str, certificate: str, said: bytes, signature: str) -> None:
        """Verify another party's certificate, and its signature of a message.

        Parameters
        ----------
        name : str
            Name of the other party.
        certificate : str
            Certificate of the other party, as PEM text.
        said : bytes
            Message that was signed.
        signature : str
            Signature in hexadecimal digits.

        Raises
        ------
        RefusedError
            With code "certificate" if the certificate has expired, is not yet valid or was revoked;
            with code "stranger" if the authority, the name or the signature does not match.
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
        return _exists(path) and any(entry.serial_number == number for entry in _list(path))


def peer_name(certificate: dict[str, Any] | None) -> str:
    """Return the name on a connection's certificate; empty without one."""
    parts = () if certificate is None else certificate.get("subject", ())
    return next((value for part in parts for key, value in part if key == "commonName"), "")


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(subject: x509.Name) -> str:
    """Return the party that a certificate names; empty if it names none, or several."""
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


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
    """Refuse a party's name that a certificate cannot have."""
    if not name or len(name) > 64 or not name.isprintable():
        raise ModelError(
            f"The name {name!r} cannot be used in a certificate. Write the name of the agent in "
            "the model, such as north: 1 to 64 printable characters."
        )


def _made(folder: Path) -> None:
    """Make a folder, unless it exists."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ModelError(
            f"'{folder.name}' is a file, but a folder is needed. Name a folder, which the command "
            "creates."
        ) from None
    except OSError as error:
        raise ModelError(file_words(error, folder, "created")) from None


def _to_make(name: str) -> str:
    return (
        f'Make a key by: dpcvx keys request "{name}"; have it signed at the authority, by: dpcvx '
        "keys sign; and put the certificate and ca.crt next to the key."
    )


def _to_complete(folder: Path, part: str, name: str) -> str:
    """Return the fix for a folder of keys in which a file of the party `name` is missing."""
    key, deeper = f"{stem(name)}.key", f"{folder.name}/keys"
    others = sorted(path.name for path in folder.glob("*.key"))
    if _exists(folder / "keys" / part):
        return f"Name the folder '{deeper}', which has it."
    if part == key:
        other = f"It has '{others[0]}': compare agent = in owner.toml. Or " if others else ""
        made = _to_make(name)
        return f"{other}{made[0].lower()}{made[1:]}" if other else made
    if part == "ca.crt":
        return "Get it from the authority, and put it next to the key."
    return (
        f"Have '{stem(name)}.csr' signed at the authority, by: dpcvx keys sign FOLDER "
        f"{stem(name)}.csr; and put the certificate next to the key."
    )


def _exists(path: Path) -> bool:
    """Return whether a path exists, or is a link that leads nowhere; refuse an unreadable one."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise ModelError(file_words(error, path, "read")) from None
    return True


def _new(path: Path, content: bytes, *, secret: bool = False, replace: bool = False) -> Path:
    """Write a new file (`secret`: for its user alone), or replace one; return its path."""
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
        return read_whole(path)
    except OSError as error:
        raise ModelError(file_words(error, path, "read")) from None


def _parsed(path: Path, parse: Callable[[bytes], Any], what: str) -> Any:
    """Parse a file; if it is no `what`, refuse it with the kind of content that it names."""
    raw = _read(path)
    parsed: Any = None
    with suppress(ValueError, TypeError):
        parsed = parse(raw)
    if parsed is None or not _BEGINS.search(raw):
        raise ModelError(
            f"'{path.name}' is no {what}, or is damaged. {_content(raw)}Name the file that dpcvx "
            "keys wrote, as text that begins with -----BEGIN."
        )
    return parsed


def _content(raw: bytes) -> str:
    """Return a sentence on the kind of content of a file that is not the expected one."""
    label = _BEGINS.search(raw)
    if not raw.strip():
        return "It is empty. "
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "It is text in UTF-16: save it as UTF-8. "
    if raw.startswith(b"0") and b"-----" not in raw:  # a sequence of ASN.1
        return "It is binary (DER or PKCS #12): have openssl convert it to PEM. "
    if b"ENCRYPTED" in raw:
        return "It has a password: remove that by openssl pkey -in FILE -out NEW. "
    if label is None:
        return "Its lines are indented or joined. " if b"-----BEGIN" in raw else ""
    kind = label[1].decode().lower()
    return f"It holds {'an' if kind[0] in 'aeiou' else 'a'} {kind}, or a part of one. "


def _certificate(path: Path) -> x509.Certificate:
    return _parsed(path, x509.load_pem_x509_certificate, "certificate")


def _list(path: Path) -> x509.CertificateRevocationList:
    return _parsed(path, x509.load_pem_x509_crl, "list of revoked certificates")


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = _parsed(path, _unlocked, "key without a password")
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name not in _CURVES:
        raise ModelError(
            f"'{path.name}' is no key that dpcvx keys request makes. Make a new one: owners "
            "verify signatures by the elliptic curves of NIST alone."
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
    """Return an empty password, since OpenSSL would otherwise prompt a person for one."""
    return ""


@contextmanager
def _read_by_openssl(*files: str) -> Iterator[None]:
    """Name the files that OpenSSL cannot read, though `_parsed` can."""
    try:
        yield
    except ssl.SSLError as error:
        named = " or ".join(f"'{file}'" for file in files)
        why = (error.reason or "no PEM").replace("_", " ").lower()
        raise ModelError(
            f"OpenSSL cannot read {named} ({why}). Put the file there as dpcvx keys wrote it."
        ) from None


def _elliptic(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    """Return the authority's key; refuse one that dpcvx keys does not make."""
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ModelError(
            "'ca.crt' has another kind of key than the authority of a study. Make an authority by: "
            "dpcvx keys authority FOLDER."
        )
    return key


def _clock(now: dt.datetime) -> str:
    return f"this machine's clock says {_day(now)}; if that is wrong, set the clock"


def _within(days: int) -> str:
    return f"in {plural(days, 'day')}" if days else "within a day"


def _day(when: dt.datetime) -> str:
    return when.strftime("%Y-%m-%d")


def _renewal(file: str) -> str:
    if file == "ca.crt":
        return "dpcvx keys authority FOLDER --renew"
    return f"dpcvx keys sign FOLDER {Path(file).stem}.csr --renew"
