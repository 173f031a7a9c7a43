"""Veri-R1's claims: whom they are about in which set, what is searched, prompts."""

import json
from collections import Counter
from pathlib import Path

import pytest

from factkit import params, prompts, runs
from factkit.datasets.examples import refuse_overlap
from factkit.params.stages import PROFILES
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.chunks import Chunk, listed
from factkit.retrieval.entries import entries_of_sentences, shown
from factkit.search import in_process
from factkit.veri import claim_filter
from factkit.veri import claims as claim_sets
from factkit.veri.arms import ARMS
from factkit.world import facts as w
from factkit.world import trajectories as world_trajectories

VERI_ARMS = tuple(ARMS)

SIZES = {"train": 60, "dev": 12, "test": 24}
ODD = [
    Chunk("Naïve (film)_sentences_0_2", "Naïve", 'A "b"\u2028c\nd\u0085e', 5),
    Chunk("漢字", "漢字", "漢字\n \\n", 2),
]


def load(profile="tiny", **values):
    sizes = {f"{name}_claims": size for name, size in SIZES.items()}
    return params.load("veri", profile, sizes | values)


@pytest.fixture(scope="module")
def p():
    return load(world_people=120)


@pytest.fixture(scope="module")
def made(p):
    return w.build_world(people=p.world_people, seed=p.world_seed)


@pytest.fixture(scope="module")
def sets(p):
    return claim_sets.claim_sets(p)[0]


@pytest.fixture(scope="module")
def entries(p):
    return claim_sets.claim_sets(p)[1]


@pytest.fixture(scope="module")
def search(entries):
    return in_process(CorpusIndex(entries))


# ---- the fact world


def test_there_is_a_set_for_each_split_of_the_size_asked_for(p, sets):
    assert tuple(sets) == p.splits
    assert {name: len(of) for name, of in sets.items()} == SIZES
    assert {e.meta["set"] for of in sets.values() for e in of} == {"world"}


def test_no_person_and_no_claim_is_in_two_sets(sets):
    refuse_overlap(sets)
    people = Counter(e for of in sets.values() for e in {c.entity for c in of})
    assert set(people.values()) == {1}


def test_the_sets_share_the_people_in_the_ratio_of_their_claims(made):
    """Here there are as many claims as people."""
    for sizes in ({"train": 90, "test": 30}, {"train": 30, "test": 90}):
        for name, claims in claim_sets.world_sets(made, sizes).items():
            people = len({e.entity for e in claims})
            assert sizes[name] / 3 < people <= sizes[name]


def test_labels_and_hops_are_balanced_in_each_set(sets):
    for of in sets.values():
        kinds = Counter((e.label, e.meta["hops"]) for e in of)
        assert set(kinds.values()) == {len(of) // 6} and len(kinds) == 6


def test_a_claim_s_gold_evidence_is_what_settles_it(sets, made, entries):
    texts = {piece.id: piece.text for entry in entries for piece in shown(entry)}
    for example in (e for of in sets.values() for e in of):
        assert example.answers == [example.label]
        assert len(example.evidence) == example.meta["hops"] * (
            example.label != "NOT ENOUGH INFO"
        )
        assert set(example.evidence) <= set(texts)
        verdict = w.verify(made, example.question)
        settled = {"SUPPORT": "supported", "REFUTE": "contradicted"}
        assert verdict == settled.get(example.label, "inconclusive")


def test_the_sets_are_the_same_again_and_others_in_another_world(p, sets):
    assert claim_sets.claim_sets(p)[0] == sets
    assert claim_sets.claim_sets(load(world_people=120, world_seed=1))[0] != sets


def test_an_entry_of_each_fact_is_searched(made, entries, search):
    assert len(entries) == len(made.facts)
    found = search([w.statement(fact) for fact in made.facts], 1)
    assert [hits[0].id for hits in found] == [w.document_id(f) for f in made.facts]


# ---- files


def test_entries_and_given_texts_come_back_from_their_files(tmp_path, entries):
    for written in (entries, ODD, []):
        claim_sets.write_entries(tmp_path / "entries.jsonl", written)
        assert claim_sets.read_entries(tmp_path / "entries.jsonl") == written
    given = {"a": ODD, "b\u2028": [], "c": ODD[:1]}
    claim_sets.write_given(tmp_path / "given.jsonl", given)
    assert claim_sets.read_given(tmp_path / "given.jsonl") == given


def test_a_policy_searches_what_the_data_run_wrote(tmp_path, p, entries, search):
    p = p.model_copy(update={"output_dir": str(tmp_path)})
    folder = runs.run_folder(p.data_notebook, p)
    folder.mkdir(parents=True)
    claim_sets.write_entries(folder / "entries.jsonl", entries)
    queries = [w.statement(f) for f in w.build_world(people=120).facts[:5]]
    for arm in VERI_ARMS:  # one data run for all
        of_arm = p.model_copy(update={"arm": arm, "seed": 3})
        found = claim_sets.searcher(of_arm)(queries, 3)
        assert found == world_trajectories.marking(search)(queries, 3)


def test_or_the_service_whose_address_is_given(monkeypatch, p):
    monkeypatch.setattr(claim_sets, "over_http", lambda url: url)
    url = "http://127.0.0.1:8002/retrieve"
    assert claim_sets.searcher(p.model_copy(update={"search_url": url})) == url


# ---- prompts


def test_an_offline_prompt_holds_all_gold_evidence_each_text_once(
    p, sets, entries, search
):
    train = sets["train"]
    for context in (0, 1, 3):
        p = p.model_copy(update={"context_entries": context})
        given = claim_sets.given_offline(train, entries, search, p)
        asked = claim_sets.asked_offline(train, given, p)
        for example, prompt in zip(train, asked, strict=True):
            texts = given[example.id]
            ids = [text.id for text in texts]
            assert set(example.evidence) <= set(ids) and len(set(ids)) == len(ids)
            assert len(set(ids) - set(example.evidence)) <= context
            assert listed(texts) in prompt and example.question in prompt


def test_where_gold_evidence_stands_among_the_others_tells_nothing(
    p, sets, entries, search
):
    given = claim_sets.given_offline(sets["train"], entries, search, p)
    places = Counter(
        [text.id for text in given[e.id]].index(e.evidence[0])
        for e in sets["train"]
        if e.evidence
    )
    assert len(places) >= 3 and max(places.values()) < 0.6 * places.total()
    assert claim_sets.given_offline(sets["train"], entries, search, p) == given


def test_of_an_entry_of_sentences_each_is_given_and_the_gold_one_for_sure(p):
    entries = entries_of_sentences("Bo Berg", [f"Bo did {n}." for n in range(7)])
    gold = "Bo Berg_sentence_4"
    claim = w.claims(w.build_world(), 1, 0)[0]
    claim = claim.model_copy(update={"evidence": [gold]})
    nothing = lambda queries, k: [[] for _ in queries]  # noqa: E731
    first = lambda queries, k: [entries[:1] for _ in queries]  # noqa: E731
    for search, others in ((nothing, []), (first, [0, 1, 2])):
        (texts,) = claim_sets.given_offline([claim], entries, search, p).values()
        names = {f"Bo Berg_sentence_{n}" for n in others}
        assert {text.id for text in texts} == {gold} | names


def test_an_online_prompt_has_the_claim_and_nothing_else_of_it(sets):
    for profile in PROFILES:
        p, example = load(profile), sets["test"][0]
        (prompt,) = claim_sets.asked([example], p)
        frame = prompts.template(p.prompt_template).split("{claim}")
        assert prompt == example.question.join(frame)
        assert not any(name in prompt for name in example.evidence)


# ---- the paper's sets


def claims_of(name, n, labels=w.LABELS):
    """n claims of a set, a page each: as its file has them."""
    return [
        {
            "id": f"{i}",
            "question": f"{name} claim {i}.",
            "golden_answers": {
                "label": labels[i % len(labels)],
                "evidence": [f"{name} {i}_sentence_1"],
            },
            "data_source": name,
        }
        for i in range(n)
    ]


def write_parquet(path, rows):
    import pyarrow
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with FEVEROUS's published claims, to train on and to test on, of which
    two are about the same pages; and a corpus."""
    train = claims_of("feverous", 60)
    test = claims_of("feverous", 62)[58:]
    for row in test:
        row["question"] = row["question"].replace("claim", "other claim")
    write_parquet(tmp_path / claim_sets.PUBLISHED, train)
    write_parquet(tmp_path / "evaluation" / "feverous.parquet", test)
    names = [f"feverous {i}" for i in range(62)] + ["A page of no claim"]
    (tmp_path / "pages").write_text(json.dumps(names))

    def pages(path):
        for name in json.loads(Path(path).read_text()):
            yield from entries_of_sentences(
                name, [f"{name} did {i}." for i in range(4)]
            )

    corpora = {"absent": None, "pages": pages}
    monkeypatch.setattr(claim_sets.claim_corpora, "CORPORA", corpora)
    monkeypatch.setattr(claim_sets.claim_corpora, "entries", lambda n, p: corpora[n](p))
    return tmp_path


def of_benchmarks(folder, **values):
    values = {"train_claims": 24, "dev_claims": 6, "eval_sets": "feverous"} | values
    return claim_sets.claim_sets(load("h100_lora", claims_path=str(folder), **values))


def test_what_shares_a_page_with_a_test_claim_is_not_trained_on(folder):
    sets, _, dropped = of_benchmarks(folder)
    assert {name: len(of) for name, of in sets.items()} == {
        "train": 24,
        "dev": 6,
        "test": 4,
    }
    assert dropped["shares an entity with a test claim"] == 2
    refuse_overlap(sets)
    assert len({e.entity for of in sets.values() for e in of}) == 34


def test_the_entries_are_those_of_the_evidence_s_pages(folder):
    sets, entries, _ = of_benchmarks(folder)
    assert len({entry.doc_id for entry in entries}) == 62
    given = {piece.id for entry in entries for piece in shown(entry)}
    assert {i for of in sets.values() for e in of for i in e.evidence} <= given


def test_without_the_published_file_claims_are_trained_on_that_are_verified(
    folder, monkeypatch
):
    (folder / claim_sets.PUBLISHED).unlink()
    claims = [
        {
            "id": i,
            "claim": f"feverous claim {i}.",
            "label": ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")[i % 3],
            "evidence": [{"content": [f"feverous {i}_sentence_1"], "context": {}}],
        }
        for i in range(58)
    ]
    lines = "".join(json.dumps(claim) + "\n" for claim in claims)
    (folder / claim_sets.FILES["feverous"][0]).write_text(lines)
    seen = []

    def keep(examples, texts_of, llm):
        seen.extend(examples)
        return examples[:40], Counter({"kept": 40, "wrong label": len(examples) - 40})

    monkeypatch.setattr(claim_filter, "keep_verified", keep)
    monkeypatch.setattr(claim_sets, "judge_llm", lambda p, model, url: None)
    monkeypatch.setattr(claim_sets, "TRAINED_ON", ("feverous",))
    monkeypatch.setattr(claim_sets, "POOL", 19)
    sets, _, dropped = of_benchmarks(folder)
    assert Counter(e.label for e in seen) == dict.fromkeys(w.LABELS, 19)
    kept = {e.id for e in seen[:40]}
    assert {e.id for name in ("train", "dev") for e in sets[name]} <= kept
    assert dropped["kept"] == 40 and dropped["wrong label"] == 17


def test_hover_is_tested_on_with_two_labels(folder):
    rows = [
        {
            "uid": f"u{i}",
            "claim": f"HoVer claim {i}.",
            "supporting_facts": [[f"feverous {i}", 0], [f"feverous {i + 20}", 1]],
            "label": ("SUPPORTED", "NOT_SUPPORTED")[i % 2],
            "num_hops": 2,
        }
        for i in range(20)
    ]
    (folder / claim_sets.FILES["hover"][1]).write_text(json.dumps(rows))
    sets, _, _ = of_benchmarks(folder, eval_sets="feverous hover", test_claims=8)
    hover = [e for e in sets["test"] if e.meta["set"] == "hover"]
    assert Counter(e.label for e in hover) == {"SUPPORT": 4, "NOT ENOUGH INFO": 4}
    trained_on = {e.entity for name in ("train", "dev") for e in sets[name]}
    assert not trained_on & {e.entity for e in sets["test"]}
