"""Cards of what is exported: what it is, how to load it, its scores and limits."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData, ModelCard, ModelCardData

from factkit import prompts
from factkit.run import results
from factkit.run.arms import find_papers
from factkit.run.statistics import difference

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


def model_card(run: Run, base: str) -> ModelCard:
    """The card of a run's model. base: hub name, or folder beside the adapter, that it
    needs; "" for whole weights."""
    p = run["params"]
    hub, licence = POLICIES.get(p["policy"], (p["policy"], ""))
    template = prompts.template(p["prompt_template"])
    folder = f"{run['paper']}-{run['arm'].replace('/', '-')}"
    exact = "float32 in its place" in run["device"]  # `machine.device`
    data = ModelCardData(
        base_model=hub or None,
        library_name="peft" if base else "transformers",
        license=licence or "other",
        license_name=None if licence else "the base's",
        license_link=None if licence else f"https://huggingface.co/{hub}",
        pipeline_tag="text-generation",
        language="en",
        tags=["factkit", run["paper"], "hallucination"],
    )
    return ModelCard.from_template(
        data,
        template_str=_read_template("model_card"),
        **_describe(run),
        what=_what(run),
        hub=hub,
        licence=licence,
        policy=hub or p["policy"],
        folder=folder,
        base=f"{folder}/{base}" if base == "base" else base,
        dtype="float32" if exact else p["dtype"],
        lora_rank=p["lora_rank"],
        tokens=max(p["max_completion_length"], p.get("evaluation_tokens", 0)),
        plain=p["answer_format"] == "plain",
        references="{references}" in template,
        searches="{claim}" in template,
        question=json.dumps(_question(run)),
        scores=_scores(run),
        deviations=run["deviations"],
    )


def data_card(run: Run, tables: Sequence[Path]) -> DatasetCard:
    """The card of a run's rows."""
    p, counts = run["params"], {}
    for table in tables:
        with table.open(encoding="utf-8") as lines:
            counts[table.stem] = sum(1 for _ in lines)
    configs = [{"config_name": n, "data_files": f"{n}.jsonl"} for n in counts]
    licence = "cc-by-sa-4.0" if "leads" in _sources(p) else "other"
    data = DatasetCardData(
        license=licence, language="en", tags=["factkit", run["paper"]], configs=configs
    )
    return DatasetCard.from_template(
        data,
        template_str=_read_template("data_card"),
        **_describe(run),
        policy=p["policy"],
        counts=counts,
    )


def _read_template(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text("utf-8")


def _describe(run: Run) -> dict[str, Any]:
    """What both cards say of a run."""
    sources = "; ".join(SOURCES.get(name, name) for name in _sources(run["params"]))
    named = {key: run[key] for key in ("arm", "seed", "notebook", "profile")}
    return named | {"title": find_papers()[run["paper"]].title, "data": f"{sources}."}


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


def _question(run: Run) -> str:
    """A test question of the run."""
    path = Path(run["folder"], "samples.jsonl")
    if not path.is_file():
        return "…"
    with path.open(encoding="utf-8") as lines:
        row = json.loads(next(lines, "{}"))
    names = ("question", "prompt", "request", "claim")
    return next((row[name] for name in names if name in row), "…")
