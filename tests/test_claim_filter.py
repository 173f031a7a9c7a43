"""The filter keeps what an LLM verifies exactly, and counts every other fate."""

import asyncio
from collections import Counter

from fake_endpoint import answer, prompt_of, refuse, serve

from factkit import prompts
from factkit.datasets.examples import Example
from factkit.llm import LLM, Endpoint, Limits
from factkit.retrieval.entries import entries_of_sentences, page_entry
from factkit.veri.claim_filter import FATES, in_context, keep_verified
from factkit.verify.trajectory import Turn, answer_of, well_formed
from factkit.world.facts import LABELS

SUPPORT, REFUTE, NEI = LABELS
PAGES = {
    name: entries_of_sentences(name, [f"{name} did {i}." for i in range(9)])
    for name in ("Bo", "Al", "Cy", "Di", "Ed", "Flo")
}


def claim(name, label=SUPPORT, evidence=("Bo_sentence_4",), answers=None):
    return Example(
        id=name,
        question=f"Claim {name}.",
        answers=answers or [label],
        entity="Bo",
        label=label,
        evidence=list(evidence),
    )


def verdict(label, *evidence):
    listed = ", ".join(f"[[{e}]]" for e in evidence)
    return (
        f"<think> So. </think>\n<answer>\nLabel: {label}\nEvidence: {listed}\n</answer>"
    )


def filtered(replies, examples, texts=None):
    """keep_verified with an endpoint that says replies[name] of each claim."""

    def behave(body, attempt):
        name = prompt_of(body).partition("Claim ")[2].partition(".")[0]
        reply = replies[name]
        return answer(reply) if isinstance(reply, str) else reply

    with serve(behave) as server:
        llm = LLM(Endpoint(server.url, "m", "k"), limits=Limits(attempts=1))
        return keep_verified(examples, texts or in_context(PAGES), llm), server


# ---- fates


def test_a_claim_is_kept_only_for_the_right_label_and_exact_evidence():
    four, two = ["Bo_sentence_4"], ["Bo_sentence_4", "Al_sentence_0"]
    cases = (
        (claim("a0"), verdict(SUPPORT, *four), "kept"),
        (claim("a1"), verdict(REFUTE, *four), "wrong label"),
        (claim("a2"), verdict(NEI), "wrong label"),
        (claim("a3"), verdict(SUPPORT), "wrong evidence"),
        (claim("a4"), verdict(SUPPORT, "Bo_sentence_3"), "wrong evidence"),
        (claim("a5"), verdict(SUPPORT, *four, "Bo_sentence_5"), "wrong evidence"),
        (claim("a6", REFUTE, two), verdict(REFUTE, *two[::-1]), "kept"),
        (claim("a7", REFUTE, two), verdict(REFUTE, two[1]), "wrong evidence"),
        (claim("a8", NEI), verdict(NEI, "Bo_sentence_1"), "kept"),
        (claim("a9", NEI, []), verdict(NEI), "kept"),
        (claim("b0", NEI), verdict(SUPPORT, *four), "wrong label"),
        (claim("b1", NEI, answers=[NEI, REFUTE]), verdict(REFUTE, *four), "kept"),
        (claim("b2"), "I think that it is true.", "unreadable"),
        (claim("b3"), verdict("MAYBE", *four), "unreadable"),
        (claim("b4"), refuse(400), "failed"),
        (claim("b5"), answer(None), "failed"),
        (claim("b6", evidence=["Gus_sentence_0"]), None, "evidence not in the corpus"),
        (claim("b7", evidence=["Bo_sentence_99"]), None, "evidence not in the corpus"),
    )
    replies = {example.id: reply for example, reply, _ in cases}
    (kept, counts), server = filtered(replies, [example for example, *_ in cases])
    assert kept == [example for example, _, fate in cases if fate == "kept"]
    assert counts == Counter(fate for *_, fate in cases)
    assert tuple(counts) == FATES
    assert len(server.bodies) == len(cases) - 2  # what can't be cited isn't asked
    for example, reply, fate in cases:
        (_, counts), _ = filtered({example.id: reply}, [example])
        assert +counts == {fate: 1}, example.id


def test_a_failed_call_is_asked_again_and_an_answer_is_not(tmp_path):
    def behave(body, attempt):
        failing = "Claim b." in prompt_of(body) and attempt == 0
        return refuse(400) if failing else answer(verdict(SUPPORT, "Bo_sentence_4"))

    with serve(behave) as server:
        llm = LLM(Endpoint(server.url, "m", "k"), tmp_path, Limits(attempts=1))
        examples, texts = [claim("a"), claim("b")], in_context(PAGES)
        first = keep_verified(examples, texts, llm)
        again = keep_verified(examples, texts, llm)
    assert [e.id for e in first[0]] == ["a"]
    assert first[1]["failed"] == 1
    assert [e.id for e in again[0]] == ["a", "b"]
    assert len(server.bodies) == 3


def test_the_filter_runs_in_a_notebooks_loop_and_without_claims_makes_no_calls():
    async def cell(examples):
        return filtered({"a": verdict(SUPPORT, "Bo_sentence_4")}, examples)

    (kept, _), _ = asyncio.run(cell([claim("a")]))
    assert len(kept) == 1
    (kept, counts), server = asyncio.run(cell([]))
    assert (kept, counts.total(), server.bodies) == ([], 0, [])


# ---- what the LLM is given


def test_the_llm_reads_the_claim_and_every_text_after_its_id():
    example = claim("a", evidence=["Bo_sentence_4", "Al_sentence_0"])
    texts = in_context(PAGES)
    _, server = filtered({"a": verdict(NEI)}, [example], texts)
    (prompt,) = server.prompts()
    assert "Claim a." in prompt
    for text in texts(example):
        assert f"\n[[{text.id}]]: {text.text}\n" in prompt


def test_the_evidence_stands_among_other_sentences_of_its_pages_in_their_order():
    example = claim("a", evidence=["Bo_sentence_4", "Al_sentence_0", "Bo_sentence_1"])
    found = [text.id for text in in_context(PAGES, others=3)(example)]
    assert set(example.evidence) <= set(found)
    assert len(found) == len(set(found)) == 3 + 2 * 3
    assert {i.partition("_")[0] for i in found} == {"Bo", "Al"}
    for page in ("Bo", "Al"):
        of_page = [i for i in found if i.startswith(page)]
        assert of_page == sorted(of_page)
        assert found.index(of_page[-1]) - found.index(of_page[0]) == len(of_page) - 1


def test_a_short_page_gives_what_it_has():
    pages = PAGES | {"Short": entries_of_sentences("Short", ["One.", "Two."])}
    found = in_context(pages)(claim("a", evidence=["Short_sentence_1"]))
    assert [text.id for text in found] == ["Short_sentence_0", "Short_sentence_1"]


def test_pages_as_evidence_stand_among_other_pages():
    pages = {name: [page_entry(name, f"{name} did.")] for name in PAGES}
    example = claim("a", evidence=["Bo", "Al"])
    found = [text.id for text in in_context(pages, others=3)(example)]
    assert {"Bo", "Al"} <= set(found)
    assert len(found) == len(set(found)) == 5
    orders = {tuple(t.id for t in in_context(pages, 3, s)(example)) for s in range(9)}
    assert len(orders) > 1


def test_a_claim_without_evidence_is_given_other_pages():
    found = in_context(PAGES, others=2)(claim("a", NEI, []))
    assert len({text.doc_id for text in found}) == 2


def test_a_claims_texts_are_the_same_each_time_whatever_else_is_asked():
    first, second = in_context(PAGES, seed=1), in_context(PAGES, seed=1)
    first(claim("b"))
    assert first(claim("a")) == second(claim("a"))


# ---- the prompts


def test_the_prompts_example_of_an_answer_is_one_once_it_has_a_label():
    end = "</answer>"
    for name in ("verify_claim_online", "verify_claim_offline"):
        text = prompts.template(name)
        shown = text[text.rindex("<answer>") : text.rindex(end) + len(end)]
        assert "Label: one of SUPPORT, REFUTE, NOT ENOUGH INFO\n" in shown
        for label in LABELS:
            filled = shown.replace("one of SUPPORT, REFUTE, NOT ENOUGH INFO", label)
            read = answer_of([Turn(filled, by_model=True)])
            assert (read.label, read.evidence) == (label, ("id 1", "id 2"))
            turns = [Turn(f"<think> So. </think>{filled}", by_model=True)]
            assert well_formed(turns, online=False)
