"""RLFH's questions: to train on, to choose by, to test on (§4.1); their documents.

`meta["set"]` of a test question names the evaluation set that it belongs to or is like.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.corpus import Document
from factkit.curate.request_evidence import gather
from factkit.curate.small_sets import Sets, lead_sets, training_sizes, world_sets
from factkit.datasets.examples import Example
from factkit.datasets.rlfh_prompts import rlfh_prompts

if TYPE_CHECKING:
    from factkit.rlfh.params import RlfhParams

# in p.requests_path, what a set is read from
FILES = {
    "hotpotqa": "hotpotqa.json",
    "squad_v2": "squad_v2.json",
    "biography": "prompt_entities.txt",
}


def rlfh_sets(p: "RlfhParams") -> tuple[Sets, Counter]:
    """train, dev and test questions, and counts of what was dropped.

    No entity is in two of them. test holds p.test_requests of each evaluation set of
    the small profiles, and of HotpotQA's; the other two are taken whole.
    """
    match p.requests:
        case "world":
            return world_sets(p), Counter()
        case "leads":
            return lead_sets(p), Counter()
    folder = Path(p.requests_path) if p.requests_path else None
    there = {name: folder / file for name, file in FILES.items()} if folder else {}
    paths = {name: str(path) for name, path in there.items() if path.exists()}
    sizes = training_sizes(p) | {"dev": p.dev_requests, "test": p.test_requests}
    return rlfh_prompts(paths, sizes, seed=p.split_seed)


def rlfh_evidence(
    p: "RlfhParams", examples: Sequence[Example], own: Mapping[str, str]
) -> tuple[dict[str, list[Document]], Counter[str]]:
    """Each question's documents, at most p.pages, and how many had which fate.

    own: question id → the policy's answer, which is searched for where there is no
    reference. A short answer finds nothing: of HotpotQA and SQuAD the question is
    searched for, and the answer is a document of its own, as the paper's annotator is
    told it with the passages (Tables 4 to 6).
    """
    if p.requests != "hotpotqa":
        return gather(p, examples, own)
    asked = [
        e.model_copy(update={"answers": [e.question]}) if any(e.answers) else e
        for e in examples
    ]
    found, fates = gather(p, asked, own)
    answers = {e.id: e for e in examples if any(e.answers) and e.id in found}
    for i, e in answers.items():
        said = f'The answer to "{e.question}" may be "{e.answers[0]}".'
        found[i] = [Document(f"{i}#answer", e.entity, said, "reference"), *found[i]]
    return found, fates
