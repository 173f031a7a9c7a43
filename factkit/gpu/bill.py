"""What a paper's sweep costs at a GPU profile, reckoned from its parameters alone.

All counts are upper bounds: every prompt, full responses, and in the cache of verdicts
only the untrained policy's. A part's hours are those of its steps one after the other:
sampling, judging, training. So long are the trainers' GPUs held, which a notebook's
engine takes, too, and the judge's in a part that calls it.
"""

import re
from collections import Counter
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from factkit import UserError, prompts
from factkit.gpu.memory import GPU_FLOPS, SHAPES, disk, host_memory, peaks, tokens
from factkit.run import arms, params

if TYPE_CHECKING:
    import pandas as pd

# Assumptions, ours where no source is named: nothing here was measured by us
PRICE = 2.5  # USD a GPU-hour
UTILISATION = {"": 0.3, "zero3": 0.3, "zero3_offload": 0.15}  # of GPU_FLOPS, training
PREFILL = 0.5  # of GPU_FLOPS, where vLLM reads prompts
DECODE_TOKENS_S = 2500  # vLLM, 8B model in bfloat16, 64 at a time, a GPU; as 1/size
# claims of a long answer before training, or after it where there are more: Binary RAR
# §6.1, Learning to Reason Table 2, RLFH Table 1; a sentence has two (ours)
CLAIMS = {"rar": 30, "reason": 46, "rlfh": 22}
BENCHMARK_TOKENS = 2048  # an answer in lm-eval; of AIME25 evaluation_tokens
PROBLEMS = {"ifeval": 541, "bbh": 6511, "gsm8k": 1319, "minerva": 5000, "gpqa": 448}
PROBLEMS |= {"humaneval": 164, "humaneval_plus": 164, "mbpp": 500, "mbpp_plus": 378}
PROBLEMS |= {"aime25": 30}
ACTIVE = {  # billions of weights that a token passes, of mixtures
    "mistralai/Mixtral-8x7B-Instruct-v0.1": 12.9,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": 3.3,
}
CHARS = 4  # of a template, a token
CALLS = {  # kind → template; tokens of a reply, as its form allows; in the prompt
    # responses, tokens beside them, chunks and the tokens of each
    "filter": ("filter_factual", 60, 0, 250),
    "write": ("synthetic_prompt", 250, 0, 1500),
    "extract": ("extract_claims", 60, 0, 500),  # question and five sentences
    "verify": ("verify_claim", 10, 0, 30, "claim_chunks", "claim_chunk_tokens"),
    "verify_test": ("verify_claim", 10, 0, 30, "test_chunks", 133),  # 100 words
    "rate": ("rate_informativeness", 70, 1, 800),
    "outcome": ("judge_outcome", 110, 0, 300),
    "reasoning": ("judge_reasoning", 110, 1, 200),
    "whole": ("judge_contradiction", 460, 1, 500, "whole_chunks", "whole_chunk_tokens"),
    "quality": ("judge_quality", 460, 1, 500),
    "relevance": ("judge_relevance", 860, 1, 250),
    "compare": ("compare_responses", 110, 2, 250),
    "strategies": ("annotate_strategies", 600, 1, 250),
    "turn": ("verify_claim_online", 512, 3, 500 + 3 * 768),  # the last one
}


def size(model: str) -> float:
    """Billions of weights that a token passes; of a model not listed, by its name.
    Raises UserError if that has no size."""
    if listed := SHAPES.get(model):
        return listed.billions
    named = re.search(r"(\d+(?:\.\d+)?)b\b", model, re.I)
    if not named and model not in ACTIVE:
        raise UserError(f"{model}: no size in its name: accelerate estimate-memory")
    return ACTIVE.get(model) or float(named[1])


# ---- work


def call_tokens(kind: str, p: Any) -> tuple[int, int]:
    """Tokens of a judge call's prompt and of its reply."""
    template, reply, responses, others, *found = CALLS[kind]
    chunks, each = found or ("", 0)
    each = getattr(p, each) if isinstance(each, str) else each
    prompt = len(prompts.template(template)) // CHARS + others
    prompt += responses * p.max_completion_length + getattr(p, chunks, 0) * each
    return prompt, reply


def serving(billions: float, prompt: float, reply: float) -> float:
    """GPU-seconds in which vLLM reads a prompt and writes a reply."""
    reading = prompt * 2e9 * billions / (GPU_FLOPS * PREFILL)
    return reading + reply * billions / 8 / DECODE_TOKENS_S


class Part(NamedTuple):
    """A part of a sweep, of one run.

    calls: kind, or "kind model" of another judge → number. responses: of the notebook's
    engine; rollouts: of those beside the trainers. passes: FLOP a weight and token,
    forward 2, backward 4, recomputing 2, × rows. benchmarks: GPU-seconds of lm-eval.
    """

    calls: Counter
    responses: int = 0
    rollouts: int = 0
    passes: int = 0
    updates: int = 0
    benchmarks: float = 0.0


def _claims(paper: str, responses: int, kind: str) -> Counter:
    """A call for each sentence that is read and each claim that is verified."""
    n = responses * CLAIMS[paper]
    return Counter({"extract": n // 2, kind: n})


def data(paper: str, p: Any) -> Part:
    """The data notebook: responses drawn or probed; the untrained policy's tests."""
    tests = evaluation(paper, p, "")
    if paper == "truthrl":
        drawn = p.train_questions * p.probe_samples
        calls = Counter(outcome=drawn)
    elif paper == "veri":
        drawn, calls = 0, Counter(turn=p.sft_trajectories * (p.max_searches + 1))
    else:
        requests = p.train_requests + getattr(p, "sft_requests", 0)
        drawn = requests * p.drawn_responses
        calls = _claims(paper, drawn, "verify")
        calls["rate"] = drawn * (paper == "rlfh")
        if paper == "rar":
            from factkit.papers.rar.requests import WILDCHAT_READ

            calls["filter"] = WILDCHAT_READ * requests
        else:  # references of all, by which evidence is searched for
            drawn += requests + p.dev_requests
        if paper == "reason":
            from factkit.papers.reason.requests import CALLS as WRITTEN

            calls["write"] = round(WRITTEN * (requests + p.dev_requests))
    return tests._replace(calls=calls + tests.calls, responses=drawn + tests.responses)


def evaluation(paper: str, p: Any, arm: str) -> Part:
    """The tests of an arm's policy; of "" those of the untrained one, in the data
    notebook, from where each arm takes its answers and verdicts."""
    algorithm = arms.table(paper)[arm].algorithm if arm else ""
    new = bool(algorithm) or arm in ("", "larger")  # else the answers are there
    on_dev, calls, benchmarks = bool(arm), Counter(), 0.0
    match paper:
        case "truthrl":
            sets = p.test_questions * (1 + len(p.eval_sets.split()))
            sets += p.comparison_questions
            asked = new + (not arm and p.abstaining_template != p.prompting_template)
            n = sets * asked
            n += p.test_questions * p.dpo_iterations * (arm == "iterative_dpo")
            voted = p.test_questions * p.majority_samples * on_dev
            calls.update(outcome=n + voted, reasoning=n)
            for judge in p.second_judges * on_dev:
                calls[f"outcome {judge.partition('@')[0]}"] = p.test_questions
            n += voted
        case "rar":
            from factkit.papers.rar.requests import SHORT_DEV

            kept = p.kept_policies if algorithm == "GRPO" else 1
            dev, test = kept * p.dev_requests * new, p.test_requests * new
            short = 2 * (SHORT_DEV * dev + test)
            long = dev + test * (1 + len({*p.test_sets.split()} - {"gpqa"}))
            calls = _claims(paper, long, "verify_test")
            calls.update(quality=dev + test, outcome=short)
            n = long + short + PROBLEMS["gpqa"] * new * ("gpqa" in p.test_sets)
            for name in {*p.utility_benchmarks.split()} & PROBLEMS.keys():
                longest = p.for_evaluation.max_completion_length
                length = longest if name == "aime25" else BENCHMARK_TOKENS
                reply = serving(size(p.policy), 500, length)
                benchmarks += new * kept * PROBLEMS[name] * reply
        case "reason" | "rlfh":
            test = p.test_requests + 191 + 183  # RLFH: SQuAD, biographies (Table 1)
            if paper == "reason":
                from factkit.papers.reason.requests import PART

                each = (PART.get(name, p.test_requests) for name in p.eval_sets.split())
                test = sum(min(own, p.test_requests) for own in each)
            judged = p.dev_requests * on_dev + test * new
            calls = _claims(paper, judged, "verify_test")
            if paper == "reason":
                calls["compare"] = 2 * judged  # in both orders
                calls["strategies"] = test * (new and on_dev)
            else:
                calls += _claims(paper, judged, "verify")
                calls["rate"] = judged
            n = judged * new
        case "veri":
            kept = -(-p.rl_steps // p.checkpoint_steps) * (arm == "offline_rl")
            n = p.test_claims * len(p.eval_sets.split()) * new
            n += p.dev_claims * (kept + on_dev)
    return Part(calls, responses=n, benchmarks=benchmarks)


def training(paper: str, p: Any, name: str) -> Part:
    """The training of an arm."""
    keys = ("train_questions", "train_requests", "sft_requests", "sft_trajectories")
    sizes = [getattr(p, key) for key in keys if hasattr(p, key)]
    rows, calls = sizes[0], Counter()
    iterations = p.dpo_iterations if name == "iterative_dpo" else 1
    match arms.table(paper)[name].algorithm:
        case "SFT":
            rows = sizes[-1]
            calls["outcome"] = drawn = rows * p.rft_samples if name == "rft" else 0
            updates = ceil(rows / p.sft_batch_size) * p.sft_epochs
            return Part(calls, drawn, 0, rows * p.sft_epochs * 8, updates)
        case "DPO":
            drawn = iterations * rows * p.probe_samples if iterations > 1 else 0
            calls["outcome"], times = drawn, iterations * p.dpo_epochs
            passes = times * rows * 2 * (8 + 2)  # two responses; the reference's
            return Part(calls, drawn, 0, passes, times * ceil(rows / p.dpo_batch_size))
    p = p.model_copy(update=arms.table(paper)[name].changes)
    updates = p.updates(name) if paper == "rar" else p.rl_steps
    n, learned = updates * p.rl_batch_size, name in ("rlhf", "rlkf")
    beta = p.reward_beta if learned else p.beta
    passes = 8 + 2 + 2 * (beta > 0) + 2 * (getattr(p, "method", "") == "ppo")
    trained = n * (passes + 2 * learned)
    match paper:
        case "truthrl":
            calls["outcome"] = n * (name != "ternary_strict_match")
            calls["reasoning"] = n * ("reason" in name)
            if learned:  # the reward model's pairs
                pairs = rows * (1 + (p.reward_pairs or p.probe_samples))
                trained += pairs * p.reward_epochs * 2 * 8
                updates += ceil(pairs / p.reward_batch_size) * p.reward_epochs
        case "rar":
            from factkit.papers.rar.rewards import REWARDS

            _, verdicts = REWARDS[name]
            if "supports" in verdicts:
                calls = _claims(paper, n, "verify")
            calls["quality"] = n * ("quality" in verdicts)
            calls["whole"] = n * bool({"no_contradiction", "rating"} & {*verdicts})
        case "reason" | "rlfh":
            calls = _claims(paper, n, "verify")
            calls["rate"] = n * (paper == "rlfh")
            if "relevance" in name:
                calls[f"relevance {p.relevance_model}"] = n
    return Part(calls, 0, n, trained, updates)


# ---- the bill


def table(paper: str, p: Any, price: float = PRICE) -> "pd.DataFrame":
    """A row for each part of the sweep, all its seeds together, and their total."""
    import pandas as pd

    rows = {"data": _row(paper, p, data(paper, p), price)}
    for name in p.arm_names:
        how, runs = p, 1
        if arms.table(paper)[name].algorithm:
            runs = len(p.seed_numbers)
            rows[name] = _row(paper, p, training(paper, p, name), price, runs)
        elif name == "larger":
            how = p.model_copy(update={"policy": p.larger_policy})
        tests = evaluation(paper, p, name)
        rows[f"{name}: evaluation"] = _row(paper, how, tests, price, runs)
    made = pd.DataFrame.from_dict(rows, "index")
    made.loc["total"] = made.sum()
    return made


def _row(paper: str, p: Any, part: Part, price: float, runs: int = 1) -> dict:
    prompt, response, written = tokens(paper, p)
    billions, judge_tokens, judged = size(p.policy), 0, 0.0
    for key, n in part.calls.items():
        kind, _, model = key.partition(" ")
        each = call_tokens(kind, p)
        judge_tokens += n * sum(each)
        judged += n * serving(size(model or p.judge_model), *each)
    one = serving(billions, prompt + response - written, written)
    sampled, rolled = part.responses * one + part.benchmarks, part.rollouts * one
    speed = GPU_FLOPS * UTILISATION[p.deepspeed]
    trained = part.passes * (prompt + response) * billions * 1e9 / speed
    seconds = judged / p.judge_gpus + (sampled + rolled + trained) / p.num_processes
    gpus = p.num_processes + p.judge_gpus * (judged > 0)
    columns = {
        "judge calls": part.calls.total(),
        "judge M tokens": judge_tokens / 1e6,
        "judge GPU-h": judged / 3600,
        "rollout GPU-h": (sampled + rolled) / 3600,
        "training GPU-h": trained / 3600,
        "hours": seconds / 3600,
        "GPU-h held": seconds * gpus / 3600,
        "USD": seconds * gpus / 3600 * price,
    }
    each = {name: value * runs for name, value in columns.items()}
    return {"runs": runs, "updates each": part.updates} | each


def report(paper: str, p: Any, price: float) -> str:
    """The bill as text, with what it assumes, memory and disk."""
    if p.rollouts == "transformers":
        return "It runs on CPUs: notebook 00 has its minutes."
    made = table(paper, p, price).round().astype(int)
    text = [made.map("{:,}".format).to_string(), ""]
    text += [
        f"Held: {p.num_processes} training GPUs, and {p.judge_gpus} of the judge in "
        f"parts that call it, at {price} USD a GPU-hour (default ours).",
        f"Assumed, ours: an 8B model writes {DECODE_TOKENS_S} tokens/s a GPU, others "
        f"by size; prompts are read at {PREFILL:.0%}, and training runs at "
        f"{UTILISATION[p.deepspeed]:.0%}, of {GPU_FLOPS / 1e12:.0f} TFLOP/s (NVIDIA).",
        "Upper bounds: full responses; of verdicts only the untrained policy's are "
        f"cached; {CLAIMS.get(paper, 'no')} claims a response (the paper's).",
    ]
    if paper in CLAIMS and p.search_url:
        n = p.train_requests + p.dev_requests + getattr(p, "sft_requests", 0)
        n += p.test_requests * {"reason": 6, "rar": 2}.get(paper, 1)
        text.append(f"Not billed: {n:,} web searches, one a request.")
    if p.policy in SHAPES:
        for what, gb in (
            ("a GPU at most", peaks(paper, p)),
            ("the host", {"in all": host_memory(p)}),
            ("disk", disk(paper, p)),
        ):
            each = ", ".join(f"{name} {n:.0f}" for name, n in gb.items())
            text.append(f"GB of {what}: {each}")
    return "\n".join(text)


def with_table(page: str) -> str:
    """A page with the bills of all papers, GPU profiles and economies, as they are now,
    in the place marked for them."""
    import pandas as pd

    rows = []
    for path in sorted(params.ROOT.glob("params/h100_*/*.yaml"), key=lambda p: p.stem):
        (paper, _, variant), profile = path.stem.partition("-"), path.parent.name
        if variant not in ("", "economy"):
            continue
        p = params.load(paper, profile, variant=variant)
        total = table(paper, p).loc["total"]
        stages = peaks(paper, p)
        stage = max(stages, key=stages.get)
        rows.append(
            {
                "paper, profile": f"{paper} `{profile}` {variant}".strip(),
                "GPUs + judge's": f"{p.num_processes} + {p.judge_gpus}",
                "judge calls": f"{total['judge calls'] / 1e6:.2f} M",
                "GPU-hours": f"{total['GPU-h held']:,.0f}",
                "days": f"{total['hours'] / 24:.0f}",
                "USD": f"{total['USD']:,.0f}",
                "GB of a GPU": f"{stages[stage]:.0f}, {stage}",
                "GB of the host": f"{host_memory(p):.0f}",
            }
        )
    made = pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True)
    place = r"(?s)(<!-- bill -->\n).*?(<!-- end of the bill -->)"
    return re.sub(place, rf"\1\n{made}\n\n\2", page)
