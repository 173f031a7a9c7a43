"""Nonsense is refused before anything loads, by a message that names the key.

The tables hold one value a row; each is tried at every paper that has the key.
"""

from types import SimpleNamespace

import pytest
import yaml

from factkit.run import params
from factkit.run.params import ROOT, data, reading

NAN, INF = float("nan"), float("inf")
LONG = "x" * 5000

# of a kind of key → values that are none of it
NAMES = (" ", "a b\n", "\t", "a\x00b", "a\u200bb", LONG, " m", "m ", 3, None, True)
WEIGHTS = (-0.1, 1e6, NAN, INF, "0.1", None)
RATES = (0.0, -1e-5, 1.0, 1e6, NAN, INF, "1e-5")
COUNTS = (0, -1, 10**9, 1.0, "3", True)
SEEDS = (-1, 5_000_000_000, 2**32 - 1, 2**64, 1.5, "0", True)
URLS = (
    *("file:///etc/passwd", "ftp://host/v1", "localhost:8001/v1", "http://", "http:/x"),
    *("http:///v1", "https://", "//host/v1", "http://ho st/v1", "http://host/v1\n"),
    *("http://host:99999/v1", "http://host:0/v1", "http://host:abc", "javascript:1"),
    *("http://host/v1?a=b", "http://host/v1#a", "http://..", "http:host", "HTTP", " "),
    *("http://u:p@host/v1", "http://host\\v1", "http://[zz]/v1", 8001, None, LONG),
)
FOLDERS = (
    *("params", "notebooks", "factkit", "tests", "params/tiny", "factkit/../params"),
    *(".", "", "/", "..", "../..", "./", str(ROOT), str(ROOT.parent), "outputs/.."),
    *("README.md", "README.md/x", "outputs/reference", "outputs/reference/tiny/x"),
    *(".git", ".git/x", "/etc", "/etc/factkit", "/usr/lib", "/proc", "~/runs", "a*"),
    *("a\nb", "a\x00", "{x}", 'a"b', " outputs", 2026, None, "x" * 300, LONG),
)
PATHS = (
    "no/such/file.jsonl",
    "/no/such",
    "README.md\n",
    " ",
    "\x00",
    3,
    "x" * 300,
    LONG,
)
ARMS = ("", " ", "../x", "sft ternari", "sft,ternary", "x", "base base", 1, None, LONG)
SEED_LISTS = (
    *("", " ", "0,1,2", "-1", "0 -1", "0 0", "0 1 x", "1.5", "1e3", "0x1", "５", "01"),
    *("5000000000", "0 5000000000", "0\n1", "0  1", "[0, 1]", "one", 1.5, -1, LONG),
)
POLICIES = (
    *("/etc", "/", ".", "..", "../x", "./x", "a/..", "a/b/c", "tiny", "", " ", "a b/c"),
    *("a/b\n", "smollm", "outputs/none/model", "-a/b", "a/-b", "https://hub/a/b", 3),
    *("params", "x" * 300, LONG),
)
TEMPLATES = (
    "",
    " ",
    "no_such",
    "/etc/passwd",
    "README.md",
    "/etc",
    "../x",
    "a\n",
    3,
    "x/" + "x" * 300,
)
EXTRA = (
    *("[1]", "1", "{", "{'a': 1}", '{"a": NaN}', "enable: false", '"a"', "null", " "),
    *('{"model": "x"}', '{"messages": []}', '{"temperature": 2}', '{"top_p": 0.1}'),
    *('{"max_tokens": 1}', '{"response_format": null}', '{"n": 2}', '{"stream": true}'),
    *('{"max_completion_tokens": 1}', '{"tools": []}', '{"guided_json": {}}'),
    *("[" * 3000, '{"a":' * 700, LONG, {"top_k": 1}),
)
SAMPLING = (0.0, -1.0, 1e3, NAN, INF, "1", None)
PRICES = (-1.1, 1.1, NAN, INF, "0.5", None)
SHARES = (-0.1, 1.1, 2.0, NAN, INF, "0.5", None)
TOP_P = (0.0, -0.5, 1.1, NAN, "1", None)
MAPS = ("", "1 2 3 4", "a b c d e", "1 2 3 4 nan", "1 2 3 4 1e9", "other", 3, LONG)

BAD = {
    "seed": SEEDS,
    "world_seed": SEEDS,
    "split_seed": SEEDS,
    "seeds": SEED_LISTS,
    "arms": ARMS,
    "arm": ("", "x", "../x", "sft ", "SFT", 1, None),
    "profile": ("", "cloud", "tiny ", "Tiny", "../tiny", 1, None),
    "variant": ("../x", "a b", "a/b", "..", ".", "a\n", 1.1, None, LONG),
    "output_dir": FOLDERS,
    "policy": POLICIES,
    "larger_policy": POLICIES,
    "encoder": ("", "/etc", "..", "../x", "e5", "a b/c", 3),
    "dtype": ("", "float16", "fp32", "Float32", "bfloat16 ", 32, None),
    "chat": ("true", 1, None, "yes"),
    "answer_format": ("", "xml", "plain ", 1),
    "sft_target": ("", "most", "edited ", 1, None),
    "cold_start_arm": ("", "sft", "R-Tuning", 1),
    "prompt_template": TEMPLATES,
    "prompting_template": TEMPLATES,
    "abstaining_template": TEMPLATES,
    "reasoning_template": TEMPLATES,
    "offline_template": (*TEMPLATES, "claim"),
    "judge_model": NAMES,
    "relevance_model": NAMES,
    "judge_url": URLS,
    "relevance_url": URLS,
    "search_url": URLS,
    "judge_extra": EXTRA,
    **dict.fromkeys(("judge_concurrency", "judge_gpus"), (*COUNTS, 10**6)),
    "judge_timeout": (0.0, -1.0, 1e9, NAN, INF, "60"),
    "abstention_reward": PRICES,
    "judge_max_calls": (-1, 1.5, "9", None),
    "judge_thinking_tokens": (-1, 10**8, 1.5, "9"),
    "other_judges": ("x", "a@b", "@http://h/v1", "m@file:///x", "exact,rules", 3),
    "questions": ("", "squad", "crag nq_open", 1),
    "requests": ("", "all", "world leads", 1),
    "claims": ("", "all", 1),
    "verifier": ("", "jugde", "rules exact", 1, None),
    "eval_sets": ("x", "nq_open,musique", "feverous feverous", 3, LONG),
    "test_sets": ("x", "biography biography", "gpqa,biography", 3),
    "utility_benchmarks": ("", "x", "win_rate win_rate", "humaneval", "a,b", 3),
    "questions_path": ("params", "/etc", *PATHS),
    **dict.fromkeys(("requests_path", "documents_path"), PATHS),
    **dict.fromkeys(
        """question_field answer_field answer_separator group_field
        evidence_field""".split(),
        (" ", "a\n", "field", 3, None, LONG),  # read only with rows of one's own
    ),
    **dict.fromkeys(("benchmarks", "claims_path"), ("README.md", *PATHS[2:])),
    "wikipedia_path": ("params", "/etc", *PATHS[2:]),
    "rollouts": ("", "vllm", 1),
    "lora_backend": ("", "qlora", None),
    "report_to": ("", "all", "Wandb", None),
    "deepspeed": ("zero2", "zero3", None),
    "loss": ("", "ppo", None),
    "method": ("", "grpo", None),
    "train_on": ("", "both", None),
    "retriever": ("bm26", "e5 ", None),
    "vllm_tensor_parallel": COUNTS,
    "vllm_memory": (0.0, 1.0, 1.5, -0.1, NAN, "0.3"),
    "num_processes": (*COUNTS, 7),
    "micro_batch_size": (-1, 7, 1.5, 10**9, "4"),
    "max_context_length": (*COUNTS, 8),
    "max_completion_length": (*COUNTS, 2048, 4096),
    "eval_batch_size": COUNTS,
    "world_people": (*COUNTS, 19, 60_000),
    "world_exposure": ("", "Fact", "persons", 1, None),
    "pretrain_hidden_size": (*COUNTS, 100, 33),
    "larger_hidden_size": (*COUNTS, 100, 33),
    "pretrain_layers": (*COUNTS, 1000),
    "pretrain_steps": COUNTS,
    "pretrain_batch_size": COUNTS,
    "pretrain_reading": WEIGHTS,
    "lora_rank": (-1, 10**6, 1.5, "16"),
    "lora_alpha": (*COUNTS, 10**6),
    "sft_warmup_ratio": (*SHARES, 1.0),
    "rl_warmup_ratio": (*SHARES, 1.0),
    "checkpoint_steps": COUNTS,
    "sft_batch_size": COUNTS,
    "dpo_batch_size": COUNTS,
    "reward_batch_size": COUNTS,
    "sft_epochs": COUNTS,
    "dpo_epochs": COUNTS,
    "reward_epochs": COUNTS,
    "ppo_epochs": COUNTS,
    "dpo_iterations": (*COUNTS, 1000),
    "dpo_beta": (*WEIGHTS, 0.0),
    "rl_steps": COUNTS,
    "rl_batch_size": (*COUNTS, 1, 7, 10**7),
    "num_generations": (*COUNTS, 1, 7, 5),
    "minibatches": (*COUNTS, 10**4),
    "kept_policies": COUNTS,
    "epsilon": (0.0, 1.0, 1.5, -0.2, NAN, INF),
    "top_p": TOP_P,
    "rft_top_p": TOP_P,
    "gamma": SHARES,
    "gae_lambda": SHARES,
    "known_share": SHARES,
    "withheld_evidence": SHARES,
    "least_known": SHARES,
    "most_known": SHARES,
    "utility_drop": (0.0, 1.0, 1.5, -0.1, NAN),
    "least_margin": (-0.1, 1.0, 2.0, NAN),
    "value_clip": (0.0, -1.0, 1e3, NAN, INF),
    "info_epsilon": (-1.0, -5.0, 1e6, NAN, INF),
    "truth_map": MAPS,
    "informativeness_map": MAPS,
    "length_difference": (*WEIGHTS, 0.0),
    "chunk_tokens": (*COUNTS, 7),
    "overlap": (-1, 128, 500, 1.5),
    "max_documents": (*COUNTS, 99),
    "n_questions": COUNTS,
    "rows": (-1, 1.5, 10**9, "3"),
    "dense_steps": (-1, 1.5, 10**9),
    "evaluation_tokens": (-1, 1.5, 10**8),
    "context_entries": (-1, 1.5, 10**6),
    "reward_pairs": (-1, 1.5, 10**6),
    "reward_lora_rank": (-1, 1.5, 10**6),
    **dict.fromkeys(
        """train_questions train_requests train_claims sft_requests sft_trajectories
        dev_questions dev_requests test_questions test_requests test_claims""".split(),
        (*COUNTS, 2),
    ),
    **dict.fromkeys(
        """comparison_questions majority_samples rft_samples retrieved_chunks pages
        least_pages whole_chunks claim_chunks test_chunks retrieved_entries
        max_searches""".split(),
        COUNTS,
    ),
    **dict.fromkeys("probe_samples drawn_responses dev_claims".split(), (*COUNTS, 1)),
    **dict.fromkeys(
        """whole_chunk_tokens claim_chunk_tokens max_prompt_length
        max_observation_length""".split(),
        (*COUNTS, 7),
    ),
    **dict.fromkeys(
        """beta alpha info_beta reward_beta value_coefficient reason_weight
        non_stop_penalty""".split(),
        WEIGHTS,
    ),
    **dict.fromkeys(
        """sft_learning_rate dpo_learning_rate rl_learning_rate value_learning_rate
        reward_learning_rate pretrain_learning_rate""".split(),
        RATES,
    ),
    **dict.fromkeys(
        "temperature probe_temperature drawn_temperature rft_temperature".split(),
        SAMPLING,
    ),
    **dict.fromkeys(
        """allow_code shuffled_results query_with_prompt cold_start sft_by_length online
        evidence_reward validity_weight format_reward validity_at_half""".split(),
        ("true", 1.0, None),
    ),
}
UNUSED = {("verifiers", k) for k in ("num_processes", "micro_batch_size", "deepspeed")}
OF_OTHERS = {"judge_key", "judge_headers"}  # where secrets come from


@pytest.fixture(scope="module")
def own():
    return {paper: params.defaults(paper, "tiny") for paper in params.find_classes()}


def refusals(own, key, value):
    """Paper → the message, "" where the value is taken."""
    messages = {}
    for paper, values in own.items():
        if (paper, key) not in UNUSED and key in params.find_classes()[
            paper
        ].model_fields:
            messages[paper] = ""
            try:
                params.validate(paper, values | {key: value}, "--set")
            except params.ParamError as error:
                messages[paper] = str(error)
    return messages


def test_every_kind_of_nonsense_is_refused_by_a_short_message_that_names_the_key(own):
    taken, unclear, tried = [], [], 0
    for key, values in BAD.items():
        for value in values:
            messages = refusals(own, key, value)
            assert messages, key
            tried += len(messages)
            taken += [(paper, key, value) for paper, m in messages.items() if not m]
            unclear += [
                (key, message)
                for message in messages.values()
                if message and (key not in message or len(message) > 3000)
            ]
            assert all(len(m.splitlines()) <= 10 for m in messages.values())
    assert (taken, unclear) == ([], [])
    assert tried > 4000


def test_the_table_of_nonsense_has_every_parameter_of_every_paper():
    every = set().union(
        *(params.find_classes()[p].model_fields for p in params.find_classes())
    )
    assert every - BAD.keys() == OF_OTHERS


def test_what_does_not_go_together_is_refused_with_both_keys(own):
    for paper, values, *keys in (
        ("truthrl", {"train_questions": 15}, "train_questions=15", "16 prompts"),
        ("rar", {"train_requests": 8}, "train_requests=8", "16 prompts"),
        ("veri", {"rl_batch_size": 9600}, "train_claims=480", "1200 prompts"),
        ("truthrl", {"max_completion_length": 2048}, "max_context_length=2048"),
        ("truthrl", {"least_known": 0.9, "most_known": 0.1}, "most_known=0.1"),
        ("truthrl", {"chat": True}, "policy=tiny-world has no chat template"),
        ("truthrl", {"sft_batch_size": 15, "num_processes": 2}, "batch of 15"),
        ("truthrl", {"deepspeed": "zero3"}, "num_processes must be ≥ 2"),
        ("truthrl", {"arms": "sft ternary_reason_additive"}, "answer_format=boxed"),
        ("truthrl", {"arm": "rlcr", "cold_start": False}, "cold_start=true"),
        ("rar", {"least_pages": 11}, "least_pages=11"),
        ("rar", {"verifier": "leads"}, "verifier=leads", "requests=world"),
        ("corpus", {"overlap": 128}, "overlap=128", "chunk_tokens"),
        (
            "rlfh",
            {"verifier": "judge", "judge_model": "m", "judge_url": ""},
            "judge_url",
        ),
    ):
        with pytest.raises(params.ParamError) as error:
            params.validate(paper, own[paper] | values, "--set")
        assert all(key in str(error.value) for key in keys), error.value


def test_many_faults_are_told_in_ten_lines_at_most(own):
    wrong = dict.fromkeys(own["truthrl"], [1])
    with pytest.raises(params.ParamError, match="and [0-9]+ more") as error:
        params.validate("truthrl", own["truthrl"] | wrong, "a.yaml")
    assert len(str(error.value).splitlines()) <= 10


def test_arms_and_seeds_are_lists_once_they_are_checked(own):
    p = params.load("truthrl", "tiny", {"arms": "sft ternary", "seeds": "0 4000000"})
    assert (p.arm_names, p.seed_numbers) == (["sft", "ternary"], [0, 4_000_000])
    assert params.load("truthrl", "tiny", {"seeds": 7}).seed_numbers == [7]


def test_the_names_of_sets_are_those_that_can_be_loaded():
    from factkit.data import sources
    from factkit.papers.reason import arms as reason

    assert set(data.EVAL_SETS) <= sources.SOURCES.keys()
    assert set(reason.EVAL_SETS) <= sources.SOURCES.keys()


# ---- one reading


def test_what_the_readers_of_numbers_differ_in_is_refused_with_the_fix(tmp_path):
    """papermill's -p is Python's int and float, its -f is YAML 1.1."""
    path = tmp_path / "a.yaml"
    for text in (
        *(
            "010",
            "0x10",
            "0b11",
            "1_000",
            "1:30",
            "12:30:45",
            "1e-5",
            "1e5",
            "08",
            "+08",
        ),
        *("yes", "No", "on", "OFF", "TRUE", "~", "null", "None", "inf"),
        *("nan", "1_0.5", "５", "-010", "", "infinity", "1_0"),
    ):
        path.write_text(f"seed: {text}\n", "utf-8")
        with pytest.raises(params.ParamError, match="ambiguous in YAML; write a"):
            params.read_yaml(path)
        with pytest.raises(ValueError, match="ambiguous in YAML; write a"):
            reading.read_value(text)


def test_what_is_read_is_what_papermill_reads_from_a_file_and_by_p():
    from papermill.cli import _resolve_type
    from papermill.iorw import NoDatesSafeLoader

    for text in (
        *("0", "7", "-3", "+4", "1.0e-5", "0.5", ".5", "1.", "-2.5", "True", "False"),
        *("0 1 2", "a b", "org/model", "2026-11-26", "tiny", "http://h:1/v1", "1.0.0"),
    ):
        read = reading.read_value(text)
        both = yaml.load(text, NoDatesSafeLoader), _resolve_type(text)
        assert [(type(v), v) for v in both] == [(type(read), read)] * 2, text
    assert reading.read_value("true") is True  # -p has a text, which no flag takes


def test_papermill_s_own_arguments_are_read_as_files_are(monkeypatch, tmp_path):
    """Of the process that started the kernel: papermill tells a notebook no more than
    what it made of them."""
    import psutil

    (tmp_path / "own.yaml").write_text("seed: 010\n", "utf-8")
    (tmp_path / "fine.yaml").write_text("seed: 10\n", "utf-8")
    start = ["/venv/bin/python", "/venv/bin/papermill", "a.ipynb", "b.ipynb"]
    cell = 'profile = "tiny"'
    values = {
        "In": ["", cell, "# Parameters\nseed = 8\n"],
        "profile": "tiny",
        "seed": 8,
    }
    for words, wrong in (
        ([*start, "-p", "seed", "010"], "papermill -p seed: '010' is ambiguous"),
        (
            [*start, "-f", "own.yaml"],
            "own.yaml, line 1: seed: '010' is ambiguous in YAML",
        ),
        (["python", "-m", "papermill", "a", "-f", "own.yaml"], "own.yaml, line 1"),
        ([*start, "--parameters", "beta", "1e-5"], "ambiguous in YAML"),
        ([*start, "-y", "{seed: 010}"], "papermill -y, line 1: seed: '010' is ambig"),
        ([*start, "-f", "fine.yaml", "-p", "seed", "8", "-r", "arms", "010"], ""),
        ([*start, "-f", "s3://bucket/own.yaml", "--no-such-option"], ""),
        (["jupyter", "lab", "-p", "seed", "010"], ""),
    ):
        parent = SimpleNamespace(cmdline=lambda w=words: w, cwd=lambda: str(tmp_path))
        process = SimpleNamespace(parent=lambda p=parent: p)
        monkeypatch.setattr(psutil, "Process", lambda p=process: p)
        if wrong:
            with pytest.raises(params.ParamError) as error:
                params.check("truthrl", values)
            assert wrong in str(error.value)
        else:
            assert params.check("truthrl", values).seed == 8


def test_a_file_that_is_not_flat_is_refused_however_deep_it_is(tmp_path):
    path = tmp_path / "a.yaml"
    deep = 30_000
    for text in (
        *("a: " + "[" * deep, "a: " + "[" * deep + "]" * deep, "a: " + "{a: " * deep),
        *(
            "- " * deep,
            "[" * deep,
            "? " * deep,
            "a: &x [*x]",
            "a: &x 1\nb: *x",
            "a: &x 1",
        ),
        *(
            "<<: {a: 1}",
            "a: 1\n<<: 2",
            "a: !!python/object/apply:os.system [x]",
            "1: 2",
        ),
        *("a: !!int '8'", "a: !x 1", "a: 1\n---\nb: 2", "a: 1\n...\n---\n", "[a]: 1"),
        *(
            "{a: 1}: 2",
            "a: 1\na: 2",
            "a:\n\tb: 1",
            "\ufeffa: 1",
            "",
            "# none",
            "a",
            "- 1",
        ),
        *("a: b: c", "'a b': 1", "a: \x00", "a: 1\n b: 2", "x" * 200_000, "? [a]\n: 1"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(params.ParamError, match="a.yaml") as error:
            params.read_yaml(path)
        assert len(str(error.value)) < 600
    path.write_text("a: 1 # one\n'b': \"010\"\nc: |\n  text\n", "utf-8")
    assert params.read_yaml(path) == {"a": 1, "b": "010", "c": "text\n"}
