"""Binary RAR's arms: what each one trains, on what, and from where (§4.3, App. C)."""

from collections.abc import Sequence
from pathlib import Path

from factkit.curate import drawn
from factkit.curate.drawn import Drawn
from factkit.datasets.examples import Example
from factkit.rar import rewards
from factkit.rar.arms import RAR
from factkit.train import grpo, offline

# p.requests → what stands for the paper's evaluation sets (§4.1)
TESTED = {
    "world": "people of the fact world, short questions about them",
    "leads": "entities of Wikipedia leads, short questions about others",
    "wildchat": "held-out WildChat requests, short questions of PopQA",
}
# p.verifier → who extracts and verifies claims in evaluation, and who judges quality
EVALUATED = {
    "world": "the exact verifier; quality by a stand-in that knows no truth",
    "leads": "an exact reader of leads' facts; quality by a stand-in that knows no "
    "truth",
    "judge": "the verifier of the rewards, which also judges quality",
}


def deviations(p: RAR) -> list[str]:
    """What differs from the paper and no parameter shows, as sentences."""
    more = f", {', '.join(p.test_sets.split())}" if p.test_sets else ""
    sentences = [
        f"evaluated on {TESTED[p.requests]}{more}; the paper: Biography, "
        "WildHallucinations, PopQA and GPQA (§4.1)",
        f"claims extracted and verified in evaluation by {EVALUATED[p.verifier]}; the "
        "paper: gpt-4.1 and gpt-4.1-mini (App. B.1)",
        "quality of long answers: ratings of ours and the base policy's compared; not "
        "reproduced: AlpacaEval 2 and ArenaHard 2, controlled for length and style "
        "(App. B.1), whose packages do not go with the kit's pins and whose "
        "regressions need their leaderboards' answers",
        "short answers without leave to abstain, and answers of a form, stand for "
        "PopQA, GPQA and IFEval; reasoning and coding are measured only where "
        "utility_benchmarks names them (§4.1)",
        "of a training the last policy before a loss of utility is kept; the paper "
        "keeps VeriScore's after 1,000 updates, with 23 % of AlpacaEval lost (App. C)",
        "prompts of verifier and judges are in our own words; the LM judge's is not "
        "printed in the paper",
        "a request whose responses all have a VeriScore of 0 gives SFT no row; a "
        "response without claims has a VeriScore of 0 (not stated)",
    ]
    if p.requests == "wildchat":
        sentences.append(
            f"requests are filtered by {p.judge_model}; the paper: gpt-4.1"
        )
    if not p.search_url:
        sentences.append(
            "evidence from the embedded corpus; the paper: pages of a Google search "
            "with the reference response (App. C)"
        )
    if p.verifier == "world" and p.arm == "rating_rar":
        sentences.append(
            "the rating follows the judge's guide exactly, from the support of each "
            "claim; the paper: a rating by Qwen3-32B (§6.2, Fig 10)"
        )
    if p.verifier == "leads" and p.arm == "binary_rar":
        sentences.append(
            "a response is verified claim by claim; the paper: in one look (§3.3)"
        )
    return sentences


def train_arm(
    p: RAR, start: str, train: Sequence[Example], answers: Sequence[Drawn], folder: Path
) -> dict[int, Path]:
    """Train `p.arm` from the policy `start`: updates → the policy kept after so many,
    in their order; 0 for an arm without RL.

    answers: responses drawn from the base policy for `train`. Raises DataError if they
    leave the arm no row.
    """
    if p.arm == "sft":
        rows = drawn.required(drawn.best_rows(train, answers, p), p)
        return {0: offline.sft(start, rows, folder, p)}
    if p.arm == "dpo":
        pairs = drawn.gap_pairs(train, answers, p, p.length_difference)
        return {0: offline.dpo(start, drawn.required(pairs, p), folder, p)}
    rows = drawn.asked_rows(train, p)
    last = grpo.grpo(start, rows, rewards.reward_function, folder, p)
    kept = {step: folder / f"model-{step}" for step in p.kept_steps}
    return kept | {p.kept_steps[-1]: last}
