"""The rehearsal's runner: what it runs, by which command, what it asks of tables."""

import argparse
import importlib.util
import json
import random
from pathlib import Path

import cells
import pandas as pd
import policy
import pytest
import servers
import yaml
from country import Country
from sizes import sizes

from factkit.run import params
from factkit.run.params import ROOT
from factkit.verify import response

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def runner():
    """`python tests/rehearsal`, as a module."""
    spec = importlib.util.spec_from_file_location("rehearse", HERE / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(**options):
    return argparse.Namespace(**{"paper": "", "profile": "", "variant": None} | options)


def test_without_arguments_every_file_of_the_profiles_is_rehearsed(runner):
    files = {
        "-".join(filter(None, (paper, variant))) + f" {profile}"
        for paper, profile, variant in runner.chosen(asked())
    }
    assert files == {
        f"{path.stem} {path.parent.name}" for path in ROOT.glob("params/h100_*/*.yaml")
    }
    own = list(runner.chosen(asked(paper="veri", profile="h100_full", variant="")))
    assert own == [("veri", "h100_full", "")]


def test_papermill_gets_the_shipped_files_and_then_sizes_and_addresses(
    runner, tmp_path
):
    made = runner.Rehearsal("rar", "h100_full", "qwen3-4b", tmp_path)
    command = made.command("22_rar_train", tmp_path / "out.ipynb", "dpo", {})
    files = [command[i + 1] for i, word in enumerate(command) if word == "-f"]
    shipped = ["params/h100_full/rar.yaml", "params/h100_full/rar-qwen3-4b.yaml"]
    assert files[:2] == shipped and len(files) == 3
    values = yaml.safe_load(Path(files[2]).read_text("utf-8"))
    own = params.load("rar", "h100_full", {}, "qwen3-4b").model_dump()
    changed = {key for key, value in values.items() if value != own[key]}
    assert changed <= {*sizes("rar", "h100_full"), "search_url"}
    assert made.p.policy == "Qwen/Qwen3-4B" and made.p.arm != "dpo"
    assert command[command.index("arm") + 1] == "dpo"


@pytest.mark.parametrize("paper", ["truthrl", "reason", "veri"])
def test_each_address_of_a_profile_has_a_server_on_its_port(paper, tmp_path):
    changed = sizes(paper, "h100_full") | servers.addresses(paper, tmp_path)
    p = params.load(paper, "h100_full", changed)
    ports = {port for port, _ in servers.commands(p, tmp_path).values()}
    urls = [p.judge_url, getattr(p, "search_url", ""), getattr(p, "relevance_url", "")]
    urls += [judge.split("@")[1] for judge in getattr(p, "second_judges", ())]
    assert {servers._port(url) for url in urls if url} <= ports


def test_the_judge_s_engine_reads_a_prompt_at_once(tmp_path):
    """In two parts, a seeded request ends vLLM's CPU build."""
    ((_, command),) = servers.engine(tmp_path).values()
    assert "--no-enable-chunked-prefill" in command


def test_an_empty_cell_of_a_table_needs_a_reason(tmp_path, monkeypatch):
    page = (
        "<table><thead><tr><th></th><th>T</th></tr></thead><tbody><tr><th>sft</th>"
        "<td>1.0</td></tr><tr><th>dpo</th><td>–</td></tr></tbody></table>"
    )
    output = {"data": {"text/html": [page]}}
    notebook, reasons = tmp_path / "14.ipynb", tmp_path / "reasons.yaml"
    notebook.write_text(json.dumps({"cells": [{}, {"outputs": [output]}]}), "utf-8")
    monkeypatch.setattr(cells, "REASONS", reasons)
    reasons.write_text("14: {}", "utf-8")
    assert cells.unexplained(notebook, "14") == ({}, [(1, "dpo –", "T")])
    reasons.write_text("'14': {'^1 dpo . T': no pair}", "utf-8")
    assert cells.unexplained(notebook, "14") == ({(1, "dpo –", "T"): "no pair"}, [])


def test_a_claim_that_its_runs_did_not_measure_is_no_reason(tmp_path):
    """The table of claims says itself why a row is empty: not each word will do."""
    words = (  # claim, ours, verdict, why
        ("one", "–", "not run", ""),
        ("two", "–", "not measurable here", "another scale"),
        ("three", "–", "not run", "factual_precision was not measured in these runs"),
        ("four", "+1.0", "one seed", ""),
    )
    table = pd.DataFrame(words, columns=["claim", "ours", "verdict", "why"])
    table.insert(1, "where", "§1")
    output = {"data": {"text/html": [table.to_html(index=False)]}}
    notebook = tmp_path / "44.ipynb"
    notebook.write_text(json.dumps({"cells": [{"outputs": [output]}]}), "utf-8")
    known, others = cells.unexplained(notebook, "44_rlfh_figures")
    assert [row.split()[0] for _, row, _ in known] == ["one", "two"]
    assert [row.split()[0] for _, row, _ in others] == ["three"]


def test_the_policy_is_taught_to_reason_on_what_the_judge_asks():
    """Its questions are words without sense, unlike those of the country; in RL, unlike
    in curation, no examples come before them."""
    country = Country()
    rows = list(policy.reasoned(country, country.facts()[0], random.Random(0)))
    assert all(response.split_response(text) for _, text in rows)
    title, shots = country.facts()[0].page.title, "A Christmas Carol"
    asked = [(f"me of {title}?" in prompt, shots in prompt) for prompt, _ in rows]
    assert asked == [(a, b) for a in (True, False, False) for b in (True, False)]
