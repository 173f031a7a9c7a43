"""The embedded leads' exact facts, and what they say of a statement."""

import pytest

from factkit.leads import facts
from factkit.leads.facts import Fact

pytestmark = pytest.mark.assets
DARWIN = "Charles Darwin"
YES, NO, OPEN = "supported", "contradicted", "inconclusive"
VERDICTS = [
    # what is known, by any of its names
    (DARWIN, "birth_year", "1809", YES),
    (DARWIN, "nationality", "British", YES),
    (DARWIN, "nationality", "Scottish", OPEN),  # British, too
    ("Moby-Dick", "creator", "Melville", YES),
    ("Moby-Dick", "creator", "Herman", OPEN),  # a part of the name
    ("Moby-Dick", "creator", "Herman Wouk", NO),
    # an occupation: in the first sentence; of a field the lead has a word of; else
    (DARWIN, "occupation", "geologist", YES),
    (DARWIN, "occupation", "chemist", OPEN),
    (DARWIN, "occupation", "painter", NO),
    # a thing is of many kinds, and nobody's
    ("Moby-Dick", "kind", "novel", YES),
    ("Moby-Dick", "kind", "film", OPEN),
    # whoever has a year of birth and none of death is alive
    ("Bob Dylan", "death_year", "2001", NO),
    # countries
    ("Edinburgh", "country", "Scotland", YES),
    ("Edinburgh", "country", "England", NO),
    ("Edinburgh", "capital_of", "United Kingdom", NO),
    ("Atlanta", "country", "Georgia", OPEN),  # a state, too
]


@pytest.fixture(scope="module")
def leads():
    return facts.load()


def test_a_verdict_is_one_of_three(leads):
    assert [v for v in VERDICTS if leads.verify(Fact(*v[:3])) != v[3]] == []
