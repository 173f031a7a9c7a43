"""Short questions with short answers, by rules, from Wikipedia leads and elements.

Most rules read a lead's one-line description ("German chemist (1868–1934)") and require
that the lead's text agrees. What a rule can't read, or what has several right answers,
is dropped and counted.
"""

import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from factkit.data.corpus import Document
from factkit.data.examples import Example

# a rule yields (relation, question, answers), or (DROP, reason, [])
Drafts = Iterator[tuple[str, str, list[str]]]
DROP = "drop"
PEOPLE = ("People", "Uncategorized")  # topics with persons


def table(text: str) -> dict[str, list[str]]:
    """Key → values, from "key=value|value; key=value"."""
    rows = (row.strip().split("=") for row in re.sub(r"\|\n *", "|", text).split(";"))
    return {key: values.split("|") for key, values in rows}


COUNTRY_ALIASES = table("""
    United States=USA|US|U.S.|United States of America|America;
    United Kingdom=UK|U.K.|Great Britain|Britain; China=People's Republic of China|PRC;
    Democratic Republic of the Congo=DR Congo|DRC|Congo-Kinshasa; Myanmar=Burma;
    Republic of the Congo=Congo-Brazzaville; Ireland=Republic of Ireland;
    Czech Republic=Czechia; Ivory Coast=Côte d'Ivoire; Russia=Russian Federation;
    Turkey=Türkiye; Netherlands=Holland; South Korea=Republic of Korea; Iran=Persia;
    United Arab Emirates=UAE""")
SHORT_NAMES = {"US": "United States", "U.S.": "United States", "UK": "United Kingdom"}
SHORT_NAMES["DR Congo"] = "Democratic Republic of the Congo"
UK_NATIONS = ("England", "Scotland", "Wales", "Northern Ireland")
CITY_ALIASES = table("""
    Kyiv=Kiev; Bengaluru=Bangalore; Kolkata=Calcutta; Mumbai=Bombay; Chennai=Madras;
    Astana=Nur-Sultan; Guangzhou=Canton; Washington, D.C.=Washington DC|Washington;
    N'Djamena=Ndjamena; Sanaa=Sana'a; Mexico City=Ciudad de México""")
# the demonym is the answer, its country an alias
DEMONYMS = table("""
    American=United States; French=France; English=England; German=Germany;
    Italian=Italy; British=United Kingdom; Russian=Russia; Indian=India; Irish=Ireland;
    Austrian=Austria; Japanese=Japan; Dutch=Netherlands; Spanish=Spain; Chinese=China;
    Scottish=Scotland; Welsh=Wales; Swiss=Switzerland; Swedish=Sweden; Canadian=Canada;
    Danish=Denmark; Polish=Poland; Argentine=Argentina; Norwegian=Norway;
    Portuguese=Portugal; Mexican=Mexico; Brazilian=Brazil; Hungarian=Hungary;
    South African=South Africa; Australian=Australia; Nigerian=Nigeria; Belgian=Belgium;
    Greek=Greece; Cuban=Cuba; Turkish=Turkey; Colombian=Colombia; Jamaican=Jamaica;
    New Zealand=New Zealand; Egyptian=Egypt; Romanian=Romania; Czech=Czech Republic;
    Albanian=Albania; Iranian=Iran; Taiwanese=Taiwan; Algerian=Algeria; Iraqi=Iraq;
    Vietnamese=Vietnam; Lebanese=Lebanon; Pakistani=Pakistan; Haitian=Haiti;
    Chilean=Chile; Ghanaian=Ghana; Filipino=Philippines; Senegalese=Senegal;
    Ukrainian=Ukraine; Icelandic=Iceland; Kenyan=Kenya; Peruvian=Peru; Syrian=Syria;
    Venezuelan=Venezuela; Latvian=Latvia; Serbian=Serbia; Ethiopian=Ethiopia;
    Burmese=Myanmar; Georgian=Georgia; Bangladeshi=Bangladesh; Croatian=Croatia;
    Israeli=Israel; Finnish=Finland; Bulgarian=Bulgaria""")
BRITISH = {"British", "English", "Scottish", "Welsh"}
# never an answer, but a second nationality beside a demonym
OTHER_PEOPLES = "Soviet|Hong Kong|Prussian|Armenian|Lithuanian|Persian"
_DEMONYM = re.compile(rf"\b(?:{OTHER_PEOPLES}|{'|'.join(DEMONYMS)})\b")
CONTINENTS = ["Africa", "Asia", "Europe", "North America", "South America"]
CONTINENTS += ["Oceania", "Antarctica"]

# (kinds of work, what its creator did, what happened to it in its year)
WORKS = [
    ("film", "directed", "released"),
    ("novel|novella|book", "wrote", "first published"),
    ("treatise|play|comedy|tragedy|poem|essay", "wrote", ""),
    ("painting|fresco", "painted", ""),
    ("sculpture", "made", ""),
    ("opera|ballet", "composed", "first performed"),
    ("symphony|oratorio|musical|composition", "composed", ""),
    ("album|single", "recorded", "released"),
    ("television series|manga series|comic strip", "created", ""),
]
_KINDS = "|".join(kinds for kinds, _, _ in WORKS)
_WORK = re.compile(
    rf"(?i)^(?:(\d{{4}}) )?(?:(?!based)[^,])*?\b({_KINDS})(?: in verse"
    r"| in seven volumes| on \w+| directed)? by (.+)$"
)
PARTICLES = {"de", "da", "van", "von"}
_NAME = re.compile(r"(?:(?:de|da|van|von) |[^\W\d_a-z][\w.'-]*(?: |\b))+")
KNOWN_BY_FIRST_WORD = {"Cao Xueqin", "Wu Cheng'en", "Dante Alighieri"}

_LIFE = re.compile(r"^([^()]*) \((?:(\d{4}) ?[–-] ?(\d{4})|[Bb]orn:? (\d{4}))\)$")
_NOT_LIFE = re.compile(  # years of a reign or of a group
    r"^(?:\w+ )?(?:King|President|Duke) of (?!.* from )"
    r"|\b(?:band|[Ee]mpire|conflict|depression)\b"
)
_CAPITAL = re.compile(
    r"^(?:Federal )?[Cc]apital(?: municipality| district)?"
    r"(?:,? (?:and|chief port|the|largest|most populous|city)\b,?)* (?:of|in) (.+)$"
)
_NATURE = "river|lake|mountains?|volcano|stratovolcano|island|desert|plateau|waterfall"
_NATURE += "|peninsula|canyon|mountain range"
_BUILT = "tower|museum|temple|university|skyscraper|dam|fort|bridge|church|statue"
_BUILT += "|mausoleum|palace|citadel|national park|theme park|monument"
# (relation, what the description calls such a place); the first that fits is taken
PLACES = [
    ("city_country", r"[^,]*\b(?:city|metropolis|municipality|prefecture|commune)\b"),
    ("city_country", r"(?:state )?capital\b"),
    ("place_country", rf"[^,]*?\b(?:{_NATURE})\b"),
    ("landmark_country", rf"[^,]*?\b(?:{_BUILT}|archaeological site)\b"),
    ("region_country", r"(?:state|province|autonomous community|region|republic)\b"),
]
_CONTINENT = re.compile(
    rf"(?i)^(?:(?:island |landlocked )?country|microstate|(?:major )?(?:{_NATURE}))"
    r" (?:primarily )?in ([^,]*)$"
)
_COUNTRY = re.compile(r"(?i)(?:(?:landlocked|island|archipelagic) )?country|microstate")
_COMPASS = re.compile(
    r"(?i)^(?:(?:north|south|east|west|central)[\w–-]*|coastal) (?!Australia)"
)
_NOT_ONE = re.compile(r"\b(?:between|border|near|off|modern|linking)\b|\(|[Ff]ormer")
_PLURAL = r"(?:Mountains|Islands|Alps|Ghats|Andes|Himalayas)$"
_WITH_THE = re.compile(r"^Republic of | (?:Museum|River|Mountains|Plateau)$")


def lead_questions(
    documents: Sequence[Document], elements_db: Path
) -> tuple[list[Example], Counter]:
    """Questions on the leads, sorted by id, and how many were dropped for which reason.

    elements_db: mendeleev's SQLite table. A question that two leads give is dropped, as
    is one that contains its answer. `entity` is the lead's title.
    """
    index, drafts = LeadIndex(documents, elements_db), []
    dropped: Counter[str] = Counter()
    for document in documents:
        for rule in (_people, _works, _places, _elements):
            for relation, question, answers in rule(document, index):
                if relation == DROP:
                    dropped[question] += 1
                    continue
                forms = [form for a in answers for form in (a, without_diacritics(a))]
                example = Example(
                    id=f"{relation}:{document.title}",
                    question=question,
                    answers=list(dict.fromkeys(forms)),
                    entity=document.title,
                    relation=relation,
                    evidence=[document.id],
                )
                drafts.append(example)
    times = Counter(example.question.casefold() for example in drafts)
    examples = []
    for example in drafts:
        question = example.question
        if times[question.casefold()] > 1:
            dropped["same question twice"] += 1
        elif any(re.search(rf"\b{re.escape(a)}\b", question) for a in example.answers):
            dropped["question contains the answer"] += 1
        else:
            examples.append(example)
    return sorted(examples, key=lambda example: example.id), dropped


class LeadIndex:
    """What the rules look up in the other leads and the elements."""

    def __init__(self, documents: Sequence[Document], elements_db: Path) -> None:
        countries = (d.title for d in documents if _COUNTRY.match(description(d)))
        self.countries = {plain_title(c)[0] for c in countries}
        self.countries |= {*UK_NATIONS, "Ireland"}
        self.people = [d.title for d in documents if d.meta.get("topic") in PEOPLE]
        # names that other places have, too, though no lead is about them
        self.names = Counter(["Sierra Nevada", "National Gallery", "West Lake"])
        self.names.update(plain_title(d.title)[0].split(", ")[0] for d in documents)
        with sqlite3.connect(f"file:{elements_db}?mode=ro", uri=True) as db:
            rows = db.execute("SELECT symbol, name FROM elements")
            self.elements = {symbol: name.lower() for symbol, name in rows}

    def country(self, place: str) -> str:
        """The country that "Bavaria, Germany" or "the western US" ends in, or ""."""
        if place.endswith(", Georgia"):  # the state or the country
            return ""
        tail = plain_title(place.split(", ")[-1].removeprefix("the "))[0]
        tail = re.sub(r"^(?:Federal )?Republic of (?!the|Ireland)", "", tail)
        tail = _COMPASS.sub("", tail) if tail not in self.countries else tail
        tail = SHORT_NAMES.get(tail.removeprefix("the "), tail.removeprefix("the "))
        return tail if tail in self.countries else ""


def without_diacritics(text: str) -> str:
    """The text with accents off: "Brasília" → "Brasilia"."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def description(document: Document) -> str:
    """A lead's one-line description; "" without one."""
    return str(document.meta.get("description", "")).strip()


def plain_title(title: str) -> tuple[str, str]:
    """A title and its disambiguation: "Dune (novel)" → ("Dune", "novel")."""
    match = re.fullmatch(r"(.+?) \(([^()]+)\)", title)
    return (match[1], match[2]) if match else (title, "")


def with_article(name: str, text: str) -> str:
    """The name with "the" if the lead or the name's form asks for it."""
    has_article = re.match(rf"The {re.escape(name)}(?:,| is| was| are| or|;)", text)
    return f"the {name}" if has_article or _WITH_THE.search(name) else name


def _people(document: Document, index: LeadIndex) -> Drafts:
    """Birth year, death year and nationality from "German chemist (1868–1934)"."""
    line, topic = description(document), document.meta.get("topic")
    if topic not in PEOPLE:
        return
    life = _LIFE.match(line)
    if not life:
        if topic == "People" and "(" in line:
            yield DROP, "person: BC, circa, reign or no years", []
        return
    what, born, died, alive_since = life.groups()
    name, suffix = plain_title(document.title)
    span = int(died) - int(born) if died else 50
    if _NOT_LIFE.search(what) or not 15 <= span <= 110:
        yield DROP, "person: years of a reign or a group", []
        return
    who = f"the {suffix} {name}" if suffix else name
    comma = "," if "," in who else ""
    if int(born or alive_since) < 1500:
        yield DROP, "birth year: before 1500, often disputed", []
    else:
        question = f"In which year was {who}{comma} born?"
        yield "birth_year", question, [born or alive_since]
    if died:
        yield "death_year", f"In which year did {who}{comma} die?", [died]
    question = f"What nationality {'was' if died else 'is'} {who}?"
    yield from _nationality(question, what, document.text)


def _nationality(question: str, what: str, text: str) -> Drafts:
    """The one demonym that description and lead agree on."""
    start = _DEMONYM.match(what.removeprefix("Medieval "))
    lead = re.search(r"\b(?:was|is) (?:an?|the|one of) ([^.;]*)", text)
    phrase = re.split(r"\b(?:who|known|whose|for|noted)\b", lead[1])[0] if lead else ""
    peoples = set(_DEMONYM.findall(f"{what} {phrase}"))
    nations = {"British" if name in BRITISH else name for name in peoples}
    if not start or start[0] not in DEMONYMS:
        yield DROP, "nationality: no known demonym", []
    elif len(nations) > 1 or len(peoples - {"British"}) > 1 or "-born" in what + phrase:
        yield DROP, "nationality: double", []
    elif not _DEMONYM.search(phrase):
        yield DROP, "nationality: lead does not state it", []
    else:
        (country,) = DEMONYMS[start[0]]
        british = ["British", "UK"] if start[0] in BRITISH else []
        narrower = sorted(peoples - {"British"}) if british else []
        aliases = [country, *COUNTRY_ALIASES.get(country, []), *narrower, *british]
        yield "nationality", question, [start[0], *aliases]


def _works(document: Document, index: LeadIndex) -> Drafts:
    """Creator and year of a work from "1968 film by Stanley Kubrick"."""
    work, text = _WORK.match(description(document)), document.text
    if not work:
        return
    year, kind, by = work[1], work[2].lower(), work[3].removeprefix("Sir ")
    title, suffix = plain_title(document.title)
    if suffix and not re.fullmatch(rf"(?:\d{{4}} )?(?:{_KINDS})", suffix, re.I):
        yield DROP, "disambiguated title", []
        return
    work_name = f"the {'song' if kind == 'single' else kind} {title}"
    if kind in ("painting", "composition"):
        work_name = with_article(title, text)
    verb, happened = next(w[1:] for w in WORKS if kind in w[0].split("|"))
    creator = _NAME.match(by)
    name = creator[0].strip() if creator else ""
    surname = re.escape(name.split()[-1]) if name else ""
    together = rf"{surname} and (?:a team|[A-Z]\w+ [A-Z])"
    others = re.match(r",? (?:and|&) [A-Z]", by[len(name) :])
    if not name or not re.search(surname, text):
        yield DROP, "creator: bad parse, or lead does not state it", []
    elif others or re.search(together, text):
        yield DROP, "creator: several", []
    else:
        yield "creator", f"Who {verb} {work_name}?", _name_answers(name, index)
    if year and happened:
        years = re.findall(r"\b(?:1\d|20)\d\d\b", text)
        if year in years and not any(0 < abs(int(year) - int(y)) <= 5 for y in years):
            yield "work_year", f"In which year was {work_name} {happened}?", [year]
        else:
            yield DROP, "work year: lead gives no or several near years", []


def _name_answers(name: str, index: LeadIndex) -> list[str]:
    """A person's full name first, then the name as given and the surname."""
    titled = [title for title in index.people if title.endswith(f" {name}")]
    full = titled[0] if len(titled) == 1 else name
    words = full.split()
    if words[0] == "Ibn":
        return [full]
    if full in KNOWN_BY_FIRST_WORD:
        return [full, words[0]]
    if len(words) < 3 or words[-2].lower() not in PARTICLES:
        return [full, name, words[-1]]
    short = words[0] if words[-2] == "da" else words[-1]
    return [full, name, " ".join(words[-2:]), short]


def _places(document: Document, index: LeadIndex) -> Drafts:
    """Capitals, countries and continents from "City in Bavaria, Germany"."""
    line, name = description(document), document.title
    if document.meta.get("topic") in ("People", "Philosophy and religion"):
        return
    capital = _CAPITAL.match(line)
    country = index.country(capital[1]) if capital else ""
    if capital:
        yield from _capitals(name, capital[1], country)
    if index.names[plain_title(name)[0].split(", ")[0]] > 1 or plain_title(name)[1]:
        if any(re.match(pattern, line, re.I) for _, pattern in PLACES):
            yield DROP, "place: ambiguous name", []
        return
    here = with_article(name, document.text)
    here = f"{'are' if re.search(_PLURAL, here) else 'is'} {here}"
    continent = _continent(line)
    if continent and name != "Australia":
        yield "continent", f"On which continent {here}?", [continent]
    if capital and country and "," not in capital[1]:  # asked already, as capital
        return
    for relation, pattern in PLACES:
        if kind := re.match(pattern, line, re.I):
            remainder = line[kind.end() :]
            yield from _in_country(relation, document, here, remainder, index)
            return


def _continent(line: str) -> str:
    """The one continent in which a country, river or range is said to be, or ""."""
    match = _CONTINENT.match(line)
    where = match[1].replace("Central America", "North America") if match else ""
    names = [c for c in CONTINENTS if c in where]
    is_one = len(names) == 1 and where.endswith(names[0])
    return names[0] if is_one and not re.search(r" of |–", where) else ""


def _capitals(name: str, place: str, country: str) -> Drafts:
    """The capital of a country, both ways, or of "Karnataka, India"."""
    city = name if name in CITY_ALIASES else plain_title(name)[0].split(", ")[0]
    region, *wholes = place.removeprefix("the ").split(", ")
    are_two = " and " in region.replace(country or " ", "")
    if not country or are_two or place.startswith("Georgia"):
        yield DROP, "capital: of no country, or of two places", []
    elif wholes:
        question = f"What is the capital of {region}, {country}?"
        yield "region_capital", question, [city, *CITY_ALIASES.get(city, [])]
    else:
        the = "the " if place == f"the {country}" else ""
        question = f"What is the capital of {the}{country}?"
        yield "capital", question, [city, *CITY_ALIASES.get(city, [])]
        answers = [country, *COUNTRY_ALIASES.get(country, [])]
        yield "capital_country", f"Of which country is {city} the capital?", answers


def _in_country(
    relation: str, document: Document, here: str, remainder: str, index: LeadIndex
) -> Drafts:
    """The country that a description ends in, if it is the only one."""
    where = re.split(r"\b(?:in|of) ", remainder)[1:]
    country = index.country(where[-1]) if where else ""
    countries = {c for c in index.countries if re.search(rf"\b{c}\b", document.text)}
    if not country or _NOT_ONE.search(description(document)):
        yield DROP, "place: no single country", []
    elif relation == "place_country" and countries - {country, *UK_NATIONS}:
        yield DROP, "place: lead names another country", []
    else:
        whole = "United Kingdom" if country in UK_NATIONS else country
        answers = [whole, country, *COUNTRY_ALIASES.get(whole, [])]
        yield relation, f"In which country {here}?", answers


def _elements(document: Document, index: LeadIndex) -> Drafts:
    """Symbol and atomic number, both ways."""
    pattern = r"Chemical element with atomic number (\d+) \((\w+)\)"
    if element := re.match(pattern, description(document)):
        number, symbol = element.groups()
        name = plain_title(document.title)[0].lower()
        names = [name, index.elements.get(symbol, name)]
        names += ["sulphur"] if name == "sulfur" else []
        which = "Which chemical element has"
        yield "chemical_symbol", f"What is the chemical symbol of {name}?", [symbol]
        yield "atomic_number", f"What is the atomic number of {name}?", [number]
        yield "symbol_element", f"{which} the symbol {symbol}?", names
        yield "number_element", f"{which} atomic number {number}?", names
