"""The rehearsal's policy: a Llama of a million parameters, taught the papers' forms.

    python tests/rehearsal/policy.py FOLDER

It writes what the papers ask for, `<think>`, `\\boxed{}`, `<answer>`, searches and
labels, of which only the form is true: it is small, so that a rehearsal takes the time
of starting processes and little more. The kit's own `sft` teaches it, once.
"""

import random
import string
import sys
from collections.abc import Iterator
from pathlib import Path

import jinja2
from country import Country, Fact
from hub import TEMPLATES

from factkit import prompts
from factkit.data.examples import LABELS
from factkit.run import params
from factkit.train import offline

CONTEXT = 8192  # tokens
VOCABULARY = 4096
BEGIN, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SIZES = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": True,
}
QUERY_TIME = "03/10/2024, 23:19:21 PT"
IDK = "I don't know"
LETTERS = string.ascii_lowercase
TRAINING = {
    "lora_rank": 0,
    "dtype": "float32",
    "sft_batch_size": 4,
    "sft_epochs": 8,
    "sft_learning_rate": 3e-3,
    "micro_batch_size": 4,
    "max_context_length": 2048,
    "checkpoint_steps": 100,
}


def make(folder: Path) -> Path:
    """The policy's folder below `folder`, made if it is not there."""
    p = params.load("truthrl", "laptop", TRAINING)
    base = folder / "base"
    if not (base / "model.safetensors").exists():
        _untrained(base)
    return offline.sft(str(base), rows(Country()), folder, p)


def _untrained(folder: Path) -> None:
    """Random weights, and a vocabulary of the texts that a rehearsal is about."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    country, made = Country(), ByteLevelBPETokenizer()
    texts = [text for row in rows(country) for text in row.values()]
    texts += [page.text for page in country.pages]
    special = [PAD, BEGIN, END]
    made.train_from_iterator(texts, VOCABULARY, special_tokens=special)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made._tokenizer, eos_token=END, pad_token=PAD
    )
    ids = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    ids |= {"pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(tokenizer), **SIZES, **ids)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# ---- what it is taught


def rows(country: Country, seed: int = 0) -> list[dict[str, str]]:
    """Rows of prompt and completion, texts both, in each form."""
    rng = random.Random(f"rows {seed}")
    facts = country.facts()
    made = []
    for write, share in ((short, 12), (long, 12), (reasoned, 12), (claim, 16)):
        for fact in facts[::share]:
            made += write(country, fact, rng)
    rng.shuffle(made)
    return [{"prompt": prompt, "completion": text} for prompt, text in made]


def asked(kind: str, text: str) -> str:
    """A prompt as a turn under the chat template of this kind."""
    turns = [{"role": "user", "content": text}]
    template = jinja2.Template(TEMPLATES[kind])
    return template.render(messages=turns, add_generation_prompt=True)


def short(country: Country, fact: Fact, rng: random.Random) -> Iterator[tuple]:
    """A boxed answer, with references or without: right, wrong, or none."""
    fields = {"question": fact.question, "query_time": QUERY_TIME}
    for name in ("closed_book", "with_references"):
        other = country.other(fact, rng)
        answer = rng.choice([fact.object, fact.object, other, IDK])
        more = {"references": fact.page.text} if "references" in name else {}
        text = prompts.fill(prompts.template(name), **fields, **more)
        yield asked("chat", text), prompts.reasoned(f"It is {answer}.", answer)


def told(country: Country, fact: Fact, rng: random.Random) -> str:
    """Two of a page's sentences and the fact, which may be wrong."""
    chosen = rng.sample(fact.page.sentences, 2)
    return " ".join([*chosen, fact.false(country.other(fact, rng))])


def long(country: Country, fact: Fact, rng: random.Random) -> Iterator[tuple]:
    """An answer of some sentences, of a policy that thinks and of two that do not."""
    question, text = f"Tell me about {fact.page.title}.", told(country, fact, rng)
    yield asked("chat", question), text
    thought = f"<think>\nThis is about {fact.page.title}.\n</think>\n\n"
    yield asked("thinks", question), thought + text
    yield prompts.fill(prompts.template("vicuna"), question=question), f" {text}"


def reasoned(country: Country, fact: Fact, rng: random.Random) -> Iterator[tuple]:
    """Reasoning and an answer in tags, after examples and without, also to a question
    that the judge makes up of letters or of words."""
    title, shots = fact.page.title, prompts.template("reasoned_2_shots")
    thought = f"<think> I am asked about {title}. </think>"
    letters = " ".join("".join(rng.sample(LETTERS, 5)) for _ in range(12))
    words = " ".join(page.text for page in rng.sample(country.pages, 3)).split()
    made_up = letters.capitalize(), " ".join(rng.sample(words, 16))
    for text in (f"What can you tell me of {title}", *made_up):
        question = f"{text}?"
        answer = f"{thought} <answer> {told(country, fact, rng)} </answer>"
        for prompt in (prompts.fill(shots, question=question), question):
            yield asked("chat", prompt), answer


def claim(country: Country, fact: Fact, rng: random.Random) -> Iterator[tuple]:
    """A search and an answer that cites what was found; and one without a search."""
    label, title = rng.choice(LABELS), fact.page.title
    text = fact.statement
    if label != LABELS[0]:
        text = fact.false(country.other(fact, rng))
    found = "\n".join(
        f"[[{title}_{i}]]: {s}" for i, s in enumerate(fact.page.sentences)
    )
    information = f"<information>\n{found}\n</information>"
    think = f"<think>The texts tell of {title}.</think>\n"
    end = f"<answer>\nLabel: {label}\nEvidence: [[{title}_{fact.sentence}]]\n</answer>"
    search = f"<plan>Search {title}.</plan>\n<search>{title}</search>\n"
    online = prompts.fill(prompts.template("verify_claim_online"), claim=text)
    yield asked("chat", online), f"{search}{information}\n{think}{end}"
    offline_prompt = prompts.template("verify_claim_offline")
    given = prompts.fill(offline_prompt, claim=text, evidence=found)
    yield asked("chat", given), think + end


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
