"""What verl trained becomes a run's model, and its train notebook goes on from it."""

import shutil

import pytest
import safetensors.torch
import verl_papers
from test_notebooks import run_here, smallest
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

from factkit import UserError
from factkit.facts.policy import base_policy
from factkit.report import pages as report
from factkit.run import params, runs
from factkit.run.params import ROOT
from factkit.train import launch
from factkit.train import verl_adapter as adapter
from factkit.train.verl_checkpoints import adopt


def checkpoint(home, step, policy, change=0.0):
    """A checkpoint of verl with its whole model: a policy, its weights changed."""
    actor = home / "checkpoints" / f"global_step_{step}" / "actor"
    shutil.copytree(policy, actor / "huggingface")
    path = actor / "huggingface" / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    weights = {name: tensor + change for name, tensor in weights.items()}
    safetensors.torch.save_file(weights, path, {"format": "pt"})
    return actor.parent


@pytest.fixture
def trained(tmp_path):
    """Binary RAR at tiny with a policy that has weights; verl's folder; a checkpoint of
    its last step."""
    paper = verl_papers.made("rar", tmp_path)
    paper.p = paper.p.model_copy(update={"kept_policies": 1})
    config = AutoConfig.from_pretrained(paper.p.policy)
    LlamaForCausalLM(config).save_pretrained(paper.p.policy)
    home = adapter.write_job("rar", paper.p, tmp_path / "verl" / "rar-veriscore-s0")
    checkpoint(home, paper.p.rl_steps, paper.p.policy)
    return paper, home, home / "checkpoints" / f"global_step_{paper.p.rl_steps}"


def without_a_weight(folder):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights.pop("model.norm.weight")
    path = folder / "model.safetensors"
    safetensors.torch.save_file(weights, path, {"format": "pt"})


def cut_off(folder):
    with (folder / "model.safetensors").open("rb+") as file:
        file.truncate(10_000)


def of_pickles(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def of_another_size(folder):
    config = AutoConfig.from_pretrained(folder)
    config.hidden_size = 64
    LlamaForCausalLM(config).save_pretrained(folder)


def with_another_tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<more>"])
    tokenizer.save_pretrained(folder)


DAMAGES = [without_a_weight, cut_off, of_pickles, of_another_size]


@pytest.mark.parametrize("damage", [*DAMAGES, with_another_tokenizer])
def test_what_is_no_whole_model_of_the_run_is_refused(trained, damage):
    paper, home, last = trained
    damage(last / "actor" / "huggingface")
    with pytest.raises(UserError, match=f"global_step_{paper.p.rl_steps}"):
        adopt(last)
    folder = runs.run_folder("22_rar_train", paper.p)
    assert not (folder / "model").exists()


def test_a_checkpoint_of_another_step_or_run_is_refused(trained):
    paper, home, last = trained
    with pytest.raises(UserError, match=f"end with {last.name}"):
        adopt(checkpoint(home, 1, paper.p.policy))
    with pytest.raises(UserError, match="not where"):
        adopt(home)
    folder = runs.run_folder("22_rar_train", paper.p)
    folder.mkdir(parents=True)
    (folder / launch.RECIPE).write_text('{"grpo": {}}', "utf-8")
    with pytest.raises(launch.RecipeError, match="not trained by verl"):
        adopt(last)
    (folder / launch.RECIPE).unlink()
    (folder / "model.partial").mkdir()  # of a call that was killed
    assert [path.name for path in adopt(last).parent.iterdir()] == ["model"]
    again = paper.p.model_copy(update={"beta": 0.5})
    with pytest.raises(launch.RecipeError, match="beta=.*now '0.5'"):
        adapter.write_job("rar", again, home)  # verl would go on from the checkpoint


@pytest.mark.notebook
@pytest.mark.assets
def test_a_train_notebook_goes_on_from_what_verl_trained(tmp_path, monkeypatch):
    """Of two updates both policies are kept, as TRL's would be."""
    monkeypatch.chdir(ROOT)
    values = smallest("rar") | {"arm": "binary_rar", "output_dir": str(tmp_path)}
    values["policy"] = base_policy(params.validate("rar", values, "test"))
    p = params.validate("rar", values, "test")
    del values["output_dir"]
    run_here("20_rar_data", tmp_path, **values)
    home = adapter.write_job(
        "rar", p, tmp_path / "verl" / "rar-binary_rar-s0", ["a.b=1"]
    )
    checkpoint(home, 1, p.policy)
    last = checkpoint(home, 2, p.policy, change=1.0e-3)

    model = adopt(last / "actor")
    assert adopt(last) == model == runs.run_folder("22_rar_train", p) / "model"
    with pytest.raises(launch.RecipeError, match=r"beta='0.1' \(now '0.2'\)"):
        run_here("22_rar_train", tmp_path, **values | {"beta": 0.2})
    shutil.rmtree(model.parent)

    adopt(last)
    run_here("22_rar_train", tmp_path, **values)
    results = runs.read_results(model.parent)
    assert results["recipe"].keys() == {"verl"}
    assert results["recipe"]["verl"]["checkpoint"] == "global_step_2"
    assert "trained by verl: global_step_2 a.b=1" in results["deviations"]
    assert not (model.parent / "metrics.csv").exists()  # TRL's
    kept = [
        launch.read_recipes(model.with_name(n))["verl"] for n in ("model-1", "model")
    ]
    assert len({recipe["weights"] for recipe in kept}) == 2
    page = report.markdown(report.PaperResults("rar", tmp_path, ["tiny"]))
    assert "Trained by verl: binary_rar." in page
