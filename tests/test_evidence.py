"""The document cache of each prompt: its file, its search, building it, and A.3."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.corpus import Document
from factkit.datasets.examples import DataError, Example
from factkit.retrieval import evidence as ev
from factkit.retrieval.bm25 import CorpusIndex, PromptIndex
from factkit.retrieval.chunks import Chunk, Hit, chunk_documents
from factkit.retrieval.evidence import (
    EvidenceCache,
    build_offline,
    contradicting_documents,
    coverage,
    query_of,
    read_evidence,
    write_evidence,
)
from factkit.world import facts as worlds
from factkit.world import texts as world_text


@pytest.fixture(scope="module")
def world():
    return worlds.build_world(people=30)


@pytest.fixture(scope="module")
def tokenizer(world):
    return world_text.build_tokenizer(world)


def document(i="d", text="some text", title="t"):
    return Document(i, title, text, "test")


PAGES = {
    "p1": [document("fox", "The red fox sleeps in its den all day long.")],
    "p2": [
        document("iron", "Iron is a metal. Its symbol is Fe."),
        document("gold", "Gold is a metal too. Its symbol is Au."),
    ],
}

# The file

names = st.text(min_size=1, max_size=5).filter(lambda t: t.isprintable())
documents = st.builds(
    Document,
    id=names,
    title=st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(
        lambda text: text.strip()
    ),
    source=names,
)
pages = st.lists(documents, min_size=1, max_size=3, unique_by=lambda d: d.id)


@given(st.dictionaries(names, pages, min_size=1, max_size=3))
def test_what_is_written_is_read_back_in_its_order(tmp_path_factory, evidence):
    path = tmp_path_factory.mktemp("evidence") / "evidence.jsonl"
    write_evidence(path, evidence)
    assert list(read_evidence(path).items()) == list(evidence.items())


def test_equal_evidence_gives_equal_bytes(tmp_path):
    write_evidence(tmp_path / "a.jsonl", PAGES)
    write_evidence(tmp_path / "b.jsonl", read_evidence(tmp_path / "a.jsonl"))
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_nothing_is_left_of_a_file_that_could_not_be_written_whole(tmp_path):
    write_evidence(tmp_path / "a.jsonl", PAGES)
    with pytest.raises(AttributeError):
        write_evidence(tmp_path / "a.jsonl", {"p": [document()], "q": ["no document"]})
    assert read_evidence(tmp_path / "a.jsonl") == PAGES
    assert len(list(tmp_path.iterdir())) == 1


def row(i="p2", **more):
    fields = {"id": "d", "title": "t", "text": "x", "source": "s"}
    return json.dumps({"id": i, "documents": [fields | more]}).encode()


TWICE = json.loads(row())
TWICE["documents"] *= 2
BAD = {
    "not UTF-8": b'{"id": "\xff"}',
    "not JSON": b"",
    "id: Field required": b'{"documents": []}',
    "documents: List should have at least 1": b'{"id": "p2", "documents": []}',
    "documents.0.text: String should match": row(text=" \n"),
    "documents.0.text: Input should be a valid string ('3')": row(text="x").replace(
        b'"x"', b"3"
    ),
    "documents.0.url: Extra inputs": row(url="u"),
    "id: String should have at least 1": row(""),
    "'p1' is an earlier row's": row("p1"),
    "document 'd' occurs 2 times": json.dumps(TWICE).encode(),
    "half a character": row(title="\ud800"),
    "valid dictionary": b"[]",
}


@pytest.mark.parametrize("problem", BAD)
def test_a_bad_row_is_refused_by_file_row_value_and_fix(tmp_path, problem):
    path = tmp_path / "evidence.jsonl"
    path.write_bytes(row("p1") + b"\n" + BAD[problem] + b"\n" + row("p3"))
    with pytest.raises(DataError, match="evidence.jsonl, row 2.*mend") as error:
        read_evidence(path)
    assert problem in str(error.value)


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_file_is_refused(tmp_path, content):
    path = tmp_path / "evidence.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match="evidence.jsonl"):
        read_evidence(path)


# The search


def test_a_search_stays_within_the_prompts_own_documents(tokenizer):
    cache = EvidenceCache(PAGES, tokenizer)
    assert [h.chunk.doc_id for h in cache.search("p1", "metal fox", 5)] == ["fox"]
    assert [h.chunk.doc_id for h in cache.search("p2", "Au metal fox", 5)] == [
        "gold",
        "iron",
    ]
    assert cache.search("p1", "metal", 5) == []


def test_a_search_is_bm25_over_the_prompts_chunks(world, tokenizer):
    own = worlds.documents(world)[:12]
    cache = EvidenceCache({"p": own}, tokenizer, chunk_tokens=4)
    chunks = chunk_documents(own, tokenizer, 4)
    assert len(chunks) > len(own)
    query = query_of("Who?", worlds.biography(world, world.people[0]))
    expected = CorpusIndex(chunks, cache=False).search(query, 8)
    assert cache.search("p", query, 8) == expected


def test_an_unknown_prompt_is_refused_by_name(tokenizer):
    with pytest.raises(DataError, match="'p3'.*2 prompts"):
        EvidenceCache(PAGES, tokenizer).search("p3", "x", 1)


@pytest.mark.parametrize("wrong", [{"chunk_tokens": 0}, {"tokenizer": None}])
def test_what_can_not_cut_chunks_is_refused_before_the_first_search(tokenizer, wrong):
    with pytest.raises(ValueError):
        EvidenceCache(**{"evidence": PAGES, "tokenizer": tokenizer} | wrong)


@pytest.fixture
def built(monkeypatch):
    """The number of chunks of each index built, in order."""
    seen = []

    class Counted(PromptIndex):
        def __init__(self, chunks):
            super().__init__(chunks)
            seen.append(len(self.chunks))

    monkeypatch.setattr(ev, "PromptIndex", Counted)
    return seen


def test_a_prompts_index_is_built_at_its_first_search_and_kept(tokenizer, built):
    cache = EvidenceCache(PAGES, tokenizer)
    assert built == []
    for _ in range(3):
        cache.search("p2", "metal", 1)
    assert built == [2]


def test_the_index_used_longest_ago_is_given_up_first(tokenizer, built):
    pages = {p: [document("d", "a fox")] for p in "abc"}
    cache = EvidenceCache(pages, tokenizer, indexes=2)
    for prompt in "abacab":  # c drives out b, then b drives out c
        cache.search(prompt, "fox", 1)
    assert len(built) == 4


def test_the_query_is_prompt_and_response_or_the_response_alone():
    assert query_of("Who was Ada?", "A poet.") == "Who was Ada?\nA poet."
    assert query_of("Who was Ada?", "A poet.", with_prompt=False) == "A poet."


# Building offline

CORPUS = [
    document("Ada", "Ada Lovelace wrote notes on the engine. The engine of Babbage."),
    document("Babbage", "Charles Babbage drew the engine."),
    document("Engine", "An engine that computes, of brass."),
    document("Iron", "Iron is a metal."),
    document("Byron", "Lord Byron wrote poems."),
]
BY_ID = {d.id: d for d in CORPUS}


def index_of(texts, chunk_words=3):
    """BM25 over chunks of a few words."""
    chunks = []
    for d in texts:
        words = d.text.split()
        for i in range(0, len(words), chunk_words):
            piece = " ".join(words[i : i + chunk_words])
            chunks.append(Chunk(f"{d.id}#{i}", d.id, piece, chunk_words))
    return PromptIndex(chunks)


def example(i=0, answer="the engine", evidence=(), question="Lovelace?"):
    fields = {"entity": "e", "question": question, "answers": [answer]}
    return Example(id=f"q{i}", evidence=list(evidence), **fields)


def ids(evidence, prompt="q0"):
    return [d.id for d in evidence[prompt]]


def test_prompt_and_reference_find_documents_each_once_best_first():
    built, counts = build_offline([example()], index_of(CORPUS), BY_ID, at_least=1)
    assert ids(built)[0] == "Ada"
    assert sorted(ids(built)) == ["Ada", "Babbage", "Engine"]
    assert counts["kept"] == 1


def test_documents_with_many_good_chunks_do_not_crowd_out_the_others():
    long = document("Long", "engine engine engine " * 40)
    corpus = [long, *CORPUS]
    built, _ = build_offline(
        [example(answer="engine")], index_of(corpus), BY_ID | {"Long": long}
    )
    assert set(ids(built)) == {"Long", "Ada", "Babbage", "Engine"}


def test_gold_documents_come_first_and_no_prompt_has_more_than_its_pages():
    rows = [example(evidence=["Iron", "Engine"])]
    built, _ = build_offline(rows, index_of(CORPUS), BY_ID, pages=3)
    assert ids(built) == ["Iron", "Engine", "Ada"]


@pytest.mark.parametrize(("at_least", "kept"), [(3, 1), (4, 0)])
def test_a_prompt_with_too_few_documents_is_dropped_and_counted(at_least, kept):
    built, counts = build_offline(
        [example()], index_of(CORPUS), BY_ID, at_least=at_least
    )
    assert (len(built), counts["kept"], counts["too few documents"]) == (
        kept,
        kept,
        1 - kept,
    )


@pytest.mark.parametrize("answers", [[], [""], [" \n"]])
def test_a_prompt_without_reference_is_dropped_and_counted(answers):
    rows = [example().model_copy(update={"answers": answers})]
    built, counts = build_offline(rows, index_of(CORPUS), BY_ID, at_least=0)
    assert (built, counts["no reference response"]) == ({}, 1)


def test_every_prompt_has_one_fate():
    rows = [example(0), example(1, answer=" "), example(2, "Iron", question="?")]
    _, counts = build_offline(rows, index_of(CORPUS), BY_ID)
    assert counts == {
        "kept": 1,
        "too few documents": 1,
        "no reference response": 1,
    }


@pytest.mark.parametrize("evidence", [["Nobody"], []])
def test_a_document_that_the_corpus_lacks_is_refused_by_name(evidence):
    known = {i: d for i, d in BY_ID.items() if i != "Babbage"}
    with pytest.raises(DataError, match="q0.*(Nobody|Babbage)"):
        build_offline([example(evidence=evidence)], index_of(CORPUS), known)


def test_a_repeated_prompt_id_is_refused():
    with pytest.raises(DataError, match="q0.*2 times"):
        build_offline([example(), example()], index_of(CORPUS), BY_ID)


# Coverage (A.3)


def hits(*doc_ids):
    return [Hit(Chunk(f"{i}#0", i, "x", 1), 1.0) for i in doc_ids]


def test_coverage_is_that_of_a_hand_calculation():
    rows = [
        ([{"a"}], hits("a", "b")),  # its one error is covered
        ([{"a"}, {"c"}], hits("b", "c")),  # one of two
        ([{"a", "b"}], hits("b")),  # half of the evidence: not covered
        ([{"d"}], []),
        ([], hits("a")),  # no error: does not count
    ]
    found = coverage(rows)
    assert (found.responses, found.responses_covered) == (4, 2)
    assert (found.errors, found.errors_covered) == (5, 2)
    assert found.share == 0.5


def test_without_errors_there_is_no_share():
    assert coverage([([], hits("a"))]).share is None


def test_an_error_without_documents_is_refused():
    with pytest.raises(ValueError, match="without documents"):
        coverage([([{"a"}, set()], hits("a"))])


error_rows = st.lists(
    st.tuples(
        st.lists(st.sets(st.sampled_from("abcd"), min_size=1), max_size=4),
        st.lists(st.sampled_from("abcd"), max_size=4),
    ),
    max_size=8,
)


@given(error_rows, st.sampled_from("abcd"))
def test_more_chunks_never_lower_the_coverage(rows, more):
    before = coverage([(errors, hits(*found)) for errors, found in rows])
    after = coverage([(errors, hits(*found, more)) for errors, found in rows])
    assert (before.responses, before.errors) == (after.responses, after.errors)
    assert before.responses_covered <= after.responses_covered
    assert before.errors_covered <= after.errors_covered


def test_the_worlds_claims_are_contradicted_by_the_documents_that_they_name(world):
    rows = worlds.claims(world, 60, seed=1)
    for claim in rows:
        expected = claim.evidence if claim.label == "REFUTE" else []
        assert contradicting_documents(world, claim.question) == expected


def test_a_wrong_biography_is_covered_by_the_persons_own_documents(world, tokenizer):
    known = {d.id: d for d in worlds.documents(world)}
    index = CorpusIndex(chunk_documents(known.values(), tokenizer, 512), cache=False)
    first, second, *_ = world.people
    wrong = worlds.biography(world, second).replace(second, first)
    errors = [contradicting_documents(world, f"{s}.") for s in wrong[:-1].split(". ")]
    errors = [error for error in errors if error]
    assert errors
    question = f"Who was {first}?"
    row = example(answer=worlds.biography(world, first), question=question)
    built, _ = build_offline([row], index, known)
    found = EvidenceCache(built, tokenizer).search("q0", query_of(question, wrong), 8)
    assert coverage([(errors, found)]).share == 1.0
