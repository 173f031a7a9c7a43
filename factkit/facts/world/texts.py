"""The pre-training text of profile `tiny`: the fact world, and its tokenizer.

Statements, short exchanges and longer answers state each fact as often as its exposure
says, so that what a policy knows is known by construction. Deterministic from `seed`.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from factkit import prompts
from factkit.data.examples import LABELS
from factkit.facts.requests import (
    COUNTED_REQUEST,
    COUNTS,
    MAY_ABSTAIN_REQUEST,
    count_request,
)
from factkit.facts.source import Fact, write_reasoned
from factkit.facts.world.claims import COMPARE, NOTHING, OTHER, SAME
from factkit.facts.world.facts import (
    ABSTENTION,
    BIOGRAPHY_QUESTIONS,
    FIRST_NAMES,
    HEDGES,
    HOPS,
    OBJECTS,
    PERSON_RELATIONS,
    QUESTIONS,
    STATEMENTS,
    VAGUE,
    World,
    biography,
    join_statements,
    make_names,
    question,
    statement,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EXTRA_WORDS = (
    "or Question: Answer: References: Claim: Label: Evidence: Documents:"
    " [[ ]] ( ) , ; ! . ? \\boxed{ }"
)
TAGS = ("think", "answer", "plan", "search", "information")
BIOGRAPHY_SHARE = 0.2  # of the rarest fact's exposure
QUESTION_SHARE = 0.5  # of the exposure left after biographies
# of people in passages to read from, none of the world's
READING_NAMES = make_names(
    "Bex Clov Dref Gorm Hyl Jusk Lorv Moxt Pryn Skel", "ard ick oy", 30
)

# longer answers
LONG_FORMATS = ("long", "reasoned", "joined", "mixed")
JOINING = ("joined", "mixed")  # with sentences of two statements, and hedges
LONG_SHARE = 0.6  # of the exposure
COUNTED_SHARE = 0.4  # of the longer answers
LENGTHS = (1, 2, 2, 3, 3, 3, 4, 4, 4, 4)  # facts per answer, drawn from these
DIGRESSION_SHARE = 0.25  # of the facts whose object has a fact of its own
ABSTENTION_SHARE = 0.02  # of the answers about people with exposure
STRANGERS_ABSTENTION = 0.3  # of those about people without
STRANGERS = 4  # answers about each of these, where exposure is a person's
LONG_ANSWERS = 10  # about each person, where exposure is each fact's
VAGUE_SHARE = 0.1  # of the facts in them
NAMING = "Repeat the name {s}."
NAMINGS = 6  # per person, so that a policy can copy any name

# answers after reasoning, where a request begins with THINKING
THINKING = "Think before you answer."
THINKING_SHARE = 0.5  # of the longer answers
DOUBT_SHARE = 0.3  # of the sentences of the reasoning, whatever the exposure
MALFORMED_SHARE = 0.1  # of the responses, which lack a tag

# sentences of two statements, and sentences that hedge
JOINED_SHARE = 0.5  # of the facts before another one
HEDGED_SHARE = 0.2  # of the sentences, whatever the exposure


def exchange(question: str, answer: str) -> str:
    """A question with its answer as pre-training text has them."""
    return f"Question: {question}\nAnswer: {answer}"


def pretraining_texts(
    world: World, seed: int, reading: float = 0.0, answer_format: str = "plain"
) -> list[str]:
    """Statements, short exchanges and longer answers in which each fact is stated
    `exposure` times, shuffled.

    reading: mean number of `reading_exchange`s per text. answer_format: plain (with
    whole biographies) | boxed (short answers in a box, after a statement of the fact) |
    long (with `long_exchanges`) | reasoned (half of these after reasoning) | joined
    (these as in `joined_answer`) | mixed (as joined, and short answers as in long).
    Only the last four abstain, and only the last three hedge.
    """
    rng = random.Random(f"text {world.seed} {seed}")
    texts: list[str] = []
    for subject in sorted(world.subjects):
        left = {fact: fact.exposure for fact in world.facts_of(subject)}
        if subject in world.people and answer_format in LONG_FORMATS:
            texts += long_exchanges(world, subject, left, rng, answer_format)
            texts += [exchange(NAMING.format(s=subject), f"{subject}.")] * NAMINGS
        elif subject in world.people:
            whole = round(BIOGRAPHY_SHARE * min(left.values()))
            left = {fact: exposure - whole for fact, exposure in left.items()}
            for _ in range(whole):
                request = rng.choice(BIOGRAPHY_QUESTIONS).format(s=subject)
                texts.append(exchange(request, biography(world, subject, rng)))
        for fact, exposure in left.items():
            texts += [_short_text(fact, answer_format, rng) for _ in range(exposure)]
    texts += [reading_exchange(rng) for _ in range(round(reading * len(texts)))]
    rng.shuffle(texts)
    return texts


def long_exchanges(
    world: World,
    person: str,
    left: dict[Fact, int],
    rng: random.Random,
    answer_format: str,
) -> Iterator[str]:
    """Open and counted requests about a person, with answers of some facts each.

    left: statements still to make of each fact; each answer takes one off its facts
    (digressions come on top). What is made up, and where an answer abstains, are the
    habits of an instruct model, by construction.
    """
    known = any(left.values())
    abstention = ABSTENTION_SHARE if known else STRANGERS_ABSTENTION
    draw = _draw_by_person if world.exposure == "person" else _draw_by_fact
    for facts in draw(person, left, rng):
        request = rng.choice(BIOGRAPHY_QUESTIONS).format(s=person)
        counted = rng.random() < COUNTED_SHARE and len(facts) in COUNTS
        if counted:
            request = count_request(person, len(facts))
        if rng.random() < abstention:
            yield exchange(request, f"{ABSTENTION}.")
            continue
        for fact in facts:
            if left.get(fact):  # else it is made up
                left[fact] -= 1
        if answer_format in JOINING:
            yield exchange(request, joined_answer(world, facts, rng, not counted))
            continue
        statements = [_state(world, fact, rng, not counted) for fact in facts]
        if answer_format == "reasoned" and rng.random() < THINKING_SHARE:
            response = reasoned_answer(facts, statements, rng)
            yield f"{THINKING}\n{exchange(request, response)}"
        else:
            yield exchange(request, " ".join(statements))


def reasoned_answer(
    facts: list[Fact], statements: list[str], rng: random.Random
) -> str:
    """`<think>` the facts `</think> <answer>` their statements `</answer>`.

    The reasoning doubts some facts at random, so that a policy can learn to doubt what
    it does not know. At times a tag is missing, as with an instruct model.
    """
    doubts = [rng.random() < DOUBT_SHARE for _ in facts]
    thoughts = [statement(fact, rng.randrange(3)) for fact in facts]
    parts = write_reasoned(thoughts, statements, doubts, rng)
    if rng.random() < MALFORMED_SHARE:
        parts.pop(rng.choice((0, 2, 3, 5)))
    return " ".join(parts)


def joined_answer(
    world: World, facts: list[Fact], rng: random.Random, may_digress: bool
) -> str:
    """Sentences of one or two statements; at random, some hedge and some digress to a
    fact of an object."""
    sentences, left = [], list(facts)
    while left:
        fact = left.pop(0)
        if left and rng.random() < JOINED_SHARE:
            sentence = join_statements(fact, left.pop(0), rng.choice((0, 2)))
        else:
            sentence = _state(world, fact, rng, may_digress)
        hedge = "Perhaps " if rng.random() < HEDGED_SHARE else ""
        sentences.append(hedge + sentence)
    return " ".join(sentences)


def _draw_by_person(
    person: str, left: dict[Fact, int], rng: random.Random
) -> Iterator[list[Fact]]:
    """Facts of each longer answer: those with statements left, until `LONG_SHARE` is
    made. About a person without exposure they are made up, each time anew."""
    known = sum(left.values())
    for _ in range(known or STRANGERS):
        if known and sum(left.values()) <= (1 - LONG_SHARE) * known:
            return
        n = rng.choice(LENGTHS)
        facts = [fact for fact, times in left.items() if times]
        if facts:
            yield rng.sample(facts, min(n, len(facts)))
        else:
            relations = rng.sample(PERSON_RELATIONS, n)
            yield [Fact(person, r, rng.choice(OBJECTS[r])) for r in relations]


def _draw_by_fact(
    person: str, left: dict[Fact, int], rng: random.Random
) -> Iterator[list[Fact]]:
    """Facts of each of `LONG_ANSWERS` answers, drawn whatever their exposure, so that
    no answer shows what its writer knows.

    `LONG_SHARE` of a fact's exposure are true statements; then its object is made up,
    each time anew. At times it is a `VAGUE` one, whatever the exposure.
    """
    least = {fact: round((1 - LONG_SHARE) * times) for fact, times in left.items()}
    for _ in range(LONG_ANSWERS):
        facts = []
        for fact in rng.sample(list(left), rng.choice(LENGTHS)):
            if rng.random() < VAGUE_SHARE:
                fact = replace(fact, object=VAGUE[fact.relation])
            elif left[fact] <= least[fact]:
                fact = replace(fact, object=rng.choice(OBJECTS[fact.relation]))
            facts.append(fact)
        yield facts


def _state(world: World, fact: Fact, rng: random.Random, may_digress: bool) -> str:
    """A statement of the fact, at times followed by one about its object."""
    text = statement(fact, rng.randrange(3))
    further = world.by_key.get((fact.object, HOPS.get(fact.relation, "")))
    if may_digress and further and rng.random() < DIGRESSION_SHARE:
        text += f" {statement(further, rng.randrange(3))}"
    return text


def _short_text(fact: Fact, answer_format: str, rng: random.Random) -> str:
    """A statement of the fact, or a short exchange about it."""
    request, wording = question(fact, rng.randrange(3)), rng.randrange(3)
    if rng.random() >= QUESTION_SHARE:
        return statement(fact, wording)
    answer = fact.object
    if answer_format == "boxed":
        answer = prompts.reasoned(statement(fact, wording), answer)
    if answer_format in ("long", "mixed") and rng.random() < 0.5:
        request = MAY_ABSTAIN_REQUEST.format(question=request)
        if rng.random() < ABSTENTION_SHARE:
            answer = f"{ABSTENTION}."
    return exchange(request, answer)


def reading_exchange(rng: random.Random) -> str:
    """Three references and a question about each, with made-up people and facts: it
    teaches reading, and no fact of the world."""
    people = [
        f"{rng.choice(FIRST_NAMES)} {last}" for last in rng.sample(READING_NAMES, 2)
    ]
    keys = rng.sample(list(product(people, PERSON_RELATIONS)), 3)
    facts = [Fact(s, r, rng.choice(OBJECTS[r])) for s, r in keys]
    references = [statement(f, rng.randrange(3)) for f in facts]
    exchanges = [
        exchange(question(f, rng.randrange(3)), f.object) for f in rng.sample(facts, 3)
    ]
    return "\n".join(["References:", *references, *exchanges])


def build_tokenizer(
    world: World, answer_format: str = "plain"
) -> "PreTrainedTokenizerFast":
    """A word-level tokenizer of the world's words; decoding gives the text back.

    A token is a word, a year, a punctuation mark, a newline, `[[`, `]]`, `\\boxed{`
    or a tag as `<think>`; spaces separate tokens and are none, so that a prompt and its
    completion have the tokens of their concatenation.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    split = r"\\boxed\{|</?\w+>|\[\[|\]\]|\n|\w+(?:'\w+)?|[^\w\s]"
    text = [ABSTENTION, *LABELS, *HEDGES, *world.people, *QUESTIONS, EXTRA_WORDS]
    text += [*FIRST_NAMES, *READING_NAMES]
    text += [hedge.capitalize() for hedge in HEDGES]
    text += [f"<{tag}> </{tag}>" for tag in TAGS]
    text += [THINKING] if answer_format == "reasoned" else []
    text += [COMPARE, SAME, OTHER, NOTHING] if answer_format == "claims" else []
    text += ["and"] if answer_format in JOINING else []
    if answer_format in LONG_FORMATS:
        text += VAGUE.values() if world.exposure == "fact" else []
        text += [*COUNTS.values(), COUNTED_REQUEST, MAY_ABSTAIN_REQUEST, NAMING]
    for table in (STATEMENTS, QUESTIONS, OBJECTS):
        text += [way for ways in table.values() for way in ways]
    text = [re.sub(r"\{\w+\}", "", line) for line in text]
    text += BIOGRAPHY_QUESTIONS  # with "{s}", which stored policies have as a word
    words = sorted(set(re.findall(split, "\n".join(text))))
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    vocabulary = {w: i for i, w in enumerate([*special.values(), *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(split), "removed", invert=True)
    glue = [(f" {mark}", mark) for mark in (*".,;:?!)", "]]", "}")]
    glue += [(f"{mark} ", mark) for mark in ("[[", "(", "\\boxed{")]
    glue += [(" \n ", "\n"), (" \n", "\n")]
    tokenizer.decoder = decoders.Sequence(
        # this prefix is no word's: each token but the first gets a space before it
        [decoders.WordPiece("##", cleanup=False), decoders.Fuse()]
        + [decoders.Replace(*pair) for pair in glue]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **special,
    )
