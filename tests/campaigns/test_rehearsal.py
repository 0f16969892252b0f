"""The parts of the page that the campaign of the rehearsal runs."""

from tests.campaigns.rehearsal import parts


def test_the_page_has_the_parts_that_the_campaign_runs():
    blocks = {title: len(found) for title, found in parts().items()}
    assert blocks == {
        "Keys, model, policies": 3,
        "A study": 2,
        "A fault": 2,
        "A renewal": 1,
        "A revocation": 2,
        "An early end": 3,
        "A page for the auditor": 1,
    }
    assert parts()["An early end"][1].startswith("kill -9")
