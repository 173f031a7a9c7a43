"""Cards of what is exported: what it is, how to load it, its scores and limits."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import prompts
from factkit.run import results
from factkit.run.arms import find_papers
from factkit.run.statistics import difference

if TYPE_CHECKING:
    from huggingface_hub import DatasetCard, ModelCard

# policy of the kit → hub name of what it was made from, licence of the weights
POLICIES = {
    "tiny-world": ("", "apache-2.0"),
    "smollm2-135m-instruct": ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0"),
    "smollm2-135m-leads": ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0"),
}
SOURCES = {
    "world": "An invented world of people, in templated sentences",
    "leads": "Leads of English Wikipedia's vital articles, CC BY-SA 4.0",
}
Run = Mapping[str, Any]

MODEL = """# {title}: `{arm}`, seed {seed}

{what}. Trained and evaluated by factkit, notebook
`{notebook}`, profile `{profile}`, from `{policy}`. factkit reproduces papers
that train language models against hallucination; this is one run of it, not the paper's
model.

## Load it

The chat template has the prompt of training, and `generation_config.json` the decoding
of evaluation: greedy, at most {tokens} new tokens{line}. The last message is the
question; earlier messages and system messages are not read.{references}

```python
{load}
```

```bash
{serve}
```

Requests to a server: `temperature=0`{stop}{kwargs}. llama.cpp: {gguf}

## Scores

Held-out items, in %: before training, and after, with 95 % t intervals over items.

{scores}

## Data

{data}

## Deviations from the paper

{deviations}

## Limits

- One seed: the intervals do not include the variation between seeds.
- It was measured on questions like those that it was trained on, and on no others.
- A mean over answers also improves when a policy stays silent: see the abstention or
  response rate beside it.
{search}
## Licence

{licence}
"""
WHOLE = """from transformers import pipeline

answer = pipeline("text-generation", FOLDER, dtype=DTYPE)
messages = [{"role": "user", "content": QUESTION}]
as_is = {"return_full_text": False, "clean_up_tokenization_spaces": False}
reply = answer(messages, **as_is)
print(reply[0]["generated_text"].strip())"""
ADAPTER = """from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, pipeline

base = AutoModelForCausalLM.from_pretrained(BASE, dtype=DTYPE, use_safetensors=True)
model = PeftModel.from_pretrained(base, FOLDER, use_safetensors=True)
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
decoding = GenerationConfig.from_pretrained(FOLDER)
answer = pipeline("text-generation", model=model, tokenizer=tokenizer)
messages = [{"role": "user", "content": QUESTION}]
as_is = {"return_full_text": False, "clean_up_tokenization_spaces": False}
reply = answer(messages, generation_config=decoding, **as_is)
print(reply[0]["generated_text"].strip())"""
DATA = """# {title}: rows of `{notebook}`, `{arm}`, seed {seed}

Written by factkit, profile `{profile}`, with the policy `{policy}`. One configuration
per file; where a row has samples or claims, verdicts stand beside them. `null` is a
verdict that could not be made: it is neither right nor wrong.

{tables}

```python
from datasets import load_dataset

rows = load_dataset(FOLDER, CONFIG, split="train")
```

Data: {data}
"""


def model_card(run: Run, base: str) -> "ModelCard":
    """The card of a run's model. base: hub name, or folder beside the adapter, that it
    needs; "" for whole weights."""
    from huggingface_hub import ModelCard, ModelCardData

    p, paper = run["params"], find_papers()[run["paper"]]
    of_hub, licence = POLICIES.get(p["policy"], (p["policy"], ""))
    template = prompts.template(p["prompt_template"])
    plain = p["answer_format"] == "plain"
    has_references = "{references}" in template
    folder = f"{run['paper']}-{run['arm'].replace('/', '-')}"
    places = {"FOLDER": f'"{folder}"', "QUESTION": json.dumps(_question(run))}
    places["BASE"] = f'"{folder}/{base}"' if base == "base" else f'"{base}"'
    exact = "float32 in its place" in run["device"]  # `machine.device`
    places["DTYPE"] = '"float32"' if exact else f'"{p["dtype"]}"'
    load = WHOLE if not base else ADAPTER
    for name, value in places.items():
        load = load.replace(name, value)
    served = f"vllm serve {folder}"
    if base:
        served = f"vllm serve {places['BASE']} --tokenizer {folder}"
        served += f" --generation-config {folder} --enable-lora"
        served += f" --max-lora-rank {p['lora_rank']} --lora-modules {folder}={folder}"
    if has_references:
        load = load.replace("(messages, ", "(messages, documents=documents, ")
        load = load.replace("messages = ", 'documents = [{"text": "…"}]\nmessages = ')
    text = MODEL.format(
        title=paper.title,
        what=_what(run),
        policy=of_hub or p["policy"],
        tokens=max(p["max_completion_length"], p.get("evaluation_tokens", 0)),
        line=", up to the end of the line" if plain else "",
        references=" The texts of `documents` are the references." * has_references,
        load=load,
        serve=served,
        stop=', `stop=["\\n"]`' if plain else "",
        kwargs=', `chat_template_kwargs={"documents": [{"text": "…"}]}`'
        if has_references
        else "",
        gguf="convert the folder by its `convert_hf_to_gguf.py`, then "
        "`llama-server --jinja`."
        if not base
        else "export with `--merge` first.",
        scores=_scores(run),
        data=_data(p),
        deviations="\n".join(f"- {text}" for text in run["deviations"]) or "None.",
        search="- It searches while it answers: without factkit's search loop it stops "
        "at its first query.\n"
        if "{claim}" in template
        else "",
        licence=f"Weights: {licence}, as their base."
        if licence
        else f"The licence of {of_hub}, its base.",
        **{key: run[key] for key in ("arm", "seed", "notebook", "profile")},
    )
    data = ModelCardData(
        base_model=of_hub or None,
        library_name="peft" if base else "transformers",
        license=licence or "other",
        license_name=None if licence else "the base's",
        license_link=None if licence else f"https://huggingface.co/{of_hub}",
        pipeline_tag="text-generation",
        language="en",
        tags=["factkit", run["paper"], "hallucination"],
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")


def data_card(run: Run, tables: Sequence[Path]) -> "DatasetCard":
    """The card of a run's rows."""
    from huggingface_hub import DatasetCard, DatasetCardData

    p, counts = run["params"], {}
    for table in tables:
        with table.open(encoding="utf-8") as lines:
            counts[table.stem] = sum(1 for _ in lines)
    configs = [{"config_name": n, "data_files": f"{n}.jsonl"} for n in counts]
    licence = "cc-by-sa-4.0" if "leads" in _sources(p) else "other"
    data = DatasetCardData(
        license=licence, language="en", tags=["factkit", run["paper"]], configs=configs
    )
    text = DATA.format(
        title=find_papers()[run["paper"]].title,
        policy=p["policy"],
        tables="\n".join(
            ["| configuration | rows |", "|---|---|"]
            + [f"| `{name}` | {n} |" for name, n in counts.items()]
        ),
        data=_data(p),
        **{key: run[key] for key in ("arm", "seed", "notebook", "profile")},
    ).replace("CONFIG", f'"{next(iter(counts))}"')
    return DatasetCard(f"---\n{data.to_yaml()}\n---\n\n{text}")


def _what(run: Run) -> str:
    """What the arm is, in one line."""
    arm = find_papers()[run["paper"]].arms.get(run["arm"])
    return f"{arm.algorithm}: {arm.what}" if arm else "A reward of its author's own"


def _scores(run: Run) -> str:
    """A table of the paper's main metrics, before and after."""
    metrics, items = run["metrics"], results.read_items(run["folder"])
    rows = ["| metric | before | after |", "|---|---|---|"]
    for name in find_papers()[run["paper"]].shown_metrics:
        if name not in metrics:
            continue
        after, before = f"{100 * metrics[name]:.1f}", metrics.get(f"before_{name}")
        if items is not None and name in items:
            of_seed = {run["seed"]: results.item_values(items, name)}
            after += f" ± {100 * difference(of_seed, {}).half_width:.1f}"
        first = "–" if before is None else f"{100 * before:.1f}"
        rows.append(f"| `{name}` | {first} | {after} |")
    return "\n".join(rows)


def _sources(p: Mapping[str, Any]) -> list[str]:
    """What the questions, requests and claims are taken from."""
    keys = ("questions", "requests", "claims")
    return list(dict.fromkeys(p[key] for key in keys if p.get(key)))


def _data(p: Mapping[str, Any]) -> str:
    return "; ".join(SOURCES.get(name, name) for name in _sources(p)) + "."


def _question(run: Run) -> str:
    """A test question of the run."""
    path = Path(run["folder"], "samples.jsonl")
    if not path.is_file():
        return "…"
    with path.open(encoding="utf-8") as lines:
        row = json.loads(next(lines, "{}"))
    names = ("question", "prompt", "request", "claim")
    return next((row[name] for name in names if name in row), "…")
