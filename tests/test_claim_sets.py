"""Veri-R1's claims: whom they are about in which set, what is searched, prompts."""

import json
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from small_tokenizers import of_words

from factkit.data.bm25 import CorpusIndex
from factkit.data.corpus import format_chunks
from factkit.data.entries import split_entry
from factkit.data.examples import LABELS, DataError, refuse_overlap
from factkit.data.search import in_process
from factkit.facts.world import facts as w
from factkit.papers.veri import data as claim_data
from factkit.papers.veri import search_rollout
from factkit.run import params

SUPPORT, REFUTE, NEI = LABELS
SIZES = {"train": 60, "dev": 12, "test": 24}


def load(profile="tiny", **values):
    sizes = {f"{name}_claims": size for name, size in SIZES.items()}
    return params.load(
        "veri", profile, {"rl_batch_size": 24, "minibatches": 1} | sizes | values
    )


@pytest.fixture(scope="module")
def p():
    return load(world_people=120)


@pytest.fixture(scope="module")
def made(p):
    return w.build_world(people=p.world_people, seed=p.world_seed)


@pytest.fixture(scope="module")
def data(p):
    return claim_data.claim_sets(p)


@pytest.fixture(scope="module")
def sets(data):
    return data[0]


@pytest.fixture(scope="module")
def entries(data):
    return data[1]


@pytest.fixture(scope="module")
def search(entries):
    return in_process(CorpusIndex(entries))


# ---- the fact world


def test_sets_have_their_size_balanced_labels_and_hops_and_no_person_in_two(sets):
    refuse_overlap(sets)
    assert {name: len(claims) for name, claims in sets.items()} == SIZES
    for claims in sets.values():
        kinds = Counter((e.label, e.meta["hops"]) for e in claims)
        assert set(kinds.values()) == {len(claims) // 6} and len(kinds) == 6
        assert {e.meta["set"] for e in claims} == {"world"}


def test_a_claim_s_gold_evidence_is_what_settles_it(sets, made, entries):
    texts = {piece.id: piece.text for entry in entries for piece in split_entry(entry)}
    settled = {SUPPORT: "supported", REFUTE: "contradicted", NEI: "inconclusive"}
    for example in (e for claims in sets.values() for e in claims):
        hops = example.meta["hops"] * (example.label != NEI)
        assert len(example.evidence) == hops and set(example.evidence) <= set(texts)
        assert made.verify(example.question) == settled[example.label]


# ---- what is searched


# ---- prompts


def test_an_offline_prompt_holds_all_gold_evidence_each_text_once(
    p, sets, entries, search
):
    for context in (0, 3):
        given = claim_data.offline_evidence(sets["train"], entries, search, context)
        asked = search_rollout.format_prompts(sets["train"], p.offline_template, given)
        for example, prompt in zip(sets["train"], asked, strict=True):
            ids = [text.id for text in given[example.id]]
            assert set(example.evidence) <= set(ids) and len(set(ids)) == len(ids)
            assert len(set(ids) - set(example.evidence)) <= context
            assert (
                format_chunks(given[example.id]) in prompt
                and example.question in prompt
            )


def test_an_offline_prompt_that_is_too_long_loses_texts_but_never_gold(
    p, sets, entries, search
):
    claims = [e for e in sets["train"] if e.evidence][:6]
    given = claim_data.offline_evidence(claims, entries, search, p.context_entries)
    tokenizer, longest = of_words("any"), p.max_completion_length
    prompts = search_rollout.format_prompts(claims, p.offline_template, given)
    longest += (
        min(map(len, search_rollout.tokenize_prompts(prompts, tokenizer, p.chat))) - 1
    )
    short = p.model_copy(update={"max_context_length": longest})
    before = sum(map(len, given.values()))
    dropped = claim_data.fit_evidence(given, claims, tokenizer, short)
    assert dropped == before - sum(map(len, given.values())) >= len(claims)
    assert all({c.id for c in given[e.id]} >= set(e.evidence) for e in claims)
    assert claim_data.fit_evidence(given, claims, tokenizer, p) == 0  # there is room


# ---- the paper's sets


def rows_of(name, numbers, kind="claim"):
    """Published rows of a set, each about a page of its own."""
    return [
        {
            "id": f"{kind}{i}",
            "question": f"{name} {kind} {i}.",
            "golden_answers": {
                "label": LABELS[i % 3],
                "evidence": [f"{name} {i}_sentence_1"],
            },
            "data_source": name,
        }
        for i in numbers
    ]


@pytest.fixture
def folder(tmp_path):
    """A folder with FEVEROUS's published claims, to train on and to test on, of which
    two are about the same pages; and a corpus."""
    import pyarrow
    from pyarrow import parquet

    test = claim_data.EVALUATION.format(set="feverous")
    for path, rows in (
        (claim_data.PUBLISHED, rows_of("feverous", range(60))),
        (test, rows_of("feverous", range(58, 62), "test")),
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / path)
    rows = [
        (title, json.dumps({f"sentence_{i}": f"{title} {i}." for i in range(4)}))
        for title in (*(f"feverous {i}" for i in range(62)), "A page of no claim")
    ]
    with closing(sqlite3.connect(tmp_path / "feverous_wikiv1.db")) as corpus, corpus:
        corpus.execute("CREATE TABLE wiki (id PRIMARY KEY, data json)")
        corpus.executemany("INSERT INTO wiki VALUES (?, ?)", rows)
    return tmp_path


def of_benchmarks(folder, **values):
    values = {"train_claims": 24, "dev_claims": 6, "eval_sets": "feverous"} | values
    return claim_data.claim_sets(load("h100_lora", claims_path=str(folder), **values))


def test_what_shares_a_page_with_a_test_claim_is_not_trained_on(folder):
    sets, entries, dropped = of_benchmarks(folder)
    assert {k: len(v) for k, v in sets.items()} == {"train": 24, "dev": 6, "test": 4}
    assert dropped["shares an entity with a test claim"] == 2
    refuse_overlap(sets)
    assert len({entry.doc_id for entry in entries}) == 60  # the evidence's pages alone
    texts = {piece.id for entry in entries for piece in split_entry(entry)}
    learnt = [*sets["train"], *sets["dev"]]
    assert {i for e in learnt for i in e.evidence} <= texts


def test_of_a_published_set_at_most_as_many_claims_are_tested_on_as_asked_for(folder):
    (whole, few), others = (
        (of_benchmarks(folder, test_claims=n)[0]["test"] for n in (900, 3)),
        of_benchmarks(folder, test_claims=3)[0]["test"],
    )
    assert few == others == [e for e in whole if e in few] and len(few) == 3
    with pytest.raises(params.ParamError, match="eval_sets='fevre': there are fever"):
        of_benchmarks(folder, eval_sets="fevre")


def test_a_corpus_that_is_not_there_is_named(folder):
    (folder / "feverous_wikiv1.db").unlink()
    with pytest.raises(DataError, match="feverous_wikiv1.db: no such file"):
        of_benchmarks(folder)
