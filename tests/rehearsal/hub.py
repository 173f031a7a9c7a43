"""A folder of miniature data sets and models in the hub's layout, for the rehearsal.

    python tests/rehearsal/hub.py FOLDER [POLICY ENCODER]

    FOLDER/<owner>/<name>/…   a data set or model of the hub, in its files and configs
    FOLDER/<host>/<path>      a file that the kit takes from a URL
    FOLDER/veri_r1/…          what Veri-R1's claims_path wants
    FOLDER/factscore/…        the Wikipedia of April 2023

Rows tell of one invented country (country.py). The four modules of sets cite each
source's card or page. Written anew, the folder is the same, byte for byte. The kit
reads from it where the variable FACTKIT_HUB names it.
"""

import json
import os
import sys
from pathlib import Path

import claim_sets
import prompt_sets
import question_sets
import utility_sets
from country import Country

VERI = "veri_r1"
# ChatML as SmolLM2 knows it, and the same as Qwen3 uses it: earlier reasoning is left
# out, and if enable_thinking is false (not None, as lm-eval has it), an empty one opens
# the reply. One small policy stands for both kinds of models: a system turn tells it
# which it is.
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ CONTENT }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {
    "chat": CHAT.replace("CONTENT", "m.content"),
    "thinks": "<|im_start|>system\nThink first.<|im_end|>\n"
    + CHAT.replace(
        "CONTENT",
        "m.content.split('</think>')[-1].lstrip('\n') "
        "if m.role == 'assistant' else m.content",
    )
    + "{% if add_generation_prompt and enable_thinking is defined and "
    "enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}",
    "none": "",
}
# every model that the h100 profiles name, and how it is asked
MODELS = {
    "meta-llama/Llama-3.1-8B-Instruct": "chat",
    "meta-llama/Llama-3.2-3B-Instruct": "chat",
    "meta-llama/Llama-3.3-70B-Instruct": "chat",
    "Qwen/Qwen2.5-3B-Instruct": "chat",
    "Qwen/Qwen2.5-7B-Instruct": "chat",
    "Qwen/Qwen2.5-32B-Instruct": "chat",
    "Qwen/Qwen2.5-72B-Instruct": "chat",
    "Qwen/Qwen3-4B": "thinks",
    "Qwen/Qwen3-8B": "thinks",
    "Qwen/Qwen3-32B": "thinks",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "chat",
    "allenai/Llama-3.1-Tulu-3-8B": "chat",
    "google/gemma-3-27b-it": "chat",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "chat",
    "lmsys/vicuna-7b-v1.5": "none",
}
ENCODER = "intfloat/e5-base-v2"


def write(folder: Path, seed: int = 0) -> Country:
    """Write all data sets; the country that they tell of."""
    country = Country(seed)
    for sets in (question_sets, prompt_sets, utility_sets):
        sets.write(folder, country)
    claim_sets.write(folder / VERI, country)
    return country


def write_models(folder: Path, policy: Path, encoder: Path) -> None:
    """The small policy under each model's name with its kind of chat template, and the
    small encoder as E5. Weights are links.
    """
    for name, kind in MODELS.items():
        own = folder / name
        _link_all(policy, own)
        for file in ("chat_template.jinja", "tokenizer_config.json"):
            (own / file).unlink(missing_ok=True)
        config = json.loads((policy / "tokenizer_config.json").read_text("utf-8"))
        config.pop("chat_template", None)
        text = json.dumps(config, ensure_ascii=False)
        (own / "tokenizer_config.json").write_text(text, "utf-8")
        if TEMPLATES[kind]:
            (own / "chat_template.jinja").write_text(TEMPLATES[kind], "utf-8")
    _link_all(encoder, folder / ENCODER)


def _link_all(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        link = folder / file.name
        link.unlink(missing_ok=True)
        if file.is_file():
            os.symlink(file.resolve(), link)


if __name__ == "__main__":
    target, *models = map(Path, sys.argv[1:])
    write(target)
    if models:
        write_models(target, *models)
    print(f"{target}: {sum(f.is_file() for f in target.rglob('*'))} files")
