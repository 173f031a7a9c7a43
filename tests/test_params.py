"""The preflight: what is refused, and that the message helps."""

import re

import nbformat
import pytest

from factkit import arms, params

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
    assert set(re.findall(r"\bP\.(?!model_|splits\b)(\w+)", source)) <= set(
        declared(path)
    )


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
    path = params.yaml_path("truthrl", "tiny")
    values = params.read_yaml(path) | {"beta": -1.0}
    with pytest.raises(params.ParamError, match="params/tiny/truthrl.yaml: beta=-1.0"):
        params.validate("truthrl", values, str(path))


def test_a_profile_without_a_file_is_refused_with_those_that_have_one():
    assert "tiny" in refused({}, profile="cloud")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "a is set twice"),
        ("a:\n  b: 1\n", "a must be a scalar"),
        ("- 1\n", "lines of `key: value`"),
        ("a: [1\n", "not valid YAML"),
        ("a: &x 1\nb: *x\n", "has an alias"),
        (f"a: {'[' * 5000}\n", "nested too deeply"),
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


def given(*cells, paper="truthrl"):
    """What `check` makes of cells, run one after the other."""
    values = {"In": ["", *cells]}
    for cell in cells:
        exec(cell, values)
    return params.check(paper, values)


def refused_cells(*cells, paper="truthrl"):
    with pytest.raises(params.ParamError) as error:
        given(*cells, paper=paper)
    return str(error.value)


def injection(paper, file_profile, *variants, **more):
    """papermill's cell for the files of a paper, in the order given, and -p's."""
    values = {}
    for variant in variants or ("",):
        values |= params.read_yaml(params.yaml_path(paper, file_profile, variant))
    lines = (f"{k} = {v!r}\n" for k, v in (values | more).items())
    return "# Parameters\n" + "".join(lines)


def test_lines_of_the_cell_left_at_tiny_s_values_are_refused_at_another_profile():
    said = refused_cells('profile = "laptop"\nlora_rank = 0\nrl_steps = 7')
    assert "lora_rank=0 (laptop: 16)" in said
    assert "rl_steps" not in said
    assert "-f params/laptop/truthrl.yaml" in said


def test_without_such_lines_a_profile_named_in_the_cell_has_its_own_values():
    p = given('profile = "laptop"\nrl_steps = 7')
    assert (p.lora_rank, p.rl_steps) == (16, 7)


def test_a_value_like_tiny_s_may_be_meant():
    cell = 'profile = "laptop"\nlora_rank = 0'
    values = {"In": [cell], "profile": "laptop", "lora_rank": 0}
    assert params.check("truthrl", values, lora_rank=0).lora_rank == 0


def test_lines_left_at_the_main_setting_are_refused_in_a_variant():
    said = refused_cells(
        'profile = "tiny"\nvariant = "retrieval"\nprompt_template = "short_form"\n'
        'retriever = ""'
    )
    assert "prompt_template='short_form'" in said
    assert "retriever=''" in said


def test_a_typo_in_the_parameters_cell_is_refused_with_the_nearest_name():
    said = refused_cells('profile: str = "tiny"\nrl_step: int = 7')
    assert "rl_step=7" in said
    assert "did you mean rl_steps?" in said


def test_files_in_the_wrong_order_are_refused_with_the_right_one():
    """The closed-book prompt would be asked in the setting with references."""
    swapped = injection("truthrl", "tiny", "retrieval", "", variant="retrieval")
    said = refused_cells('profile = "tiny"', swapped)
    assert "-f params/tiny/truthrl.yaml -f params/tiny/truthrl-retrieval.yaml" in said
    right = injection("truthrl", "tiny", "", "retrieval")
    assert given('profile = "tiny"', right).retriever == "bm25"


def test_every_variant_s_files_are_told_apart_by_their_order():
    for path in YAMLS:
        paper, _, variant = path.stem.partition("-")
        if not variant:
            continue
        profile = path.parent.name
        right = given(injection(paper, profile, "", variant), paper=paper)
        swapped = injection(paper, profile, variant, "", variant=variant)
        main = params.defaults(paper, profile)
        own = params.read_yaml(path).keys() - {"variant"}
        if own & main.keys():
            assert "main file first" in refused_cells(swapped, paper=paper), path
        else:  # the order makes no difference
            assert given(swapped, paper=paper) == right


def test_another_profile_s_file_is_refused_with_both_ways_out():
    said = refused_cells(injection("truthrl", "laptop", profile="tiny"))
    assert "the values are those of params/laptop/truthrl.yaml" in said
    assert "-f params/tiny/truthrl.yaml" in said
    given(injection("truthrl", "laptop", rl_steps=3, seed=4))


def test_another_paper_s_file_is_refused_in_a_line_that_names_the_paper():
    said = refused_cells(injection("rar", "tiny"))
    assert "these are parameters of rar, not of truthrl" in said
    assert len(said.splitlines()) == 1


def test_what_is_wrong_in_an_override_does_not_blame_the_file():
    said = refused({"beta": -1.0})
    assert said.startswith("--set: beta=-1.0")


@pytest.mark.parametrize(
    "values",
    [
        {"policy": "smollm"},
        {"policy": "outputs/no/such/model"},
        {"prompt_template": "short_from"},
        {"beta": float("inf")},
        {"temperature": float("nan")},
    ],
)
def test_what_does_not_exist_or_is_no_number_is_refused(values):
    ((key, value),) = values.items()
    assert f"{key}={value!r}" in refused(values)


def test_a_policy_may_be_a_folder_or_a_name_on_the_hub(tmp_path):
    for policy in (str(tmp_path), "Qwen/Qwen3-8B"):
        assert params.load("truthrl", "tiny", {"policy": policy}).policy == policy


def test_what_papermill_injects_wins_over_the_profile():
    cell = {"profile": "laptop", "lora_rank": 0, "In": ["# Parameters\nlora_rank = 0"]}
    assert params.check("truthrl", cell).lora_rank == 0


# Variants


def test_a_variant_changes_what_its_file_holds_and_nothing_else():
    base, varied = (
        params.load("truthrl", "tiny", variant=v).model_dump()
        for v in ("", "reasoning")
    )
    held = params.read_yaml(params.yaml_path("truthrl", "tiny", "reasoning"))
    assert varied == base | held != base


def test_overrides_win_over_a_variant():
    values = {"max_completion_length": 5}
    p = params.load("truthrl", "tiny", values, variant="reasoning")
    assert (p.max_completion_length, p.answer_format) == (5, "boxed")


def test_an_unknown_variant_is_refused_with_the_files_there_are():
    with pytest.raises(params.ParamError) as error:
        params.load("truthrl", "tiny", variant="magic")
    message = str(error.value)
    assert "truthrl-magic.yaml: no such file" in message
    for name in ("retrieval", "reasoning", "small", "large"):
        assert f"params/tiny/truthrl-{name}.yaml" in message


@pytest.mark.parametrize("name", ["../x", "a b", "a/b"])
def test_a_variant_that_would_leave_its_folder_is_refused(name):
    assert f"variant={name!r}" in refused({"variant": name})


REASONING = [a for a in arms.table("truthrl") if "reason" in a]


@pytest.mark.parametrize("arm", REASONING)
def test_rewarding_reasoning_that_is_not_written_is_refused_with_the_fix(arm):
    message = refused({"arm": arm})
    assert f"arm={arm}" in message and "answer_format=plain" in message
    assert "set answer_format=boxed" in message and "variant=reasoning" in message


@pytest.mark.parametrize("arm", REASONING)
def test_the_variant_of_the_fix_allows_rewarding_reasoning(arm):
    p = params.load("truthrl", "tiny", {"arm": arm}, variant="reasoning")
    assert (p.arm, p.variant) == (arm, "reasoning")


# Values that do not go together


def test_a_judge_without_a_model_is_refused_with_the_fix():
    assert "verifier=judge needs judge_model" in refused({"verifier": "judge"})


def test_a_judge_with_a_model_is_accepted():
    values = {"verifier": "judge", "judge_model": "org/judge"}
    assert params.load("truthrl", "tiny", values).verifier == "judge"


@pytest.mark.parametrize(
    "values", [{"lora_rank": 0}, {"lora_rank": 8, "deepspeed": "zero3"}]
)
def test_unsloth_without_an_adapter_or_with_deepspeed_is_refused(values):
    message = refused({"lora_backend": "unsloth"} | values)
    assert "lora_backend=unsloth needs lora_rank > 0" in message


def test_unsloth_with_an_adapter_is_accepted():
    values = {"lora_backend": "unsloth", "lora_rank": 8}
    assert params.load("truthrl", "tiny", values).lora_rank == 8


@pytest.mark.parametrize(
    ("processes", "micro", "product"), [(3, 0, 3), (1, 3, 3), (2, 48, 96)]
)
def test_micro_batches_that_do_not_divide_the_batch_are_refused(
    processes, micro, product
):
    message = refused({"num_processes": processes, "micro_batch_size": micro})
    assert f"num_processes × micro_batch_size = {product} must divide" in message
    assert "rl_batch_size=128" in message


@pytest.mark.parametrize(("processes", "micro"), [(1, 0), (2, 0), (2, 16), (8, 16)])
def test_micro_batches_that_divide_the_batch_are_accepted(processes, micro):
    values = {"num_processes": processes, "micro_batch_size": micro}
    assert params.load("truthrl", "tiny", values).micro_batch_size == micro


# Variants in a notebook


def test_a_variant_that_papermill_injects_is_taken():
    cell = {"variant": "reasoning", "In": ['# Parameters\nvariant = "reasoning"']}
    p = params.check("truthrl", cell)
    assert (p.variant, p.answer_format) == ("reasoning", "boxed")


def test_what_papermill_injects_wins_over_a_variant():
    injected = '# Parameters\nvariant = "reasoning"\nmax_completion_length = 5'
    cell = {"variant": "reasoning", "max_completion_length": 5, "In": [injected]}
    assert params.check("truthrl", cell).max_completion_length == 5


def test_a_value_changed_in_the_cell_wins_over_a_variant():
    p = params.check("truthrl", {"variant": "reasoning", "max_completion_length": 9})
    assert p.max_completion_length == 9


def test_an_unknown_variant_in_the_cell_is_refused():
    with pytest.raises(params.ParamError, match="truthrl-magic.yaml: no such file"):
        params.check("truthrl", {"variant": "magic"})


def test_a_class_default_changed_in_the_cell_counts():
    assert params.check("truthrl", {"retriever": "e5"}).retriever == "e5"


def test_the_check_loads_no_model_library():
    import subprocess
    import sys

    code = "import sys, factkit.params; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
