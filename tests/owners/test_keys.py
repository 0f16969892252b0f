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


FAULTS = {
    swapped: "'north.crt' is not the certificate of the key 'north.key'",
    renamed: "'north.crt' is the certificate of 'zone 1', but 'north' is expected",
    foreign: "was not signed by the authority of 'ca.crt'",
    readable: r"mode 0644\). Run: chmod 600 north.key",
    a_folder: "'north.key' cannot be read: is a directory. It is a folder",
    dangling: "'ca.crt' cannot be read: no such file",
    empty: "'north.crt' is no certificate, or is damaged",
    a_key_for_a_certificate: "'north.crt' is no certificate, or is damaged. It holds a private key",
    locked: "'north.key' is no key without a password",
    own_authority: "was not signed by the authority",
    revoked: "was revoked by the authority",
    no_list: "'ca.crl' is no list of revoked certificates",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.__name__)
def test_keys_that_cannot_be_used_are_named(study, fault):
    PartyIdentity.of(study / "north/keys", "north")
    fault(study)
    with pytest.raises(dp.ModelError, match=FAULTS[fault]) as caught:
        PartyIdentity.of(study / "north/keys", "north")
    assert str(study) not in str(caught.value)


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
