"""Claims about the fact world, and a script with habits that verifies them.

Ours: the SFT of Veri-R1 learns from GPT-4o's trajectories (App. H). Here a script
searches, reads the results and answers. It knows the grammar of the world's sentences,
but neither a claim's label nor its gold evidence. With `PLAIN` habits it writes what
SFT learns from. With `MIXED` habits, about made-up facts, it writes what the policy of
profile `tiny` is pre-trained on: like an instruct model, that policy has seen better
and worse ways, and mostly takes the worse.
"""

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from factkit import prompts
from factkit.data.corpus import Chunk, listed
from factkit.data.entries import page_entry, shown
from factkit.data.examples import LABELS, Example
from factkit.data.search import Search
from factkit.facts.source import Fact, Find
from factkit.facts.world.facts import (
    ABSTENTION,
    HOPS,
    OBJECTS,
    PERSON_RELATIONS,
    STATEMENTS,
    World,
    document_id,
    patterns,
    statement,
)
from factkit.verify.trajectory import Turn, information

ENTRIES = 3  # a search (App. B)
UNKNOWN = f"{ABSTENTION}."
OFFLINE_SHARE = 0.25  # of the pre-training trajectories
N_TRAJECTORIES = 12_000  # to pre-train on
LONGEST = 256  # tokens of a trajectory
OTHERS = 2  # people in a made-up world beside the subject of a claim


def make_claims(world: World, n: int, seed: int) -> list[Example]:
    """n different claims about people: labels in turn, one and two hops in turn.

    SUPPORT: as the world has it; REFUTE: the object swapped for another of its kind;
    NOT ENOUGH INFO: about the attribute that the person lacks, without evidence.
    `question` is the claim, `answers` its label, `meta["hops"]` 1 or 2.
    Raises ValueError if the world has no further claim of a kind.
    """
    rng = random.Random(f"claims {world.seed} {seed}")
    pools: dict[tuple[str, int], list[Example]] = defaultdict(list)
    for person, relation in product(world.people, PERSON_RELATIONS):
        targets = [relation]
        if relation in HOPS:
            targets.append(f"{relation} {HOPS[relation]}")
        for hops, target in enumerate(targets, start=1):
            for label, wording in product(LABELS, range(len(STATEMENTS[target]))):
                claim = make_claim(world, person, target, label, wording, rng)
                if claim:
                    pools[label, hops].append(claim)
    for pool in pools.values():
        rng.shuffle(pool)
    kinds = [(label, hops) for hops in (1, 2) for label in LABELS]
    if any(len(pools[kind]) < len(range(i, n, 6)) for i, kind in enumerate(kinds)):
        raise ValueError(f"n={n}: the world has too few claims of some kind")
    return [pools[kinds[i % 6]].pop() for i in range(n)]


def make_claim(
    world: World,
    person: str,
    relation: str,
    label: str,
    wording: int,
    rng: random.Random,
) -> Example | None:
    """A claim about a person, of one relation or two ("birthplace country"); None if
    the world allows none with this label."""
    true = world.by_key.get((person, relation))
    if (true is None) != (label == "NOT ENOUGH INFO"):
        return None
    value = true.object if true else rng.choice(OBJECTS[relation])
    if label == "REFUTE":
        value = rng.choice([o for o in OBJECTS[relation] if o != value])
    facts, subject = [], person
    for hop in relation.split() if true else ():
        facts.append(world.by_key[subject, hop])
        subject = facts[-1].object
    exposure = min((fact.exposure for fact in facts), default=0)
    return Example(
        id=f"{person} {relation} {label} {wording}",
        question=statement(Fact(person, relation, value), wording),
        answers=[label],
        entity=person,
        relation=relation,
        label=label,
        evidence=[document_id(fact) for fact in facts],
        meta={"hops": len(relation.split()), "exposure": exposure},
    )


# ---- the script


@dataclass(frozen=True)
class Habits:
    """How often a script does what, in [0, 1].

    own_words: searches in its own words, not with the claim. second_hop: goes on to the
    city or company of the first hop. precise: cites only the entries that it used.
    guess: answers with a random label. malformed: forgets a tag.
    """

    own_words: float = 0.0
    second_hop: float = 0.0
    precise: float = 0.0
    guess: float = 0.0
    malformed: float = 0.0


PLAIN = Habits()
MIXED = Habits(own_words=0.4, second_hop=0.6, precise=0.35, guess=0.25, malformed=0.15)


def write_online(
    world: World,
    claim: str,
    find: Find,
    habits: Habits,
    rng: random.Random,
    k: int = ENTRIES,
) -> list[Turn]:
    """The script's trajectory for a claim (Fig 9), k entries a search.

    Raises ValueError if the claim can't be parsed.
    """
    claimed = _parse_claim(world, claim)
    relations, subject = claimed.relation.split(), claimed.subject
    text, turns, pieces = f"<plan> {' '.join(relations)} </plan>\n", [], {}
    for hop in range(len(relations)):
        if hop and rng.random() >= habits.second_hop:
            break
        in_own_words = hop > 0 or rng.random() < habits.own_words
        query = _write_query(claimed, subject, hop) if in_own_words else claim
        results = [piece for entry in find(query, k) for piece in shown(entry)]
        pieces |= {piece.id: piece for piece in results}
        text += f"<search> {query} </search>"
        turns += [Turn(text, by_model=True), Turn(information(results), by_model=False)]
        facts = _read_hops(world, claimed, pieces.values())
        if len(facts) <= hop:
            text = f"<think> {UNKNOWN} </think>\n"
            break
        text = f"<think> {mark(statement(facts[hop]), query)} </think>\n"
        subject = facts[hop].object
    text += _write_answer(world, claimed, list(pieces.values()), habits, rng)
    turns.append(Turn(text, by_model=True))
    return _drop_tag(turns, rng) if rng.random() < habits.malformed else turns


def write_offline(
    world: World,
    claim: str,
    entries: Sequence[Chunk],
    habits: Habits,
    rng: random.Random,
) -> list[Turn]:
    """The script's response to a claim with its evidence (Fig 10)."""
    claimed = _parse_claim(world, claim)
    facts = _read_hops(world, claimed, entries)
    thought = " ".join(mark(statement(fact), claim) for fact in facts) or UNKNOWN
    answer = _write_answer(world, claimed, entries, habits, rng)
    turns = [Turn(f"<think> {thought} </think>\n{answer}", by_model=True)]
    return _drop_tag(turns, rng) if rng.random() < habits.malformed else turns


def _parse_claim(world: World, claim: str) -> Fact:
    parsed = world.parse(claim)
    if parsed is None:
        raise ValueError(f"{claim!r} is no claim of the world")
    return parsed[0]


def _write_query(claimed: Fact, subject: str, hop: int) -> str:
    """A query for a hop in the world's words, with the object if the claim has it."""
    relations = claimed.relation.split()
    value = claimed.object if hop == len(relations) - 1 else ""
    words = STATEMENTS[relations[hop]][0].format(s=subject, o=value)
    return " ".join(words.strip(" .").split())


def _read_hops(world: World, claimed: Fact, entries: Sequence[Chunk]) -> list[Fact]:
    """The facts of the claim's hops that the entries state, up to the first gap."""
    parsed = filter(None, (world.parse(unmark(entry.text)) for entry in entries))
    by_key = {(fact.subject, fact.relation): fact for fact, _ in parsed}
    facts, subject = [], claimed.subject
    for relation in claimed.relation.split():
        if (subject, relation) not in by_key:
            break
        facts.append(by_key[subject, relation])
        subject = facts[-1].object
    return facts


def _write_answer(
    world: World,
    claimed: Fact,
    entries: Sequence[Chunk],
    habits: Habits,
    rng: random.Random,
) -> str:
    """The verdict on the entries. Only NOT ENOUGH INFO may cite nothing."""
    support, refute, unknown = LABELS
    facts = _read_hops(world, claimed, entries)
    label = unknown
    if len(facts) == len(claimed.relation.split()):
        label = support if facts[-1].object == claimed.object else refute
    if rng.random() < habits.guess and entries:
        label = rng.choice(LABELS)
    cited = [entry.id for entry in entries]
    if rng.random() < habits.precise and (facts or label == unknown):
        cited = [] if label == unknown else [document_id(fact) for fact in facts]
    evidence = ", ".join(f"[[{i}]]" for i in cited)
    return f"<answer>\nLabel: {label}\nEvidence: {evidence}\n</answer>"


def _drop_tag(turns: list[Turn], rng: random.Random) -> list[Turn]:
    """The turns without one of the policy's tags, never a search's."""
    tags = [
        (i, tag.span())
        for i, turn in enumerate(turns)
        if turn.by_model
        for tag in re.finditer(r"</?(?:plan|think|answer)> ?", turn.text)
    ]
    i, (start, end) = rng.choice(tags)
    text = turns[i].text[:start] + turns[i].text[end:]
    return [*turns[:i], Turn(text, by_model=True), *turns[i + 1 :]]


def mark(text: str, query: str) -> str:
    """A sentence of the world with its object in parentheses if the query lacks it, as
    search engines mark what was asked for.

    A policy of 0.9M parameters learns to read, but not to tell whether two words are
    the same: after 350 updates of nothing else it is still at chance.
    """
    for relation, pattern in patterns():
        match = pattern.fullmatch(text)
        if match and match["o"] in OBJECTS[relation]:
            if _words(query).issuperset(match["o"].split()):
                return text
            start, end = match.span("o")
            return f"{text[:start]}({text[start:end]}){text[end:]}"
    return text


def unmark(text: str) -> str:
    """The sentence that `mark` was given."""
    return text.replace("(", "").replace(")", "")


def mark_search(search: Search) -> Search:
    """A search of the world's entries, with its results as `mark` shows them."""

    def search_and_mark(
        queries: Sequence[str], k: int, sets: Sequence[str] = ()
    ) -> list[list[Chunk]]:
        results = zip(queries, search(queries, k, sets), strict=True)
        return [[_mark_entry(e, query) for e in entries] for query, entries in results]

    return search_and_mark


def _mark_entry(entry: Chunk, query: str) -> Chunk:
    head, _, text = entry.text.partition("\n")
    return replace(entry, text=f"{head}\n{mark(text, query)}")


def list_entries(world: World) -> list[Chunk]:
    """An entry for each fact, of its id and its sentence."""
    return [page_entry(d.id, d.text) for d in world.documents()]


def pretraining_texts(world: World, seed: int, n: int = N_TRAJECTORIES) -> list[str]:
    """n prompts with trajectories by the script with `MIXED` habits, three in four
    online.

    Each is about made-up facts of people with the world's names: it teaches reading and
    searching, and no fact.
    """
    rng = random.Random(f"trajectories {world.seed} {seed}")
    online = prompts.template("claim")
    offline = prompts.template("claim_with_documents")
    # rarity in the whole world: in a made-up world of a few people a name is no rare
    # word, and a search would find other people's entries
    entries = list_entries(world)
    counts = Counter(word for entry in entries for word in _words(entry.text))
    rarity = {w: math.log((len(entries) + 1) / times) for w, times in counts.items()}
    rarity[""] = math.log(len(entries) + 1)  # of a word that none has
    texts = []
    while len(texts) < n:
        made_up = _make_up_world(world, rng)
        relation = rng.choice(PERSON_RELATIONS)
        if relation in HOPS and rng.random() < 0.5:
            relation += f" {HOPS[relation]}"
        label, person = rng.choice(LABELS), made_up.people[0]
        claim = make_claim(made_up, person, relation, label, rng.randrange(3), rng)
        if claim is None:
            continue
        find = _search_by_words(list_entries(made_up), rarity, rng)
        if rng.random() < OFFLINE_SHARE:
            evidence = [shown(e)[0] for e in find(claim.question, 2 * ENTRIES)]
            prompt = prompts.fill(
                offline, claim=claim.question, evidence=listed(evidence)
            )
            turns = write_offline(made_up, claim.question, evidence, MIXED, rng)
        else:
            prompt = prompts.fill(online, claim=claim.question)
            turns = write_online(made_up, claim.question, find, MIXED, rng)
        texts.append(prompt + "".join(turn.text for turn in turns))
    return texts


def _make_up_world(world: World, rng: random.Random) -> World:
    """A world of a few people with made-up facts, and of their cities and companies."""
    people = tuple(rng.sample(world.people, 1 + OTHERS))
    facts = []
    for person in people:
        for relation in rng.sample(PERSON_RELATIONS, 4):
            facts.append(Fact(person, relation, rng.choice(OBJECTS[relation])))
    for relation, second in HOPS.items():
        for subject in dict.fromkeys(f.object for f in facts if f.relation == relation):
            facts.append(Fact(subject, second, rng.choice(OBJECTS[second])))
    return World(world.seed, people, tuple(facts))


def _search_by_words(
    entries: Sequence[Chunk], rarity: Mapping[str, float], rng: random.Random
) -> Find:
    """A search by rare words in common, like BM25; ties in a random order."""
    entries = rng.sample(entries, len(entries))
    words_of = [_words(entry.text) for entry in entries]

    def find(query: str, k: int) -> list[Chunk]:
        words = _words(query)
        scores = [
            math.fsum(rarity.get(word, rarity[""]) for word in words & others)
            for others in words_of
        ]
        best = sorted(range(len(entries)), key=lambda i: -scores[i])
        return [_mark_entry(entries[i], query) for i in best[:k] if scores[i] > 0]

    return find


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))
