"""The preflight: what is refused, and that the message helps."""

import re

import nbformat
import pytest

from factkit import params

YAMLS = sorted(params.ROOT.glob("params/*/*.yaml"))
NOTEBOOKS = sorted(params.ROOT.glob("notebooks/*.ipynb"))


def paper_of(notebook):
    source = notebook.read_text()
    return re.search(r'params\.check\(\\"(\w+)\\"', source)[1]


def declared(notebook):
    cells = nbformat.read(notebook, 4).cells
    (cell,) = [c for c in cells if "parameters" in c.metadata.get("tags", [])]
    values = {}
    exec(cell.source, values)
    return {k: v for k, v in values.items() if not k.startswith("__")}


@pytest.mark.parametrize("path", YAMLS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_yaml_file_is_valid(path):
    paper, _, variant = path.stem.partition("-")
    p = params.load(paper, path.parent.name, variant=variant)
    assert (p.profile, p.variant) == (path.parent.name, variant)


@pytest.mark.parametrize("path", YAMLS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_value_of_a_yaml_file_has_a_comment_above(path):
    lines = path.read_text().splitlines()
    bare = [
        line
        for above, line in zip(lines, lines[1:], strict=False)
        if re.match(r"\w+:", line) and not above.startswith("# ")
    ]
    assert bare == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_parameters_cell_shows_the_values_of_profile_tiny(path):
    paper, cell = paper_of(path), declared(path)
    tiny = params.read_yaml(params.yaml_path(paper, "tiny"))
    assert {k: v for k, v in cell.items() if k in tiny and v != tiny[k]} == {}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_reads_only_parameters_that_its_cell_shows(path):
    cells = nbformat.read(path, 4).cells
    source = "\n".join(c.source for c in cells if c.cell_type == "code")
    assert set(re.findall(r"\bP\.(?!model_)(\w+)", source)) <= set(declared(path))


def refused(values, paper="truthrl", profile="tiny"):
    with pytest.raises(params.ParamError) as error:
        params.load(paper, profile, values)
    return str(error.value)


def test_an_unknown_key_is_refused_with_the_nearest_known_one():
    message = refused({"learning_rate": 1e-5})
    assert "learning_rate=1e-05" in message and "rl_learning_rate" in message


def test_a_number_that_yaml_reads_as_a_string_is_refused_with_the_fix():
    message = refused({"rl_learning_rate": "1e-5"})
    assert "rl_learning_rate='1e-5'" in message and "1.0e-5" in message


@pytest.mark.parametrize(
    "values",
    [{"seed": 1.5}, {"rl_steps": "40"}, {"beta": True}, {"policy": 3}, {"arm": "dpo2"}],
)
def test_a_wrong_type_is_refused(values):
    (key,) = values
    assert f"{key}={values[key]!r}" in refused(values)


@pytest.mark.parametrize(
    "values", [{"beta": -0.1}, {"known_share": 1.1}, {"rl_steps": 0}, {"seed": -1}]
)
def test_a_value_out_of_range_is_refused(values):
    (key,) = values
    assert f"{key}={values[key]!r}" in refused(values)


def test_a_batch_that_holds_no_whole_groups_is_refused():
    message = refused({"num_generations": 7})
    assert "num_generations=7 must divide rl_batch_size=128" in message


def test_the_message_names_the_file():
    assert "params/tiny/truthrl.yaml" in refused({"beta": -1.0})


def test_a_profile_without_a_file_is_refused_with_those_that_have_one():
    assert "tiny" in refused({}, profile="cloud")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "a is set twice"),
        ("a:\n  b: 1\n", "a must be a scalar"),
        ("- 1\n", "lines of `key: value`"),
        ("a: [1\n", "not valid YAML"),
    ],
)
def test_a_malformed_yaml_file_is_refused(tmp_path, text, said):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(params.ParamError, match="bad.yaml") as error:
        params.read_yaml(path)
    assert said in str(error.value)


def test_an_unknown_key_that_papermill_injected_is_refused_in_the_notebook():
    injected = {"In": ["", "# Parameters\nsteps = 3\n"], "steps": 3}
    with pytest.raises(params.ParamError, match="steps=3"):
        params.check("truthrl", injected)


def test_other_variables_of_a_notebook_are_no_parameters():
    assert params.check("truthrl", {"In": ["", "x = 3"], "x": 3}).profile == "tiny"


def test_naming_a_profile_in_the_cell_takes_its_values(capsys):
    cell = {"profile": "laptop", "lora_rank": 0, "rl_steps": 7}
    p = params.check("truthrl", cell)
    assert (p.lora_rank, p.rl_steps) == (16, 7)
    assert "lora_rank=16" in capsys.readouterr().out


def test_what_papermill_injects_wins_over_the_profile():
    cell = {"profile": "laptop", "lora_rank": 0, "In": ["# Parameters\nlora_rank = 0"]}
    assert params.check("truthrl", cell).lora_rank == 0


def test_the_check_loads_no_model_library():
    import subprocess
    import sys

    code = "import sys, factkit.params; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
