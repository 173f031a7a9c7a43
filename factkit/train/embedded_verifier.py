"""Training the embedded verifier on pairs made from the embedded corpus.

Ours: about 15 minutes on two cores, once a machine. Nothing but the leads and MiniLM
goes in; the benchmarks that measure it are never seen.
"""

import hashlib
import inspect
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from factkit import assets
from factkit.corpus import Document, load_leads
from factkit.curate import like_words, nli_pairs, rewriting
from factkit.curate.nli_pairs import Pair
from factkit.dense import Encoder
from factkit.train import setup
from factkit.verify import embedded

HELD_OUT = 20  # one document in so many gives pairs for testing only
CHECKPOINT_STEPS = 200


@dataclass(frozen=True)
class Recipe:
    """How it is trained. pairs: seen, each once.

    learning_rate: peak, then linear to 0; that of the new layers is classifier_rate.
    """

    pairs: int = 48_000
    batch_size: int = 32
    learning_rate: float = 2.0e-4
    classifier_rate: float = 5.0e-4
    seed: int = 0


def trained(train_if_missing: bool = True, recipe: Recipe = Recipe()) -> Path:
    """The folder of the verifier that this code trains, in the cache folder.

    Its name is a digest of the code that makes pairs, the recipe and the assets. A
    training that was killed goes on from its last checkpoint.
    Raises AssetError if it isn't there and `train_if_missing` is False.
    """
    from filelock import FileLock

    folder = assets.cache_dir() / "embedded_verifier" / _digest(recipe)
    folder.parent.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if (folder / "model.safetensors").exists():
            return folder
        if not train_if_missing:
            raise assets.AssetError(
                f"{folder}: the embedded verifier is not trained yet; call "
                "factkit.verify.embedded.embedded_verifier() (15 minutes on 2 cores)"
            )
        pairs, _ = split_pairs(load_leads(), recipe.seed)
        return train(pairs[: recipe.pairs], folder, recipe)


def _digest(recipe: Recipe) -> str:
    code = [inspect.getsource(m) for m in (like_words, nli_pairs, rewriting)]
    code += [inspect.getsource(f) for f in (embedded.encode, embedded.network, train)]
    used = [assets.ASSETS[a].sha256 for a in ("wikipedia-leads", "all-minilm-l6-v2")]
    how = repr((asdict(recipe), code, used))
    return hashlib.sha256(how.encode()).hexdigest()[:16]


def split_pairs(
    documents: Sequence[Document], seed: int
) -> tuple[list[Pair], list[Pair]]:
    """Pairs for training and for testing, in random order, groups kept together.

    Split by document: one in `HELD_OUT`, by its id. What is alike is learnt from all.
    """
    encoder = Encoder(assets.embedder_path(), max_tokens=48)
    like = like_words.like_words(documents, encoder)
    groups = list(nli_pairs.nli_pairs(documents, like, seed))
    random.Random(seed).shuffle(groups)
    held = {d.id for d in documents if _held_out(d.id)}
    parts = [[g for g in groups if (g[0].entity in held) == h] for h in (False, True)]
    train_part, test_part = (list(chain.from_iterable(part)) for part in parts)
    return train_part, test_part


def _held_out(entity: str) -> bool:
    return int(hashlib.sha256(entity.encode()).hexdigest(), 16) % HELD_OUT == 0


def train(pairs: Sequence[Pair], folder: Path, recipe: Recipe) -> Path:
    """Train on each pair once, in batches of like length; the folder of the model.

    A checkpoint every CHECKPOINT_STEPS updates; the folder appears when complete.
    """
    import torch
    from datasets import Dataset
    from transformers import (
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(recipe.seed)
    tokenizer = AutoTokenizer.from_pretrained(assets.embedder_path())
    encoded = embedded.encode(tokenizer, [(p.evidence, p.claim) for p in pairs])
    lengths = [len(ids) for ids in encoded["input_ids"]]
    labels = [pair.label for pair in pairs]
    arguments = TrainingArguments(
        output_dir=f"{folder}.checkpoint",
        num_train_epochs=1,
        per_device_train_batch_size=recipe.batch_size,
        warmup_steps=0.05,  # below 1: a share of the steps
        train_sampling_strategy="group_by_length",
        use_cpu=True,
        bf16=embedded.fast_bfloat16(),
        seed=recipe.seed,
        logging_steps=20,
        save_steps=CHECKPOINT_STEPS,
        save_total_limit=1,
        report_to="none",
        disable_tqdm=True,  # ours is drawn instead
        dataloader_pin_memory=False,
    )
    rows = Dataset.from_dict({**encoded, "length": lengths, "labels": labels})
    model = embedded.network()
    # rare words keep their meaning
    model.trunk.embeddings.word_embeddings.requires_grad_(False)
    new = [*model.types.parameters(), *model.classify.parameters()]
    groups = [
        {"params": [p for p in model.trunk.parameters() if p.requires_grad]},
        {"params": new, "lr": recipe.classifier_rate},
    ]
    trainer = Trainer(
        model=model,
        args=arguments,
        optimizers=(torch.optim.AdamW(groups, recipe.learning_rate), None),
        train_dataset=rows,
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    curve = folder.with_name(f"{folder.name}.csv")
    label = "embedded verifier"
    return setup.train_and_keep(trainer, tokenizer, label, folder, curve, merge=False)
