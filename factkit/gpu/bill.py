"""The cost of a paper's sweep at a GPU profile, estimated from its parameters.

All counts are upper bounds: every prompt, full responses, and only the untrained
policy's verdicts cached. A part samples, judges and trains in turn; it holds the
training GPUs, and the judge's if it calls the judge, for the sum of these hours.
"""

import re
from collections import Counter
from math import ceil
from typing import TYPE_CHECKING, Any

from factkit import UserError, prompts
from factkit.gpu.memory import GPU_FLOPS, SHAPES, disk, host_memory, peaks, tokens
from factkit.run import params
from factkit.run.arms import Arm, get_paper
from factkit.run.needs import Work

if TYPE_CHECKING:
    import pandas as pd

# Assumptions, ours where no source is named: nothing here was measured by us
PRICE = 2.5  # USD a GPU-hour
UTILISATION = {"": 0.3, "zero3": 0.3, "zero3_offload": 0.15}  # of GPU_FLOPS, training
PREFILL = 0.5  # of GPU_FLOPS, where vLLM reads prompts
DECODE_TOKENS_S = 2500  # vLLM, 8B model in bfloat16, 64 at a time, a GPU; as 1/size
ACTIVE = {  # billions of weights that a token passes, of mixtures
    "mistralai/Mixtral-8x7B-Instruct-v0.1": 12.9,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": 3.3,
}
CHARS = 4  # of a template, a token
# Kinds of judge calls that papers share: template; tokens of the longest reply; in the
# prompt: responses, other tokens, parameter with the number of chunks, tokens of each
CALLS = {
    "extract": ("extract_claims", 60, 0, 500),  # question and five sentences
    "verify": ("verify_claim", 10, 0, 30, "claim_chunks", "claim_chunk_tokens"),
    "verify_test": ("verify_claim", 10, 0, 30, "test_chunks", 133),  # 100 words
    "outcome": ("judge_outcome", 110, 0, 300),
    "reasoning": ("judge_reasoning", 110, 1, 200),
    "compare": ("compare_responses", 110, 2, 250),
}


def size(model: str) -> float:
    """Billions of weights active per token: `SHAPES`, `ACTIVE` or the model's name.
    Raises UserError if none has the size."""
    if listed := SHAPES.get(model):
        return listed.billions
    if active := ACTIVE.get(model):
        return active
    if named := re.search(r"(\d+(?:\.\d+)?)b\b", model, re.I):
        return float(named[1])
    raise UserError(f"{model}: no size in its name: accelerate estimate-memory")


# ---- work


def call_tokens(kind: str, p: Any) -> tuple[int, int]:
    """Tokens of a judge call's prompt and of its reply."""
    kinds = {**CALLS, **get_paper(p).needs(p).call_kinds}
    template, reply, responses, others, *evidence = kinds[kind]
    chunks, each = evidence or ("", 0)
    each = getattr(p, each) if isinstance(each, str) else each
    prompt = len(prompts.template(template)) // CHARS + others
    prompt += responses * p.max_completion_length + getattr(p, chunks, 0) * each
    return prompt, reply


def serving(billions: float, prompt: float, reply: float) -> float:
    """GPU-seconds for vLLM to read a prompt and write a reply."""
    reading = prompt * 2e9 * billions / (GPU_FLOPS * PREFILL)
    return reading + reply * billions / 8 / DECODE_TOKENS_S


def data(p: Any) -> Work:
    """The data notebook: sampled or probed responses, tests of the untrained policy."""
    needs = get_paper(p).needs(p)
    own, tests = needs.data(), needs.evaluation(None)
    return tests._replace(
        calls=own.calls + tests.calls, responses=own.responses + tests.responses
    )


def training(p: Any, arm: Arm) -> Work:
    """The training of one run of an arm."""
    keys = ("train_questions", "train_requests", "sft_requests", "sft_trajectories")
    sizes = [getattr(p, key) for key in keys if hasattr(p, key)]
    rows = sizes[-1] if arm.algorithm == "SFT" else sizes[0]
    times = getattr(p, arm.iterations) if arm.iterations else 1
    drawn = times * rows * getattr(p, arm.samples) if arm.samples else 0
    if arm.algorithm == "SFT":
        updates = ceil(rows / p.sft_batch_size) * p.sft_epochs
        passes = rows * p.sft_epochs * 8
        return Work(_calls(p, arm, drawn), drawn, passes=passes, updates=updates)
    if arm.algorithm == "DPO":
        times *= p.dpo_epochs
        passes = times * rows * 2 * (8 + 2)  # two responses; the reference's
        updates = times * ceil(rows / p.dpo_batch_size)
        return Work(_calls(p, arm, drawn), drawn, passes=passes, updates=updates)
    p = arm.configure(p)
    updates, n = p.rl_steps, p.rl_steps * p.rl_batch_size
    beta = p.reward_beta if arm.learned_reward else p.beta
    passes = 8 + 2 + 2 * (beta > 0) + 2 * (getattr(p, "method", "") == "ppo")
    trained = n * (passes + 2 * arm.learned_reward)
    if arm.learned_reward:  # its pairs
        pairs = rows * (1 + (p.reward_pairs or p.probe_samples))
        trained += pairs * p.reward_epochs * 2 * 8
        updates += ceil(pairs / p.reward_batch_size) * p.reward_epochs
    return Work(_calls(p, arm, n), rollouts=n, passes=trained, updates=updates)


def _calls(p: Any, arm: Arm, responses: int) -> Counter:
    """Judge calls on responses in training; a parameter <kind>_model names another
    judge than p.judge_model."""
    calls: Counter = Counter()
    for kind, each in arm.judge_calls.items():
        judge = getattr(p, f"{kind}_model", "")
        calls[f"{kind} {judge}".rstrip()] = round(each * responses)
    return calls


# ---- the bill


def table(p: Any, price: float = PRICE) -> "pd.DataFrame":
    """One row per part of the sweep, summed over seeds, and the total."""
    import pandas as pd

    rows = {"data": _row(p, data(p), price)}
    for name in p.arm_names:
        arm, runs = get_paper(p).arms[name], 1
        if arm.algorithm:
            runs = len(p.seed_numbers)
            rows[name] = _row(p, training(p, arm), price, runs)
        tests = get_paper(p).needs(p).evaluation(arm)
        rows[f"{name}: evaluation"] = _row(arm.configure(p), tests, price, runs)
    bill = pd.DataFrame.from_dict(rows, "index")
    bill.loc["total"] = bill.sum()
    return bill


def _row(p: Any, work: Work, price: float, runs: int = 1) -> dict:
    prompt, response, written = tokens(p)
    billions, judge_tokens, judged = size(p.policy), 0, 0.0
    for key, n in work.calls.items():
        kind, _, model = key.partition(" ")
        each = call_tokens(kind, p)
        judge_tokens += n * sum(each)
        judged += n * serving(size(model or p.judge_model), *each)
    one = serving(billions, prompt + response - written, written)
    benchmarks = sum(n * serving(billions, *each) for n, *each in work.benchmarks)
    sampled, rolled = work.responses * one + benchmarks, work.rollouts * one
    speed = GPU_FLOPS * UTILISATION[p.deepspeed]
    trained = work.passes * (prompt + response) * billions * 1e9 / speed
    seconds = judged / p.judge_gpus + (sampled + rolled + trained) / p.num_processes
    gpus = p.num_processes + p.judge_gpus * (judged > 0)
    columns = {
        "judge calls": work.calls.total(),
        "judge M tokens": judge_tokens / 1e6,
        "judge GPU-h": judged / 3600,
        "rollout GPU-h": (sampled + rolled) / 3600,
        "training GPU-h": trained / 3600,
        "hours": seconds / 3600,
        "GPU-h held": seconds * gpus / 3600,
        "USD": seconds * gpus / 3600 * price,
    }
    totals = {name: value * runs for name, value in columns.items()}
    return {"runs": runs, "updates each": work.updates} | totals


def report(p: Any, price: float) -> str:
    """The bill as text, with assumptions, memory and disk."""
    if p.rollouts == "transformers":
        return "It runs on CPUs: notebook 00 has its minutes."
    needs = get_paper(p).needs(p)
    bill = table(p, price).round().astype(int)
    text = [
        bill.map("{:,}".format).to_string(),
        "",
        f"Held: {p.num_processes} training GPUs, and {p.judge_gpus} of the judge in "
        f"parts that call it, at {price} USD per GPU-hour (default ours).",
        f"Assumed (ours): an 8B model writes {DECODE_TOKENS_S} tokens/s per GPU, others"
        f" by size; prompts are read at {PREFILL:.0%}, and training runs at "
        f"{UTILISATION[p.deepspeed]:.0%}, of {GPU_FLOPS / 1e12:.0f} TFLOP/s (NVIDIA).",
        "Upper bounds: full responses; only the untrained policy's verdicts are "
        f"cached; {needs.claims or 'no'} claims per response (the paper's).",
    ]
    if needs.web_searches:
        n = f"{needs.web_searches:,}"
        text.append(f"Not billed: {n} web searches, one per request.")
    if p.policy in SHAPES:
        host = {"in all": host_memory(p)}
        needed = {"a GPU at most": peaks(p), "the host": host}
        for what, gb in (needed | {"disk": disk(p)}).items():
            each = ", ".join(f"{name} {n:.0f}" for name, n in gb.items())
            text.append(f"GB of {what}: {each}")
    return "\n".join(text)


def with_table(page: str) -> str:
    """The page with the present bills of all papers and GPU profiles, and of `economy`,
    between its two marks."""
    import pandas as pd

    rows = []
    for path in sorted(params.ROOT.glob("params/h100_*/*.yaml"), key=lambda p: p.stem):
        (paper, _, variant), profile = path.stem.partition("-"), path.parent.name
        if variant not in ("", "economy"):
            continue
        p = params.load(paper, profile, variant=variant)
        total = table(p).loc["total"]
        stages = peaks(p)
        stage = max(stages, key=stages.__getitem__)
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
    bills = pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True)
    place = r"(?s)(<!-- bill -->\n).*?(<!-- end of the bill -->)"
    return re.sub(place, rf"\1\n{bills}\n\n\2", page)
