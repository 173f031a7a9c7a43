"""The policy that training starts from, made where no one else has made it."""

import hashlib

from filelock import FileLock

from factkit import assets
from factkit.params.stages import PolicyParams, SftParams
from factkit.train import sft

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

    `tiny-world` is pre-trained on the fact world on first use (a minute or two),
    `smollm2-135m-leads` made by a cold start (`cold_start`, minutes); each is kept in
    the cache folder under a digest of its texts and settings.
    """
    match p.policy:
        case "tiny-world":
            return _pretrained(p)
        case "smollm2-135m-leads":
            return cold_start(p)
    return assets.policy_path(p.policy)


def cold_start(p: PolicyParams) -> str:
    """SmolLM2-135M-Instruct that tells of a lead's subject in exact short sentences.

    SFT with LoRA on `leads.texts`; the settings are ours, chosen on dev requests.
    """
    from factkit.leads import facts, texts

    start = assets.policy_path("smollm2-135m-instruct")
    rows = texts.cold_start_rows(facts.load(), SEED)
    made_from = repr((COLD_START, SEED, rows))
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:12]
    folder = assets.cache_dir() / f"smollm2-135m-leads-{digest}"
    kept = {name: getattr(p, name) for name in PolicyParams.model_fields}
    kept["answer_format"] = "long"  # one policy, whichever the paper
    how = SftParams.model_validate(kept | COLD_START | {"seed": SEED})
    with FileLock(f"{folder}.lock"):
        return str(sft.sft(start, rows, folder, how))


def _pretrained(p: PolicyParams) -> str:
    """The policy of the fact world."""
    from factkit.train.pretrain import pretrain
    from factkit.world import facts as world
    from factkit.world import texts as world_text
    from factkit.world import trajectories as world_trajectories

    made = world.build_world(people=p.world_people, seed=p.world_seed)
    settings = {
        "hidden_size": p.pretrain_hidden_size,
        "layers": p.pretrain_layers,
        "steps": p.pretrain_steps,
        "batch_size": p.pretrain_batch_size,
        "learning_rate": p.pretrain_learning_rate,
        "seed": p.world_seed,
    }
    tokenizer = world_text.build_tokenizer(made, p.answer_format)
    if p.answer_format == "claims":
        texts = world_trajectories.pretraining_texts(made, p.world_seed)
        settings["row_tokens"] = world_trajectories.LONGEST
    else:
        reading, form = p.pretrain_reading, p.answer_format
        texts = world_text.pretraining_texts(made, p.world_seed, reading, form)
    made_from = repr((settings, texts, sorted(tokenizer.get_vocab().items())))
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:12]
    folder = assets.cache_dir() / f"tiny-world-{digest}"
    with FileLock(f"{folder}.lock"):
        pretrain(texts, tokenizer, folder, **settings)
    return str(folder)
