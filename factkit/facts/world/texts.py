"""What the policy of profile `tiny` reads: the fact world as text, and its tokenizer.

Each fact of `world.facts` is stated as often as its exposure says, in statements,
short exchanges and longer tellings, so that what a policy knows is known by
construction. Deterministic from `seed`; ours throughout, as the world is.
"""

import random
import re
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from factkit import prompts
from factkit.data.examples import LABELS
from factkit.facts.world.facts import (
    ABSTENTION,
    FIRST_NAMES,
    HEDGES,
    HOPS,
    OBJECTS,
    PERSON_RELATIONS,
    QUESTIONS,
    STATEMENTS,
    Fact,
    World,
    biography,
    joined,
    names,
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
BIOGRAPHY_QUESTIONS = ("Who was {s}?", "Tell me about {s}.")
BIOGRAPHY_SHARE = 0.2  # of the rarest fact's exposure
QUESTION_SHARE = 0.5  # of the exposure left after biographies
# of people in passages to read from, none of the world's
READING_NAMES = names(
    "Bex Clov Dref Gorm Hyl Jusk Lorv Moxt Pryn Skel", "ard ick oy", 30
)

# Longer answers, of an answer_format that asks for them
LONG_FORMATS = ("long", "reasoned", "joined", "mixed")
JOINING = ("joined", "mixed")  # sentences of two statements, and hedges
COUNTS = {1: "one fact", 2: "two facts", 3: "three facts"}
COUNTED = "Tell me {count} about {s}."
MAY_ABSTAIN = "{question} You may say that you don't know."
TELLING_SHARE = 0.6  # of the exposure
COUNTED_SHARE = 0.4  # of the tellings
TELLING_LENGTHS = (1, 2, 2, 3, 3, 3, 4, 4, 4, 4)  # facts, drawn from these
DIGRESSION_SHARE = 0.25  # of the facts that lead on to another
ABSTENTION_SHARE = 0.02  # of the exchanges that allow it, about people told of
STRANGERS = 4  # exchanges about each person never told of
STRANGERS_ABSTENTION = 0.3  # of these; the others make something up, each time anew
NAMING = "Repeat the name {s}."
NAMINGS = 6  # of each person, also one never told of: so that names can be copied

# Answers that follow reasoning, where a request begins with THINKING
THINKING = "Think before you answer."
THINKING_SHARE = 0.5  # of the tellings
DOUBT_SHARE = 0.3  # of the sentences of the reasoning, whatever is known of them
DOUBT_KEPT = 0.5  # of these, the share that the answer states all the same
MALFORMED_SHARE = 0.1  # of the responses: one of the tags is missing

# Sentences of two statements, and sentences that hedge
JOINED_SHARE = 0.5  # of the facts that another one follows
HEDGED_SHARE = 0.2  # of the sentences, whatever is known of them


def exchange(question: str, answer: str) -> str:
    """A question with its answer as pre-training text has them."""
    return f"Question: {question}\nAnswer: {answer}"


def pretraining_texts(
    world: World, seed: int, reading: float = 0.0, answer_format: str = "plain"
) -> list[str]:
    """Statements, short exchanges and biographies in which each fact is stated
    `exposure` times, shuffled.

    reading: `reading_exchange`s for each of these texts, on average. answer_format:
    plain | boxed (short answers come in a box, after a statement of the fact) | long
    (`tellings` too) | reasoned (half of the tellings after reasoning) | joined (as
    `joined_telling` tells) | mixed (so, and short answers as of long). Only the last
    four abstain; only the last three hedge.
    """
    rng = random.Random(f"text {world.seed} {seed}")
    texts = []
    for subject in sorted(world.subjects):
        left = {fact: fact.exposure for fact in world.facts_of(subject)}
        if subject in world.people and answer_format in LONG_FORMATS:
            texts += tellings(world, subject, left, rng, answer_format)
            texts += [exchange(NAMING.format(s=subject), f"{subject}.")] * NAMINGS
        elif subject in world.people:
            whole = round(BIOGRAPHY_SHARE * min(left.values()))
            left = {fact: exposure - whole for fact, exposure in left.items()}
            for _ in range(whole):
                ask = rng.choice(BIOGRAPHY_QUESTIONS).format(s=subject)
                texts.append(exchange(ask, biography(world, subject, rng)))
        for fact, exposure in left.items():
            texts += [_short(fact, answer_format, rng) for _ in range(exposure)]
    texts += [reading_exchange(rng) for _ in range(round(reading * len(texts)))]
    rng.shuffle(texts)
    return texts


def tellings(
    world: World,
    person: str,
    left: dict[Fact, int],
    rng: random.Random,
    answer_format: str,
) -> Iterator[str]:
    """Requests to tell of a person, and answers that state some facts, each of them
    taking one off what is `left` of it; a fact of their object comes on top.

    Of a person never told of, most answers make something up, each time anew, and some
    say "I don't know.": the habits of an instruct model, by construction.
    """
    known = sum(left.values())
    abstaining = ABSTENTION_SHARE if known else STRANGERS_ABSTENTION
    for _ in range(known or STRANGERS):
        if known and sum(left.values()) <= (1 - TELLING_SHARE) * known:
            return
        facts = _some_facts(person, left, rng)
        ask = rng.choice(BIOGRAPHY_QUESTIONS).format(s=person)
        counted = rng.random() < COUNTED_SHARE and len(facts) in COUNTS
        if counted:
            ask = request(person, len(facts))
        if rng.random() < abstaining:
            yield exchange(ask, f"{ABSTENTION}.")
            continue
        for fact in facts if known else ():
            left[fact] -= 1
        if answer_format in JOINING:
            yield exchange(ask, joined_telling(world, facts, rng, not counted))
            continue
        statements = [_told(world, fact, rng, not counted) for fact in facts]
        if answer_format == "reasoned" and rng.random() < THINKING_SHARE:
            response = reasoned_telling(facts, statements, rng)
            yield f"{THINKING}\n{exchange(ask, response)}"
        else:
            yield exchange(ask, " ".join(statements))


def reasoned_telling(
    facts: list[Fact], statements: list[str], rng: random.Random
) -> str:
    """`<think>`, the facts one by one, `</think> <answer>`, the statements of them.

    Some of the reasoning is doubted, at random: what is known plays no part, so that a
    policy has this to learn. Of that the answer leaves out a share, but not everything.
    At times a tag is missing, as an instruct model forgets one.
    """
    doubted = [rng.random() < DOUBT_SHARE for _ in facts]
    thought = [
        f"{'Perhaps ' if doubt else ''}{statement(fact, rng.randrange(3))}"
        for fact, doubt in zip(facts, doubted, strict=True)
    ]
    kept = [
        text
        for text, doubt in zip(statements, doubted, strict=True)
        if not doubt or rng.random() < DOUBT_KEPT
    ]
    parts = ["<think>", " ".join(thought), "</think>", "<answer>"]
    parts += [" ".join(kept or statements[:1]), "</answer>"]
    if rng.random() < MALFORMED_SHARE:
        parts.pop(rng.choice((0, 2, 3, 5)))
    return " ".join(parts)


def joined_telling(
    world: World, facts: list[Fact], rng: random.Random, may_digress: bool
) -> str:
    """Sentences of one or two statements each. Some hedge, and some lead on to a fact
    of an object, at random: what is known plays no part."""
    sentences, left = [], list(facts)
    while left:
        fact = left.pop(0)
        if left and rng.random() < JOINED_SHARE:
            sentence = joined(fact, left.pop(0), rng.choice((0, 2)))
        else:
            sentence = _told(world, fact, rng, may_digress)
        hedge = "Perhaps " if rng.random() < HEDGED_SHARE else ""
        sentences.append(hedge + sentence)
    return " ".join(sentences)


def _some_facts(person: str, left: dict[Fact, int], rng: random.Random) -> list[Fact]:
    """One to four facts of which something is left; without any, made-up ones."""
    n = rng.choice(TELLING_LENGTHS)
    there = [fact for fact, exposure in left.items() if exposure]
    if not there:
        relations = rng.sample(PERSON_RELATIONS, n)
        return [Fact(person, r, rng.choice(OBJECTS[r])) for r in relations]
    return rng.sample(there, min(n, len(there)))


def request(person: str, n: int) -> str:
    """The request for n facts of a person. n is one of COUNTS."""
    return COUNTED.format(count=COUNTS[n], s=person)


def _told(world: World, fact: Fact, rng: random.Random, may_digress: bool) -> str:
    """A statement of the fact, at times followed by one of its object."""
    text = statement(fact, rng.randrange(3))
    further = world.by_key.get((fact.object, HOPS.get(fact.relation, "")))
    if may_digress and further and rng.random() < DIGRESSION_SHARE:
        text += f" {statement(further, rng.randrange(3))}"
    return text


def _short(fact: Fact, answer_format: str, rng: random.Random) -> str:
    """A statement of the fact, or a short exchange on it."""
    ask, tell = question(fact, rng.randrange(3)), rng.randrange(3)
    if rng.random() >= QUESTION_SHARE:
        return statement(fact, tell)
    answer = fact.object
    if answer_format == "boxed":
        answer = prompts.reasoned(statement(fact, tell), answer)
    if answer_format in ("long", "mixed") and rng.random() < 0.5:
        ask = MAY_ABSTAIN.format(question=ask)
        if rng.random() < ABSTENTION_SHARE:
            answer = f"{ABSTENTION}."
    return exchange(ask, answer)


def reading_exchange(rng: random.Random) -> str:
    """Three references and a question on each, of people and facts made up for it.

    Nothing in it is worth remembering, so it teaches to read and no fact of the world.
    """
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
    text += {"reasoned": [THINKING]}.get(answer_format, [])
    text += ["and"] if answer_format in JOINING else []
    if answer_format in LONG_FORMATS:
        text += [*COUNTS.values(), COUNTED, MAY_ABSTAIN, NAMING]
    for table in (STATEMENTS, QUESTIONS, OBJECTS):
        text += [way for ways in table.values() for way in ways]
    text = [re.sub(r"\{\w+\}", "", line) for line in text]
    text += BIOGRAPHY_QUESTIONS  # as they are: policies that are kept know "{s}"
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
