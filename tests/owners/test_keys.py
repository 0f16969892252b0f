"""Keys and certificates: what is opened and compared before anybody dials."""

import datetime as dt
import os
import shutil

import pytest

import dpcvx as dp
from dpcvx.owners import keys
from dpcvx.owners.cli import main
from dpcvx.owners.keys import PartyIdentity, fingerprint_in, make_study, revoke, sign_request

NOW = dt.datetime.now(dt.UTC)


@pytest.fixture
def study(tmp_path):
    make_study(tmp_path, ["north", "zone 1"], days=100)
    return tmp_path


def test_one_command_makes_the_keys_of_a_study(tmp_path, capsys):
    assert main(["keys", "study", str(tmp_path / "s"), "north", "zone 1", "--days", "40"]) == 0
    said = capsys.readouterr().out
    for name in ("coordinator", "north", "zone 1"):
        identity = PartyIdentity.of(tmp_path / "s" / keys.stem(name) / "keys", name)
        assert identity.until in said or identity.until > f"{NOW:%Y-%m-%d}"
    pinned = keys.fingerprint_of((tmp_path / "s/coordinator/keys/coordinator.crt").read_bytes())
    assert f'coordinator = "{pinned}"' in said
    assert main(["keys", "study", str(tmp_path / "s"), "north"]) == 1  # nothing is replaced
    for names in (["a b", "a_b"], ["coordinator"], ["north", "north"]):
        with pytest.raises(dp.ModelError, match="every agent once"):
            make_study(tmp_path / "t", names)


def swapped(place):
    shutil.copy(place / "zone_1/keys/zone_1.key", place / "north/keys/north.key")


def renamed(place):
    for kind in ("key", "crt"):
        shutil.copy(place / f"zone_1/keys/zone_1.{kind}", place / f"north/keys/north.{kind}")


def foreign(place):
    keys.make_authority(place / "other")
    shutil.copy(place / "other/ca.crt", place / "north/keys/ca.crt")


def readable(place):
    os.chmod(place / "north/keys/north.key", 0o644)


def a_folder(place):
    (place / "north/keys/north.key").unlink()
    (place / "north/keys/north.key").mkdir()


def dangling(place):
    (place / "north/keys/ca.crt").unlink()
    (place / "north/keys/ca.crt").symlink_to("nowhere")


def empty(place):
    (place / "north/keys/north.crt").write_bytes(b"")


def a_key_for_a_certificate(place):
    shutil.copy(place / "north/keys/north.key", place / "north/keys/north.crt")


def locked(place):
    path = place / "north/keys/north.key"
    key = keys.serialization.load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(
        key.private_bytes(
            keys.serialization.Encoding.PEM,
            keys.serialization.PrivateFormat.PKCS8,
            keys.serialization.BestAvailableEncryption(b"secret"),
        )
    )


def own_authority(place):
    # A certificate that signed itself in the place of both.
    shutil.copy(place / "north/keys/north.crt", place / "north/keys/ca.crt")


def revoked(place):
    shutil.copy(revoke(place / "authority", place / "north/keys/north.crt"), place / "north/keys")


def no_list(place):
    (place / "north/keys/ca.crl").write_text("revoked: none\n")


def text_of(path, change):
    def fault(place):
        file = place / "north/keys" / path
        file.write_bytes(change(file.read_bytes()))

    fault.__name__ = f"text of {path}"
    return fault


def a_pipe(place):
    (place / "north/keys/north.crt").unlink()
    os.mkfifo(place / "north/keys/north.crt")


def swapped_with_its_certificate(place):
    key, crt = place / "north/keys/north.key", place / "north/keys/north.crt"
    shutil.copy(key, place / "kept")
    shutil.copy(crt, key)
    shutil.copy(place / "kept", crt)


def another_agent(place):
    (place / "north/keys/north.key").rename(place / "north/keys/south.key")


def not_signed_yet(place):
    (place / "north/keys/north.crt").unlink()


def no_authority(place):
    (place / "north/keys/ca.crt").unlink()


def a_circle_of_links(place):
    shutil.rmtree(place / "north/keys")
    (place / "north/keys").symlink_to("keys")


def two_authorities(place):
    keys.make_authority(place / "other")
    both = (place / "authority/ca.crt").read_bytes() + (place / "other/ca.crt").read_bytes()
    (place / "north/keys/ca.crt").write_bytes(both)


def another_curve(place):
    path = place / "north/keys/north.key"
    key = keys.ec.generate_private_key(keys.ec.SECP256K1())
    path.write_bytes(keys._private(key))


def list_of_another_authority(place):
    make_study(place / "other", ["north"])
    path = revoke(place / "other/authority", place / "other/north/keys/north.crt")
    shutil.copy(path, place / "north/keys")


def old_list(place):
    key, ca = keys._authority(place / "authority")
    builder = keys.x509.CertificateRevocationListBuilder().issuer_name(ca.subject)
    builder = builder.last_update(NOW - dt.timedelta(days=9))
    builder = builder.next_update(NOW - dt.timedelta(days=2))
    signed = builder.sign(key, keys.hashes.SHA256())
    pem = signed.public_bytes(keys.serialization.Encoding.PEM)
    (place / "north/keys/ca.crl").write_bytes(pem)


def list_of_tomorrow(place):
    key, ca = keys._authority(place / "authority")
    builder = keys.x509.CertificateRevocationListBuilder().issuer_name(ca.subject)
    builder = builder.last_update(NOW + dt.timedelta(days=1))
    builder = builder.next_update(NOW + dt.timedelta(days=9))
    signed = builder.sign(key, keys.hashes.SHA256())
    pem = signed.public_bytes(keys.serialization.Encoding.PEM)
    (place / "north/keys/ca.crl").write_bytes(pem)


def list_that_links_to_nothing(place):
    (place / "north/keys/ca.crl").symlink_to("nowhere")


def no_party(place):
    key, ca = keys._authority(place / "authority")
    key_of_north = keys._private_key(place / "north/keys/north.key").public_key()
    builder = keys._builder("north", keys._name(ca.subject), key_of_north, 9, ca=False)
    parts = [keys.x509.NameAttribute(keys.NameOID.COMMON_NAME, name) for name in ("north", "b")]
    builder._subject_name = keys.x509.Name(parts)
    (place / "north/keys/north.crt").write_bytes(keys._pem(builder.sign(key, keys.hashes.SHA256())))


FAULTS = {
    a_pipe: "'north.crt' cannot be read: it is a pipe, a socket or a device. Put a regular file",
    swapped_with_its_certificate: "'north.key' is no key .* It holds a certificate",
    another_agent: "no 'north.key'. It has 'south.key': compare agent =",
    not_signed_yet: "no 'north.crt'. Have 'north.csr' signed at the authority, by: dpcvx keys sign",
    no_authority: "no 'ca.crt'. Get it from the authority",
    a_circle_of_links: "The folder of keys 'keys' is a link to no folder",
    two_authorities: "'ca.crt' holds 2 certificates.* Keep the certificate of the study",
    another_curve: "'north.key' is no key that dpcvx keys request makes",
    list_of_another_authority: "'ca.crl' was not signed by the authority of 'ca.crt'",
    old_list: "'ca.crl' of revoked certificates has expired on",
    list_of_tomorrow: "'ca.crl' of revoked certificates is not valid before .* set the clock",
    list_that_links_to_nothing: "'ca.crl' cannot be read: no such file",
    no_party: "'north.crt' is the certificate of no single party",
    text_of("north.crt", lambda raw: raw.replace(b"\n", b"\n ")): "OpenSSL cannot read 'north.crt'",
    text_of("north.key", lambda raw: raw.replace(b"\n", b"")): "lines are indented or joined",
    text_of("ca.crt", lambda raw: b" " + raw.replace(b"\n", b"\n ")): "lines are indented",
    text_of("north.crt", lambda raw: raw[:200]): "It holds a certificate, or a part of one",
    text_of("north.key", lambda raw: raw.decode().encode("utf-16")): "It is text in UTF-16",
    text_of("ca.crt", lambda raw: b"0\x82" + raw[70:100]): "It is binary .*have openssl convert",
    swapped: "'north.crt' is not the certificate of the key 'north.key'",
    renamed: "'north.crt' is the certificate of 'zone 1', but 'north' is expected",
    foreign: "was not signed by the authority of 'ca.crt'",
    readable: r"mode 0644\). Run: chmod 600 north.key",
    a_folder: "'north.key' cannot be read: is a directory. It is a folder",
    dangling: "'ca.crt' cannot be read: no such file",
    empty: "'north.crt' is no certificate, or is damaged. It is empty",
    a_key_for_a_certificate: "'north.crt' is no certificate, or is damaged. It holds a private key",
    locked: "'north.key' is no key without a password.* It has a password: remove that by openssl",
    own_authority: "was not signed by the authority",
    revoked: "'north.crt' was revoked by the authority: 'ca.crl' lists it. Make a key in a new",
    no_list: "'ca.crl' is no list of revoked certificates",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.__name__)
def test_keys_that_cannot_be_used_are_named(study, fault):
    PartyIdentity.of(study / "north/keys", "north")
    fault(study)
    with pytest.raises(dp.ModelError, match=FAULTS[fault]) as caught:
        PartyIdentity.of(study / "north/keys", "north")
    assert str(study) not in str(caught.value)


def test_text_around_keys_and_other_line_ends_are_read(study):
    for change in (
        lambda raw: raw.replace(b"\n", b"\r\n"),
        lambda raw: b"\xef\xbb\xbf" + raw,
        lambda raw: b"Bag Attributes\n  localKeyID: 1\n" + raw.rstrip(),
    ):
        for file in ("north.key", "north.crt", "ca.crt"):
            path = study / "north/keys" / file
            written = path.read_bytes()
            path.write_bytes(change(written))
            PartyIdentity.of(study / "north/keys", "north")
            path.write_bytes(written)


def test_a_request_of_no_party_is_not_signed(study):
    key = keys.ec.generate_private_key(keys.ec.SECP256R1())
    nobody = keys.x509.CertificateSigningRequestBuilder().subject_name(keys.x509.Name([]))
    request = nobody.sign(key, keys.hashes.SHA256())
    path = study / "nobody.csr"
    path.write_bytes(request.public_bytes(keys.serialization.Encoding.PEM))
    with pytest.raises(dp.ModelError, match="'nobody.csr' names no party, or several"):
        sign_request(study / "authority", path)


def test_dates_are_compared_with_the_clock(study):
    place = study / "north/keys"
    later, before = NOW + dt.timedelta(days=101), NOW - dt.timedelta(days=1)
    with pytest.raises(dp.ModelError, match=r"'north.crt' has expired on .*dpcvx keys sign"):
        PartyIdentity.of(place, "north", later)
    with pytest.raises(dp.ModelError, match=r"not valid before .*this machine's clock says"):
        PartyIdentity.of(place, "north", before)
    identity = PartyIdentity.of(place, "north")
    assert identity.soon(NOW + dt.timedelta(days=60)) == []
    own, authority = identity.soon(NOW + dt.timedelta(days=75.5))
    assert own.startswith("the certificate 'north.crt' expires on ")
    assert "in 24 days; at the authority: dpcvx keys sign FOLDER north.csr --renew" in own
    assert "dpcvx keys authority FOLDER --renew" in authority
    assert ", within a day; " in identity.soon(NOW + dt.timedelta(days=99.5))[0]


def test_certificates_are_renewed_and_nothing_else_is_replaced(study):
    place, before = study / "north/keys", (study / "north/keys/north.crt").read_bytes()
    with pytest.raises(dp.ModelError, match="does not replace it.* --renew"):
        sign_request(study / "authority", place / "north.csr")
    sign_request(study / "authority", place / "north.csr", days=900, renew=True)
    keys.make_authority(study / "authority", days=901, renew=True)
    old = PartyIdentity.of(study / "zone_1/keys", "zone 1")  # of the authority as it was
    shutil.copy(study / "authority/ca.crt", place / "ca.crt")
    new = PartyIdentity.of(place, "north")
    assert (place / "north.crt").read_bytes() != before and new.until > old.until
    said = b"a statement"
    old.verify("north", new.certificate, said, new.signed(said))


def test_revoked_certificates_are_no_signatures_either(study):
    one, two = (
        PartyIdentity.of(study / f / "keys", n)
        for f, n in (("north", "north"), ("zone_1", "zone 1"))
    )
    one.verify("zone 1", two.certificate, b"said", two.signed(b"said"))
    revoke(study / "authority", study / "coordinator/keys/coordinator.crt")
    path = revoke(study / "authority", study / "zone_1/keys/zone_1.crt")
    shutil.copy(path, study / "north/keys/ca.crl")
    with pytest.raises(dp.RefusedError, match="revoked"):
        one.verify("zone 1", two.certificate, b"said", two.signed(b"said"))
    PartyIdentity.of(study / "north/keys", "north")
    shutil.copy(path, study / "coordinator/keys/ca.crl")
    with pytest.raises(dp.ModelError, match="was revoked"):
        PartyIdentity.of(study / "coordinator/keys", "coordinator")


def test_fingerprints_are_read_in_any_usual_spelling():
    digits = "0123456789abcdef" * 4
    pairs = ":".join(digits[k : k + 2] for k in range(0, 64, 2)).upper()
    spellings = (
        digits, f"sha256:{digits}", f"SHA256:{digits.upper()}", f" {pairs} ",
        f"sha256 Fingerprint={pairs}", f"SHA-256 {pairs}", f"sha256={digits}",
    )  # fmt: skip
    for text in spellings:
        assert fingerprint_in(text) == f"sha256:{digits}"
    for text in ("", "sha256:", digits[1:], digits + "0", f"sha1:{digits[:40]}", "g" * 64):
        assert fingerprint_in(text) == ""
