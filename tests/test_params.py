"""The preflight: what is refused, and that the message helps."""

import re
import subprocess
import sys

import nbformat
import pytest

from factkit import params

YAMLS = sorted(params.ROOT.glob("params/*/*.yaml"))
NOTEBOOKS = sorted(params.ROOT.glob("notebooks/*.ipynb"))


def paper_of(notebook):
    source = notebook.read_text("utf-8")
    return re.search(r'params\.check\(\\"(\w+)\\"', source)[1]


def declared(notebook):
    cells = nbformat.read(notebook, 4).cells
    (cell,) = [c for c in cells if "parameters" in c.metadata.get("tags", [])]
    values = {}
    exec(cell.source, values)
    return {k: v for k, v in values.items() if not k.startswith("__")}


def test_every_yaml_file_is_valid_with_a_comment_above_each_value():
    bare = {}
    for path in YAMLS:
        paper, _, variant = path.stem.partition("-")
        p = params.load(paper, path.parent.name, variant=variant)
        assert (p.profile, p.variant) == (path.parent.name, variant)
        lines = path.read_text("utf-8").splitlines()
        bare[path] = [
            line
            for above, line in zip(lines, lines[1:], strict=False)
            if re.match(r"\w+:", line) and not above.startswith("# ")
        ]
    assert {path: lines for path, lines in bare.items() if lines} == {}


def test_a_notebook_s_cell_shows_what_it_reads_with_the_values_of_profile_tiny():
    faults = {}
    for path in NOTEBOOKS:
        cell = declared(path)
        tiny = params.read_yaml(params.yaml_path(paper_of(path), "tiny"))
        other = {k for k, v in cell.items() if k in tiny and v != tiny[k]}
        cells = nbformat.read(path, 4).cells
        source = "\n".join(c.source for c in cells if c.cell_type == "code")
        fields = params.class_of(paper_of(path)).model_fields.keys()
        read = fields & set(re.findall(r"\bP\.(\w+)", source))
        if wrong := other | read - cell.keys():
            faults[path.stem] = wrong
    assert faults == {}


def refused(values, paper="truthrl", profile="tiny"):
    with pytest.raises(params.ParamError) as error:
        params.load(paper, profile, values)
    return str(error.value)


def test_what_is_refused_comes_with_the_fix():
    unsloth = {"lora_backend": "unsloth", "lora_rank": 8, "deepspeed": "zero3"}
    for values, *words in (
        (
            {"learning_rate": 1e-5},
            "learning_rate=1e-05",
            "did you mean rl_learning_rate",
        ),
        ({"rl_learning_rate": "1e-5"}, "rl_learning_rate='1e-5'", "1.0e-5"),
        ({"beta": -1.0}, "--set: beta=-1.0"),  # the file is not blamed
        ({"num_generations": 7}, "num_generations=7 must divide rl_batch_size=128"),
        ({"num_processes": 2, "micro_batch_size": 48}, "= 96 must divide"),
        ({"verifier": "judge"}, "verifier=judge needs judge_model"),
        (unsloth, "lora_backend=unsloth needs lora_rank > 0, no deepspeed"),
        ({"arm": "ternary_reason_additive"}, "set answer_format=boxed"),
    ):
        said = refused(values)
        assert all(word in said for word in words), said
    assert "params/tiny/truthrl.yaml" in refused({}, profile="cloud")
    with pytest.raises(params.ParamError, match="params/tiny/truthrl-retrieval.yaml"):
        params.load("truthrl", "tiny", variant="magic")


def test_what_goes_together_is_taken(tmp_path):
    for values in (
        {"policy": str(tmp_path)},
        {"policy": "Qwen/Qwen3-8B"},
        {"verifier": "judge", "judge_model": "org/judge"},
        {"lora_backend": "unsloth", "lora_rank": 8},
        {"num_processes": 2, "micro_batch_size": 16},
        {"seeds": "0 1"},
    ):
        assert params.load("truthrl", "tiny", values).model_dump() | values == (
            params.load("truthrl", "tiny", values).model_dump()
        )
    one = params.load("truthrl", "tiny", {"seeds": 0})  # as --set and -p read it
    assert one.seeds == "0"
    base, varied = (
        params.load("truthrl", "tiny", variant=v).model_dump()
        for v in ("", "reasoning")
    )
    held = params.read_yaml(params.yaml_path("truthrl", "tiny", "reasoning"))
    assert varied == base | held != base


def test_values_of_a_wrong_type_out_of_range_or_that_do_not_exist_are_refused():
    for key, value in (
        *(("seed", 1.5), ("rl_steps", "40"), ("beta", True), ("policy", 3)),
        *(("beta", -0.1), ("known_share", 1.1), ("rl_steps", 0), ("seed", -1)),
        *(("beta", float("inf")), ("temperature", float("nan")), ("arm", "dpo2")),
        *(("policy", "smollm"), ("policy", "outputs/no/such/model")),
        *(("prompt_template", "short_from"), ("verifier", "jugde")),
        *(("variant", "../x"), ("variant", "a b"), ("variant", "a/b")),
    ):
        assert f"{key}={value!r}" in refused({key: value})


def test_malformed_yaml_files_are_refused(tmp_path):
    path = tmp_path / "bad.yaml"
    for text, said in (
        ("a: 1\na: 2\n", "a is set twice"),
        ("a:\n  b: 1\n", "a must be a scalar"),
        ("- 1\n", "lines of `key: value`"),
        ("a: [1\n", "not valid YAML"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(params.ParamError, match="bad.yaml") as error:
            params.read_yaml(path)
        assert said in str(error.value)


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
    without = given('profile = "laptop"\nrl_steps = 7')
    assert (without.lora_rank, without.rl_steps) == (16, 7)
    values = {"In": ['profile = "laptop"\nlora_rank = 0']}
    values |= {"profile": "laptop", "lora_rank": 0}
    assert params.check("truthrl", values, lora_rank=0).lora_rank == 0  # it is meant
    assert "did you mean rl_steps?" in refused_cells('profile = "tiny"\nrl_step = 7')


def test_at_a_second_run_all_a_notebook_s_own_names_are_no_parameters():
    cell = 'profile = "tiny"\nseed = 1'
    again = given(cell, "loss = 0.5\narms = (1, 2)\nbeta = 20.0", cell)
    assert again == given(cell)
    assert given(cell, "rl_steps = 7").rl_steps == 7  # a cell of one's own before it


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
            files = f"-f params/{profile}/{paper}.yaml -f params/{profile}/{path.name}"
            assert f"give {files}" in refused_cells(swapped, paper=paper), path
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


def test_the_check_loads_no_model_library():
    code = "import sys, factkit.params; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
