"""Claims about the fact world, and what the script of `facts.script` reads of it.

With `MIXED` habits the script makes, about made-up facts, what the policy of profile
`tiny` is pre-trained on: it has then seen better and worse ways, as an instruct model
has, and mostly goes the worse.
"""

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product

from factkit import prompts
from factkit.data.corpus import Chunk, format_chunks
from factkit.data.entries import page_entry, split_entry
from factkit.data.examples import LABELS, Example
from factkit.facts.script import (
    Found,
    Habits,
    forget_tag,
    read_chain,
    search_and_verify,
    verdict,
)
from factkit.facts.source import Fact
from factkit.facts.world.facts import (
    HOPS,
    OBJECTS,
    PERSON_RELATIONS,
    STATEMENTS,
    World,
    document_id,
    statement,
)
from factkit.verify.trajectory import Turn

ENTRIES = 3  # a search (App. B)
OFFLINE_SHARE = 0.25  # of the pre-training trajectories
N_TRAJECTORIES = 12_000  # to pre-train on
LONGEST = 256  # tokens of a trajectory
OTHERS = 2  # people in a made-up world beside the subject of a claim
NOTHING = "nothing"  # the object of a fact that was not found
SAME, OTHER = "same", "other"
COMPARE = "Compare:"
COMPARISONS = 3  # in a text, at most
N_COMPARISON_TEXTS = 80_000


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

MIXED = Habits(own_words=0.4, second_hop=0.6, precise=0.35, guess=0.25, malformed=0.15)


class ClaimReader:
    """Reads and writes the world's sentences for the script (`script.Reader`)."""

    def __init__(self, world: World) -> None:
        self.world = world

    def hops(self, claim: str) -> list[Fact]:
        parsed = self.world.parse(claim)
        if parsed is None:
            raise ValueError(f"{claim!r} is no claim of the world")
        fact, _ = parsed
        first, *rest = fact.relation.split()
        if not rest:
            return [fact]
        return [Fact(fact.subject, first, ""), Fact("", rest[0], fact.object)]

    def fact(self, text: str) -> Fact | None:
        parsed = self.world.parse(text)
        return parsed[0] if parsed else None

    def plan(self, hops: Sequence[Fact]) -> str:
        return " ".join(hop.relation for hop in hops)

    def query(self, subject: str, hop: Fact) -> str:
        words = STATEMENTS[hop.relation][0].format(s=subject, o=hop.object)
        return " ".join(words.strip(" .").split())

    def thought(self, subject: str, hop: Fact, found: Found | None) -> str:
        if found is None:
            # A small policy learns to say so at the object, where it would copy one. It
            # did not learn to begin a thought with "I don't know".
            return statement(Fact(subject, hop.relation, NOTHING))
        _, fact = found
        compared = f" {compare(fact.object, hop.object)}" if hop.object else ""
        return statement(fact) + compared

    def tag(self, name: str, text: str) -> str:
        return f"<{name}> {text} </{name}>"


def write_offline(
    world: World,
    claim: str,
    entries: Sequence[Chunk],
    habits: Habits,
    rng: random.Random,
) -> list[Turn]:
    """The script's response to a claim with its evidence (Fig 10)."""
    reader = ClaimReader(world)
    hops = reader.hops(claim)
    chain = read_chain(reader, hops, entries)
    subjects = [hops[0].subject, *(fact.object for _, fact in chain)]
    thought = " ".join(map(reader.thought, subjects, hops, [*chain, None]))
    answer = verdict(hops, chain, entries, habits, rng)
    text = f"{reader.tag('think', thought)}\n{answer}"
    return forget_tag([Turn(text, by_model=True)], habits, rng)


def compare(found: str, claimed: str) -> str:
    """Two objects side by side and whether they are the same."""
    return f"{found} {claimed} {SAME if found == claimed else OTHER}."


def comparison_texts(rng: random.Random, n: int) -> list[str]:
    """n texts of comparisons of random objects, half of them equal.

    They teach a small policy to tell whether two neighbouring words are the same. A
    text has as few comparisons as a trajectory, up to `COMPARISONS`: in a long list
    most words have occurred before, which tells nothing of the last two.
    """
    kinds = [objects for relation, objects in OBJECTS.items() if " " not in relation]
    texts = []
    for _ in range(n):
        n_pairs = rng.randint(1, COMPARISONS)
        pairs = [rng.sample(rng.choice(kinds), 2) for _ in range(n_pairs)]
        rows = [compare(a, rng.choice((a, b))) for a, b in pairs]
        texts.append(" ".join([COMPARE, *rows]))
    return texts


def list_entries(world: World) -> list[Chunk]:
    """An entry for each fact, of its id and its sentence."""
    return [page_entry(d.id, d.text) for d in world.documents()]


def pretraining_texts(world: World, seed: int, n: int = N_TRAJECTORIES) -> list[str]:
    """n prompts with trajectories by the script with `MIXED` habits, three in four
    online, and `N_COMPARISON_TEXTS` texts of comparisons, shuffled.

    Each trajectory is about made-up facts of people with the world's names: it teaches
    reading and searching, and no fact.
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
    texts: list[str] = []
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
            evidence = [split_entry(e)[0] for e in find(claim.question, 2 * ENTRIES)]
            fields = {"claim": claim.question, "evidence": format_chunks(evidence)}
            prompt = prompts.fill(offline, **fields)
            turns = write_offline(made_up, claim.question, evidence, MIXED, rng)
        else:
            prompt = prompts.fill(online, claim=claim.question)
            reader = ClaimReader(made_up)
            best = partial(_find_best, find)
            turns = search_and_verify(reader, claim.question, best, MIXED, rng)
        texts.append(prompt + "".join(turn.text for turn in turns))
    texts += comparison_texts(rng, N_COMPARISON_TEXTS)
    rng.shuffle(texts)
    return texts


def _find_best(find: Callable[[str, int], list[Chunk]], query: str) -> list[Chunk]:
    return find(query, ENTRIES)


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
    return World(world.seed, people, tuple(facts))  # type: ignore[abstract]


def _search_by_words(
    entries: Sequence[Chunk], rarity: Mapping[str, float], rng: random.Random
) -> Callable[[str, int], list[Chunk]]:
    """A search by rare words in common, like BM25, that shows what it finds in a random
    order, so that the policy has to read it."""
    entries = rng.sample(entries, len(entries))
    words_of = [_words(entry.text) for entry in entries]

    def find(query: str, k: int) -> list[Chunk]:
        words = _words(query)
        scores = [
            math.fsum(rarity.get(word, rarity[""]) for word in words & others)
            for others in words_of
        ]
        best = sorted(range(len(entries)), key=lambda i: -scores[i])
        found = [entries[i] for i in best[:k] if scores[i] > 0]
        return rng.sample(found, len(found))

    return find


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))
