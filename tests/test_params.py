"""The preflight: what is refused, and that the message helps."""

import itertools
import os
import re
import subprocess
import sys

import nbformat
import pytest

from factkit.run import params
from factkit.run.params import reading

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


def test_a_notebook_s_cell_shows_what_it_reads_with_the_values_of_its_profile():
    """Those of profile tiny, or of the one that the cell names."""
    faults = {}
    for path in NOTEBOOKS:
        cell = declared(path)
        profile, variant = cell["profile"], cell.get("variant", "")
        own = params.load(paper_of(path), profile, variant=variant).model_dump()
        other = {k for k, v in cell.items() if k in own and v != own[k]}
        cells = nbformat.read(path, 4).cells
        source = "\n".join(c.source for c in cells if c.cell_type == "code")
        fields = params.find_classes()[paper_of(path)].model_fields.keys()
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
    (tmp_path / "config.json").touch()
    (tmp_path / "model.safetensors").touch()
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
    held = {k: v for k, v in held.items() if not k.startswith(params.MARK)}
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


def test_a_line_of_the_parameters_cell_is_read_or_refused_never_passed_over():
    """Today's cells have plain lines; all else that Python allows sets a value, too."""
    refused, right = [], {"beta": 0.5, "seed": 1}
    for lines in (
        *("seed = 1; beta = 0.5", "seed, beta = 1, 0.5", "(seed, beta) = 1, 0.5"),
        *("[seed, beta] = [1, 0.5]", "seed = x = 1\nbeta = 0.5", "if True: beta = 0.5"),
        *("if True:\n  beta = 0.5", "for beta in (0.1, 0.5): pass", "beta = 1 / 2"),
        *("beta = 1.0\nbeta /= 2", "(beta := 0.5)", "print(beta := 0.5)", "beta = f()"),
        *(
            "globals()['beta'] = 0.5",
            "globals().update(beta=0.5)",
            "exec('beta = 0.5')",
        ),
        *("import os\nbeta = 0.5", "beta = float('0.5')", "beta: float", "del seed"),
        *("try:\n  beta = 0.5\nfinally:\n  pass", "with open(f) as beta: pass", "f()"),
        *("def beta(): return 0.5", "class beta: pass", "from os import path as beta"),
        *("beta = 0.1\nbeta = 0.5", "*beta, = [0.5]", "beta = x = 0.5", "beta = [0.5]"),
        *("while True:\n  beta = 0.5\n  break", "match 0.5:\n  case beta: pass"),
        *("beta = (0.5,)", "beta = {'a': 0.5}", "seed = None", "a.beta = 0.5", "pass"),
        *(
            "%load_ext x",
            "!ls",
            "beta = 0.5 if seed else 0",
            "beta = True and 0.5",
            "'x'",
        ),
        *(
            "lambda: 0",
            "assert True",
            "seed = (1)\nbeta = +0.5 * 1",
            "beta = f'{seed}'",
        ),
    ):
        cell = f'profile: str = "tiny"\n{transformed(lines)}'
        try:
            exec(cell, values := {"f": lambda: 0.5, "a": type("A", (), {})()})
        except Exception:
            values = {}
        values = {"profile": "tiny", "seed": 1, "beta": 0.5} | values
        try:
            p = params.check("truthrl", {"In": ["", cell], **values})
        except params.ParamError as error:
            refused.append(lines)
            assert "the parameters cell, line" in str(error), error
            assert "name = value" in str(error)
        else:
            assert {k: getattr(p, k) for k in right} == right, lines
    assert len(refused) > 40
    for lines in (
        *("beta = 0.5  # KL\nseed = 1", "beta: float = (0.5)\nseed: int = +1"),
        *('beta = 0.5\nseed = 1\njudge_model = (\n  "a"\n  "b"\n)', "seed=1\nbeta=.5"),
        "# a comment\n\nbeta = 5e-1; seed = 1",
    ):
        p = given(f'profile = "tiny"\n{lines}')
        assert {k: getattr(p, k) for k in right} == right, lines


def transformed(source):
    """Magics as IPython stores them in `In`."""
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(source)


def test_a_value_that_is_set_after_the_parameters_cell_counts_however_it_was():
    cell = 'profile = "tiny"\nseed = 0\nbeta = 0.001'
    for later in (
        *("beta = 0.5", "beta, x = 0.5, 1", "x = beta = 0.5", "beta = 0.25\nbeta *= 2"),
        *(
            "if seed == 0:\n    beta = 0.5",
            "for beta in (0.1, 0.5): pass",
            "(beta := 0.5)",
        ),
        *(
            "globals()['beta'] = 0.5",
            "exec('beta = 0.5')",
            "globals().update(beta=0.5)",
        ),
        *(
            "def f():\n    global beta\n    beta = 0.5\nf()",
            "[beta := b for b in [0.5]]",
        ),
    ):
        assert given(cell, later).beta == 0.5, later
        hidden = later.replace("beta", "dpo_beta")  # which the cell does not show
        assert given(cell, hidden).dpo_beta == 0.5, hidden
        once_more = given(cell, later, hidden, cell)  # a second Run All
        assert once_more.beta == 0.001
        assert once_more == given(cell) or re.search("exec|globals", later)
    assert "deleted after" in refused_cells(cell, "del beta")
    assert "beta=[1]" in refused_cells(cell, "globals()['beta'] = [1]")
    assert given(cell, "seed = = 1" and "x = 1", "import json as loss").loss == "grpo"
    fixed = {"In": ["", f"{cell}; x()", "a b", cell, "await f()", "x = 1"]}
    values = {"profile": "tiny", "seed": 0, "beta": 0.001}
    assert params.check("truthrl", fixed | values).beta == 0.001


def test_no_notebook_binds_a_parameter_s_name_where_it_is_checked():
    """At a second Run All it would be taken for a change."""
    for path in NOTEBOOKS:
        cells = [
            c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"
        ]
        (checks,) = [c for c in cells if "params.check(" in c]
        fields = params.find_classes()[paper_of(path)].model_fields
        assert not reading._assigned_names(checks).keys() & fields, path


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


@pytest.fixture
def files(monkeypatch):
    """The content of each parameter file, read once."""
    content = {path: params.read_yaml(path) for path in YAMLS}
    monkeypatch.setattr(params, "read_yaml", lambda path: dict(content[path]))
    return content


def mixed(files, paths, paper, **more):
    """Whether files that papermill merges in this order are taken for a run's though
    its values are not those of the profile and variant that it says."""
    merged = {k: v for path in paths for k, v in files[path].items()} | more
    cell = "# Parameters\n" + "".join(f"{k} = {v!r}\n" for k, v in merged.items())
    try:
        p = params.check(paper, {"In": ["", cell], **merged})
    except params.ParamError as error:
        assert len(str(error).splitlines()) == 1, error
        return False
    return p != params.load(paper, p.profile, more, variant=p.variant)


def test_no_two_files_are_mixed_without_a_word_in_any_order(files):
    """All ordered pairs of each paper's files, and of its main files and others'."""
    silent, tried = [], 0
    for paper in params.find_classes():
        own = [path for path in YAMLS if path.stem.partition("-")[0] == paper]
        main = [path for path in own if path.stem == paper]
        others = [p for p in YAMLS if p.parent.name == "tiny" and p not in own]
        pairs = [*itertools.permutations(own, 2), *itertools.product(main, others)]
        pairs += itertools.product(others, main)
        tried += len(pairs)
        silent += [pair for pair in pairs if mixed(files, pair, paper)]
    assert silent == []
    assert tried > 900


def test_three_files_and_values_beside_them_are_not_mixed_either(files):
    own = [p for p in YAMLS if re.fullmatch(r"tiny/truthrl(-[a-z]+)?", name_of(p))]
    for paths in itertools.product(own, repeat=3):
        assert not mixed(files, paths, "truthrl", rl_steps=7), paths
    main, laptop = (params.yaml_path("truthrl", name) for name in ("tiny", "laptop"))
    for more in ({"variant": "small"}, {"profile": "laptop"}):
        with pytest.raises(params.ParamError, match="the values are those of"):
            given(injection("truthrl", "tiny", **more))
    assert not mixed(files, [laptop, main, laptop], "truthrl")


def name_of(path):
    return f"{path.parent.name}/{path.stem}"


def test_a_parameter_file_names_itself_by_a_key_of_its_own():
    keys = [key for p in YAMLS for key in params.read_yaml(p) if "file_" in key]
    assert len({*keys}) == len(keys) == len(YAMLS)


def test_a_file_that_does_not_name_itself_is_told_the_line_that_it_needs(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(params, "ROOT", tmp_path)
    folder = tmp_path / "params" / "tiny"
    folder.mkdir(parents=True)
    lines = "profile: tiny\nvariant: ''\nfile_tiny_rar: params/tiny/rar.yaml\n"
    for wrong, needed in (
        (lines.replace("profile: tiny\n", ""), "the line profile: 'tiny'"),
        (lines.replace("tiny\nv", "laptop\nv"), "the line profile: 'tiny'"),
        (lines.replace("variant: ''", "variant: x"), "the line variant: ''"),
        (lines.replace("_rar", "_veri"), "file_tiny_rar: 'params/tiny/rar.yaml'"),
    ):
        (folder / "rar.yaml").write_text(wrong, "utf-8")
        with pytest.raises(params.ParamError, match=re.escape(needed)):
            params.load("rar", "tiny")


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
    code = "import sys, factkit.run.params; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("given", ["", "7"])
def test_waiting_threads_sleep_early_unless_told_otherwise(given):
    """Before torch loads OpenMP, which reads the variable then."""
    env = {k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"}
    env |= {"GOMP_SPINCOUNT": given} if given else {}
    code = "import os, sys, factkit; assert 'torch' not in sys.modules; "
    code += "print(os.environ['GOMP_SPINCOUNT'])"
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == (given or "3000")
