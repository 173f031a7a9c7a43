"""Miniature sets of lm-evaluation-harness's tasks, as its task files of 0.4.13 name
them, and GPQA, which the kit may read by itself, too.

They lie under the hub's own names: lm-eval started in the hub's folder takes them from
there. Questions are of our own; of each task there are a few, with its worked examples.
"""

from pathlib import Path

from country import Country
from files import card, csv_file, json_lines, table

BBH = """boolean_expressions causal_judgement date_understanding disambiguation_qa
dyck_languages formal_fallacies geometric_shapes hyperbaton
logical_deduction_five_objects logical_deduction_seven_objects
logical_deduction_three_objects movie_recommendation multistep_arithmetic_two navigate
object_counting penguins_in_a_table reasoning_about_colored_objects ruin_names
salient_translation_error_detection snarks sports_understanding temporal_sequences
tracking_shuffled_objects_five_objects tracking_shuffled_objects_seven_objects
tracking_shuffled_objects_three_objects web_of_lies word_sorting""".split()
MATH = """algebra counting_and_probability geometry intermediate_algebra number_theory
prealgebra precalculus""".split()
ROWS = 2  # of a task; lm-eval's `limit` may ask for fewer
SHOTS = 8  # rows that worked examples are drawn from


def gpqa(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/Idavidrein/gpqa: gpqa_main.csv, split train."""
    rows = [
        {
            "Question": f"Which of these towns is {work.name} set in?",
            "Correct Answer": work.setting.name,
            **{
                f"Incorrect Answer {n}": town.name
                for n, town in enumerate(
                    [t for t in country.towns if t != work.setting][:3], start=1
                )
            },
            "Explanation": f"{work.name} is set in {work.setting.name}.",
            "Subdomain": "Literature",
            "High-level domain": "Letters",
            "Record ID": f"rec{number:014}",
        }
        for number, work in enumerate(country.works[:16])
    ]
    folder /= "Idavidrein/gpqa"
    csv_file(folder / "gpqa_main.csv", rows)
    card(folder, {"gpqa_main": {"train": "gpqa_main.csv"}})


def ifeval(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/google/IFEval: ifeval_input_data.jsonl."""
    rules = [
        ("Write about {} without any comma.", "punctuation:no_comma", {}),
        ("Describe {} all in lower case.", "change_case:english_lowercase", {}),
        (
            "Describe {} in at most 60 words.",
            "length_constraints:number_words",
            {"relation": "less than", "num_words": 60},
        ),
    ]
    rows = [
        {
            "key": 1000 + number,
            "prompt": prompt.format(town.name),
            "instruction_id_list": [rule],
            "kwargs": [{"relation": None, "num_words": None} | values],
        }
        for number, town in enumerate(country.towns[:6])
        for prompt, rule, values in [rules[number % len(rules)]]
    ]
    json_lines(folder / "google/IFEval/ifeval_input_data.jsonl", rows)


def bbh(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/SaylorTwift/bbh: a config a task, split test."""
    folder /= "SaylorTwift/bbh"
    for name in BBH:
        rows = [{"input": f"Is {n} more than 5?", "target": "No"} for n in range(ROWS)]
        table(folder / name / "test-*-of-00001", rows)
    card(folder, {name: {"test": f"{name}/test-*"} for name in BBH})


def gsm8k(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/openai/gsm8k, config main."""
    rows = [
        {
            "question": f"A shop in {town.name} has {n} lamps and sells 2. How many "
            "are left?",
            "answer": f"There were {n} lamps and 2 were sold.\n#### {n - 2}",
        }
        for n, town in enumerate(country.towns[: SHOTS + ROWS], start=5)
    ]
    folder /= "openai/gsm8k"
    table(folder / "main/train-*-of-00001", rows[:SHOTS])
    table(folder / "main/test-*-of-00001", rows[SHOTS:])
    card(folder, {"main": {s: f"main/{s}-*" for s in ("train", "test")}})


def hendrycks_math(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/EleutherAI/hendrycks_math: a config a subject."""
    folder /= "EleutherAI/hendrycks_math"
    for name in MATH:
        rows = [
            {
                "problem": f"What is ${n} + {n}$?",
                "level": "Level 1",
                "type": name.replace("_", " ").title(),
                "solution": f"The sum is $\\boxed{{{2 * n}}}$.",
            }
            for n in range(1, SHOTS + ROWS + 1)
        ]
        table(folder / name / "train-*-of-00001", rows[:SHOTS])
        table(folder / name / "test-*-of-00001", rows[SHOTS:])
    splits = ("train", "test")
    card(folder, {name: {s: f"{name}/{s}-*" for s in splits} for name in MATH})


def aime25(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/math-ai/aime25: test.jsonl."""
    rows = [
        {"problem": f"Find ${n} \\cdot 7$.", "answer": str(7 * n), "id": str(n)}
        for n in range(11, 11 + ROWS)
    ]
    json_lines(folder / "math-ai/aime25/test.jsonl", rows)


def code(folder: Path, country: Country) -> None:
    """huggingface.co/datasets/evalplus/humanevalplus and …/mbppplus."""
    humaneval = [
        {
            "task_id": f"HumanEval/{n}",
            "prompt": f'def add_{n}(x: int) -> int:\n    """Return x + {n}."""\n',
            "canonical_solution": f"    return x + {n}\n",
            "entry_point": f"add_{n}",
            "test": f"def check(candidate):\n    assert candidate(1) == {1 + n}\n",
        }
        for n in range(ROWS)
    ]
    mbpp = [
        {
            "task_id": n,
            "code": f"def times_{n}(x):\n    return x * {n}",
            "prompt": f"Write a function times_{n} that multiplies a number by {n}.",
            "source_file": "invented",
            "test_imports": ["import math"],
            "test_list": [f"assert times_{n}({x}) == {x * n}" for x in (1, 2, 3)],
            "test": f"assert times_{n}(4) == {4 * n}",
        }
        for n in range(2, 2 + ROWS)
    ]
    for name, rows in (("humanevalplus", humaneval), ("mbppplus", mbpp)):
        table(folder / "evalplus" / name / "data/test-*-of-00001", rows)
        card(folder / "evalplus" / name, {"default": {"test": "data/test-*"}})


def write(folder: Path, country: Country) -> None:
    for make in (gpqa, ifeval, bbh, gsm8k, hendrycks_math, aime25, code):
        make(folder, country)
