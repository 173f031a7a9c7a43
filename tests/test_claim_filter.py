"""The filter keeps what an LLM verifies exactly, and counts every other fate."""

import asyncio
from collections import Counter

import pytest
from fake_endpoint import answer, prompt_of, refuse, serve

from factkit import prompts
from factkit.backends import Endpoint
from factkit.curate.claim_filter import FATES, in_context, keep_verified
from factkit.datasets.examples import Example
from factkit.llm import LLM, Limits
from factkit.retrieval.entries import entries_of_sentences, page_entry
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


def filtered(said, examples, texts=None):
    """keep_verified with an endpoint that says said[name] of each claim."""

    def behave(body, attempt):
        name = prompt_of(body).partition("Claim ")[2].partition(".")[0]
        found = said[name]
        return answer(found) if isinstance(found, str) else found

    with serve(behave) as server:
        llm = LLM(Endpoint(server.url, "m", "k"), limits=Limits(attempts=1))
        return keep_verified(examples, texts or in_context(PAGES), llm), server


# ---- fates


@pytest.mark.parametrize(
    ("example", "said", "fate"),
    [
        (claim("a"), verdict(SUPPORT, "Bo_sentence_4"), "kept"),
        (claim("a"), verdict(REFUTE, "Bo_sentence_4"), "wrong label"),
        (claim("a"), verdict(NEI), "wrong label"),
        (claim("a"), verdict(SUPPORT), "wrong evidence"),
        (claim("a"), verdict(SUPPORT, "Bo_sentence_3"), "wrong evidence"),
        (
            claim("a"),
            verdict(SUPPORT, "Bo_sentence_4", "Bo_sentence_5"),
            "wrong evidence",
        ),
        (
            claim("a", REFUTE, ["Bo_sentence_4", "Al_sentence_0"]),
            verdict(REFUTE, "Al_sentence_0", "Bo_sentence_4"),
            "kept",
        ),
        (
            claim("a", REFUTE, ["Bo_sentence_4", "Al_sentence_0"]),
            verdict(REFUTE, "Al_sentence_0"),
            "wrong evidence",
        ),
        (claim("a", NEI), verdict(NEI, "Bo_sentence_1"), "kept"),
        (claim("a", NEI, []), verdict(NEI), "kept"),
        (claim("a", NEI), verdict(SUPPORT, "Bo_sentence_4"), "wrong label"),
        (
            claim("a", NEI, answers=[NEI, REFUTE]),
            verdict(REFUTE, "Bo_sentence_4"),
            "kept",
        ),
        (claim("a"), "I think that it is true.", "unreadable"),
        (claim("a"), verdict("MAYBE", "Bo_sentence_4"), "unreadable"),
        (claim("a"), refuse(400), "failed"),
        (claim("a", evidence=["Gus_sentence_0"]), "never asked", "evidence not in"),
        (claim("a", evidence=["Bo_sentence_99"]), "never asked", "evidence not in"),
    ],
)
def test_a_claim_is_kept_only_for_the_right_label_and_exact_evidence(
    example, said, fate
):
    (kept, counts), server = filtered({"a": said}, [example])
    (met,) = [name for name, n in counts.items() if n]
    assert met.startswith(fate)
    assert kept == ([example] if fate == "kept" else [])
    assert len(server.bodies) == (said != "never asked")


def test_every_claim_has_one_fate_and_the_kept_stay_in_order():
    said = {
        "a": verdict(SUPPORT, "Bo_sentence_4"),
        "b": refuse(400),
        "c": verdict(REFUTE, "Bo_sentence_4"),
        "d": answer(None),
        "e": verdict(SUPPORT, "Bo_sentence_4"),
    }
    examples = [claim(name) for name in "abcde"]
    examples.insert(2, claim("lost", evidence=["Gus_sentence_0"]))
    (kept, counts), _ = filtered(said, examples)
    assert [e.id for e in kept] == ["a", "e"]
    assert counts == Counter(
        {
            "kept": 2,
            "wrong label": 1,
            "failed": 2,
            "evidence not in the corpus": 1,
            "wrong evidence": 0,
            "unreadable": 0,
        }
    )
    assert tuple(counts) == FATES


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


def test_no_claims_make_no_calls():
    (kept, counts), server = filtered({}, [])
    assert (kept, counts.total(), server.bodies) == ([], 0, [])


def test_the_filter_runs_in_a_notebooks_loop():
    async def cell():
        return filtered({"a": verdict(SUPPORT, "Bo_sentence_4")}, [claim("a")])

    (kept, _), _ = asyncio.run(cell())
    assert len(kept) == 1


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


@pytest.mark.parametrize("name", ["verify_claim_online", "verify_claim_offline"])
def test_the_prompts_example_of_an_answer_is_one_once_it_has_a_label(name):
    text = prompts.template(name)
    shown = text[text.rindex("<answer>") : text.rindex("</answer>") + len("</answer>")]
    assert "Label: one of SUPPORT, REFUTE, NOT ENOUGH INFO\n" in shown
    for label in LABELS:
        said = shown.replace("one of SUPPORT, REFUTE, NOT ENOUGH INFO", label)
        found = answer_of([Turn(said, by_model=True)])
        assert (found.label, found.evidence) == (label, ("id 1", "id 2"))
        turns = [Turn(f"<think> So. </think>{said}", by_model=True)]
        assert well_formed(turns, online=False)
