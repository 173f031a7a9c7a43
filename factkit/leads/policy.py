"""The policy of profile laptop for long answers: made at its first use."""

from filelock import FileLock

from factkit import assets
from factkit.leads import facts, requests
from factkit.params.stages import PolicyParams, SftParams
from factkit.train import offline
from factkit.world import policy as world_policy

SEED = 0  # of the cold start: one policy for all seeds of a run
COLD_START = {
    "lora_rank": 16,
    "lora_alpha": 32,
    "sft_learning_rate": 5.0e-4,
    "sft_batch_size": 16,
    "sft_epochs": 1,
    "sft_warmup_ratio": 0.03,
    "checkpoint_steps": 20,
}


def base_policy(p: PolicyParams) -> str:
    """Where the untrained policy of `p` is loaded from.

    `smollm2-135m-leads` is made on first use (minutes), `tiny-world` too.
    """
    if p.policy == "smollm2-135m-leads":
        return cold_start(p)
    return world_policy.base_policy(p)


def cold_start(p: PolicyParams) -> str:
    """SmolLM2-135M-Instruct that tells of a lead's subject in exact short sentences.

    SFT with LoRA on `leads.requests`' rows; settings are ours, chosen on dev requests.
    """
    start = assets.policy_path("smollm2-135m-instruct")
    rows = requests.cold_start_rows(facts.load(), SEED)
    folder = assets.made_folder("smollm2-135m-leads", (COLD_START, SEED, rows))
    kept = {name: getattr(p, name) for name in PolicyParams.model_fields}
    kept["answer_format"] = "long"  # one policy, whichever the paper
    how = SftParams.model_validate(kept | COLD_START | {"seed": SEED})
    with FileLock(f"{folder}.lock"):
        return str(offline.sft(start, rows, folder, how))
