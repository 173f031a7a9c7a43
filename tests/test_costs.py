"""What a profile costs, against numbers worked out by hand."""

import math

import pytest

from factkit import costs, params, workload
from factkit.params.files import ROOT

LLAMA = costs.SHAPES["meta-llama/Llama-3.1-8B-Instruct"]
PAPERS = ("truthrl", "rar", "reason", "rlfh", "veri")
FILES = sorted(ROOT.glob("params/*/*.yaml"))
NAMES = [(*f.stem.partition("-")[::2], f.parent.name) for f in FILES]
PROFILES = [name for name in NAMES if name[0] in PAPERS]  # paper, variant, profile


def load(profile="h100_lora", variant="", **values):
    return params.load("truthrl", profile, values, variant)


def rar(profile="h100_full", **values):
    return params.load("rar", profile, values)


def reason(profile="h100_full", variant="", **values):
    return params.load("reason", profile, values, variant)


def rlfh(profile="h100_full", variant="", **values):
    return params.load("rlfh", profile, values, variant)


def veri(profile="h100_full", variant="", **values):
    return params.load("veri", profile, values, variant)


def rows_of(p):
    return {what: (value, how) for what, value, how in costs.estimate(p)}


@pytest.mark.parametrize(
    ("model", "weights"),
    [  # elements of the published safetensors files
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
        ("meta-llama/Llama-3.2-3B-Instruct", 3_212_749_824),
        ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("Qwen/Qwen2.5-32B-Instruct", 32_763_876_352),
        ("Qwen/Qwen3-4B", 4_022_468_096),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("allenai/Llama-3.1-Tulu-3-8B", 8_030_326_784),
        ("allenai/Llama-3.1-Tulu-3-8B-DPO", 8_030_326_784),
        ("lmsys/vicuna-7b-v1.5", 6_738_415_616),
        ("smollm2-135m-instruct", 134_515_008),
    ],
)
def test_sizes_give_the_published_number_of_weights(model, weights):
    assert costs.SHAPES[model].parameters == weights


@pytest.mark.parametrize("paper", PAPERS)
def test_the_tiny_policy_s_weights_are_counted_as_torch_counts_them(paper):
    from factkit.train.pretrain import build_policy
    from factkit.world import facts as world
    from factkit.world import texts as world_text

    p = params.load(paper, "tiny")
    made = world.build_world(people=p.world_people, seed=p.world_seed)
    tokenizer = world_text.build_tokenizer(made, p.answer_format)
    sizes = {"hidden_size": p.pretrain_hidden_size, "layers": p.pretrain_layers}
    model = build_policy(tokenizer, **sizes)
    assert costs.shape_of(p).parameters == model.num_parameters()


def test_lora_weights_by_hand():
    # a layer, a rank: q, o 4096 + 4096; k, v 4096 + 1024; gate, up, down 4096 + 14336
    layer = 2 * 8192 + 2 * 5120 + 3 * 18432
    assert LLAMA.lora(64) == 32 * 64 * layer == 167_772_160


def test_key_and_value_bytes_by_hand():
    assert LLAMA.kv_bytes == 2 * 32 * 8 * 128 * 2 == 131_072


def gigabytes(p):
    return {what: gb for what, gb, _ in costs.memory(p, LLAMA)}


def test_memory_of_lora_by_hand():
    found = gigabytes(load())
    assert found["weights"] == pytest.approx(2 * 8.0303 + 4 * 0.16777, abs=1e-3)
    assert found["gradients"] == pytest.approx(4 * 0.16777, abs=1e-3)
    assert found["optimizer"] == pytest.approx(8 * 0.16777, abs=1e-3)
    assert found["reference"] == 0
    assert found["logits"] == pytest.approx(4 * 2048 * 128_256 * 8 / 1e9)
    assert found["rollout engine"] == pytest.approx(32)


def test_memory_of_zero3_on_four_gpus_by_hand():
    found = gigabytes(load("h100_full", deepspeed="zero3"))
    assert found["weights"] == pytest.approx(2 * 8.0303 / 4, abs=1e-3)
    assert found["gradients"] == pytest.approx(4 * 8.0303 / 4, abs=1e-3)
    assert found["optimizer"] == pytest.approx(12 * 8.0303 / 4, abs=1e-3)
    assert found["reference"] == pytest.approx(2 * 8.0303 / 4, abs=1e-3)


def test_offload_leaves_no_shard_on_the_gpu_and_names_the_host_s_memory():
    p = load("h100_full")
    found = gigabytes(p)
    assert found["weights"] == found["optimizer"] == found["gradients"] == 0
    rows = {what: value for what, value, _ in costs.estimate(p)}
    assert rows["host memory"] == "233 GB"  # 8.03 × (18 × 1.5 + 2)


def test_tokens_by_hand():
    p = load()
    assert workload.rollout_tokens(p) == 300 * 64 * (200 + 2048) == 43_161_600
    assert workload.sampled_tokens(p) == {"probing": 1700 * (200 + 256 * 2048)}


def test_references_lengthen_a_prompt_as_far_as_the_context_goes():
    assert workload.prompt_tokens(load("h100_full", "retrieval")) == 200 + 24 * 512
    short = load("h100_full", "retrieval", max_context_length=4096)
    assert workload.prompt_tokens(short) == 2048


def test_judge_calls_by_hand():
    p = load()  # test, comparison and 3 sets of 643, judged twice; 64 samples each
    evaluation = 5 * 643 * 2 + 64 * 643
    assert sum(workload.shared_judge_calls(p).values()) == 448_060
    expected = {
        "ternary": (0, 300 * 64),
        "ternary_reason_additive": (0, 2 * 300 * 64),
        "ternary_strict_match": (0, 0),
        "rlhf": (0, 0),
        "rft": (1700 * 64, 0),
        "iterative_dpo": (4 * 1700 * 256, 0),
    }
    for arm, (sampling, training) in expected.items():
        calls = workload.judge_calls(p, arm)
        assert calls == {
            "sampling": sampling,
            "training": training,
            "evaluation": evaluation,
        }


def test_gpu_hours_by_hand():
    hours = costs.gpu_hours(load(), LLAMA)
    rate = 2500 * 8 / 8.030261248  # tokens/s
    assert hours["rollouts"] == pytest.approx(300 * 64 * 2048 / rate / 3600)
    assert hours["probing"] == pytest.approx(1700 * 256 * 2048 / rate / 3600)
    assert hours["evaluation"] == pytest.approx((5 + 64) * 643 * 2048 / rate / 3600)
    flops = 12 * 8.030261248e9 * 43_161_600
    assert hours["training"] == pytest.approx(flops / (989e12 * 0.3) / 3600)


def test_waiting_gpus_are_counted():
    # 4 training and 2 of the engine: all 6 are held while 2 generate
    alone = costs.gpu_hours(load(), LLAMA)["rollouts"]
    assert costs.gpu_hours(load("h100_full"), LLAMA)["rollouts"] == alone / 2 * 6


@pytest.mark.parametrize(("paper", "variant", "profile"), PROFILES)
def test_every_profile_is_estimated_without_nan(paper, variant, profile):
    p = params.load(paper, profile, {}, variant)
    rows = costs.estimate(p)
    assert len(rows) >= 10
    for what, value, how in rows:
        assert what and value and how
        assert "nan" not in value and "inf" not in value
    amounts = [gb for _, gb, _ in costs.memory(p, costs.shape_of(p))]
    assert all(math.isfinite(gb) and gb >= 0 for gb in amounts)


@pytest.mark.parametrize(
    ("paper", "profile"),
    [
        (paper, profile)
        for paper in PAPERS
        for profile in ("tiny", "laptop")
        if (params.ROOT / "params" / profile / f"{paper}.yaml").exists()
    ],
)
def test_a_profile_without_endpoints_costs_no_calls_and_no_gpu(paper, profile):
    rows = rows_of(params.load(paper, profile))
    assert rows["judge calls"][0] == rows["GPU-hours"][0] == "0"
    if paper in ("rar", "reason", "rlfh"):
        assert rows["web searches"][0] == "0"


def test_an_unknown_model_is_said_to_be_unknown():
    rows = costs.estimate(load(policy="someone/new-9B"))
    assert rows[0][:2] == ("parameters", "unknown")
    assert any(what.startswith("judge calls") for what, *_ in rows)


# ---- Binary RAR


def test_binary_rar_s_tokens_by_hand():
    p = rar()
    assert workload.rollout_tokens(p) == 2000 * 128 * (500 + 4096) == 1_176_576_000
    assert workload.sampled_tokens(p) == {
        "drawing": 8000 * (500 + 8 * 4096),
        "own answers": (3 * 200 + 42 + 3 * 500 + 42) * (500 + 4096),
    }


def test_binary_rar_s_training_calls_by_hand():
    # VeriScore: 15 sentences are read and 30 claims held against evidence
    expected = {
        "base": 0,
        "sft": 0,
        "dpo": 0,
        "lm_judge": 256_000,
        "veriscore": 256_000 * 45,
        "binary_rar": 256_000,
        "rating_rar": 256_000,
        "binary_veriscore": 256_000 * 45,
        "conflict_only_veriscore": 256_000 * 45,
        "veriscore_plus_judge": 256_000 * 46,
    }
    p, rows = rar(), rows_of(rar())
    assert p.arms.split() == list(expected)
    for arm, calls in expected.items():
        assert workload.judge_calls(p, arm)["training"] == calls
        if calls:
            assert rows[f"judge calls training {arm}"][0] == f"{calls:,}"
    assert "128 a step" in rows["judge calls training binary_rar"][1]
    assert "5,888 a step" in rows["judge calls training veriscore_plus_judge"][1]


def test_binary_rar_s_evaluation_calls_by_hand():
    # 45 calls for claims, 1 for quality, 2 for outcomes; 200 dev and 500 test requests
    p = rar()
    calls = {arm: workload.judge_calls(p, arm)["evaluation"] for arm in p.arms.split()}
    assert calls["base"] == 0  # its answers are judged once for all arms
    assert calls["sft"] == calls["dpo"] == (200 + 500) * 48 == 33_600
    assert calls["binary_rar"] == calls["veriscore"] == (4 * 200 + 500) * 48 == 62_400


def test_binary_rar_s_shared_calls_by_hand():
    assert workload.shared_judge_calls(rar()) == {
        "filtering": 20 * 8000,
        "drawn responses": 8000 * 8 * 45,
        "evaluation before": 700 * 48,
    }


def test_binary_rar_s_calls_of_all_arms_and_seeds_by_hand():
    training = 256_000 * (3 * 1 + 3 * 45 + 46)
    each = training + 7 * 62_400 + 2 * 33_600
    shared = 160_000 + 2_880_000 + 33_600
    assert workload.all_judge_calls(rar()) == shared + each == 50_681_600
    assert workload.all_judge_calls(rar(seeds="0 1 2")) == shared + 3 * each


def test_binary_rar_s_judge_tokens_by_hand():
    p = rar()
    whole = 500 + 500 + 15 * 30 + 8 * 512  # call, request, response, evidence
    claims = 15 * (500 + 500 + 5 * 30) + 30 * (500 + 30 + 4 * 256)
    assert workload.judge_tokens(p, "binary_rar") == 256_000 * whole
    assert workload.judge_tokens(p, "veriscore") == 256_000 * claims
    both = claims + 500 + 500 + 15 * 30
    assert workload.judge_tokens(p, "veriscore_plus_judge") == 256_000 * both


def test_binary_rar_s_searches_and_pages_by_hand():
    rows = rows_of(rar())
    assert workload.web_searches(rar()) == 8000 + 200 + 500 == 8700
    assert rows["web searches"][0] == "8,700"
    assert rows["web pages"][0] == "87,000"
    assert "web pages" not in rows_of(rar(search_url=""))


def test_binary_rar_s_gpu_hours_by_hand():
    qwen = costs.SHAPES["Qwen/Qwen3-8B"]
    hours = costs.gpu_hours(rar(), qwen)
    rate = 2500 * 8 / 8.19073536  # tokens/s
    assert hours["drawing"] == pytest.approx(8000 * 8 * 4096 / rate / 3600)
    # 4 policies on dev and 1 on test: 3 kinds of requests, and 42 of a form
    answers = 4 * (3 * 200 + 42) + (3 * 500 + 42)
    assert hours["evaluation"] == pytest.approx(answers * 4096 / rate / 3600)
    # 4 training and 1 of the engine: all 5 are held while 1 generates
    assert hours["rollouts"] == pytest.approx(256_000 * 5 * 4096 / rate / 3600)


# ---- Learning to Reason

TESTS = 6 * 532  # requests of its six evaluation sets
BEFORE = (200 + TESTS) * (69 + 2)  # dev and test: VeriScore, and both orders


def test_learning_to_reason_s_tokens_by_hand():
    p = reason()
    assert workload.rollout_tokens(p) == 4000 * 4 * (250 + 4096) == 69_536_000
    assert workload.sampled_tokens(p) == {
        "drawing": 7000 * (500 + 250 + 10 * 4096),
        "own answers": (7000 + 200 + TESTS) * (250 + 4096),
    }


@pytest.mark.assets
def test_the_two_examples_are_as_long_as_assumed():
    from transformers import AutoTokenizer

    from factkit import assets, prompts

    policy = assets.policy_path("smollm2-135m-instruct")
    text = prompts.template(reason().reasoning_template).replace("{question}", "")
    found = len(AutoTokenizer.from_pretrained(policy)(text)["input_ids"])
    assert found == pytest.approx(workload.reason.EXAMPLES_TOKENS, rel=0.1)


def test_learning_to_reason_s_calls_by_arm_by_hand():
    # 23 sentences are read and 46 claims held; a comparison where relevance counts
    expected = {
        "base": 0,
        "sft": 0,
        "sft_dpo": 0,
        "fact": 16_000 * 69,
        "fact_detail": 16_000 * 69,
        "fact_relevance": 16_000 * 70,
        "fact_detail_relevance": 16_000 * 70,
        "fact_detail10_relevance": 16_000 * 70,
    }
    p, rows = reason(), rows_of(reason())
    assert p.arms.split() == list(expected)
    for arm, calls in expected.items():
        assert workload.judge_calls(p, arm) == {
            "training": calls,
            "evaluation": 0 if arm == "base" else BEFORE,
            "strategies": 0 if arm == "base" else TESTS,
        }
        assert (f"judge calls training {arm}" in rows) == (calls > 0)
    how = rows["judge calls training fact_relevance"][1]
    assert how == "70 a rollout; 8,960 a step × 125 steps"


def test_learning_to_reason_s_shared_calls_by_hand():
    expected = {
        "synthetic prompts": 7200,
        "drawn responses": 7000 * 10 * 69,
        "evaluation before": BEFORE,
    }
    assert workload.shared_judge_calls(reason()) == expected
    at_hand = workload.shared_judge_calls(reason(requests="leads"))
    assert at_hand["synthetic prompts"] == 0


def test_learning_to_reason_s_calls_of_all_arms_and_seeds_by_hand():
    each = 16_000 * (2 * 69 + 3 * 70) + 7 * (BEFORE + TESTS)
    shared = 7200 + 7000 * 10 * 69 + BEFORE
    assert workload.all_judge_calls(reason()) == shared + each == 12_354_200
    assert workload.all_judge_calls(reason(seeds="0 1 2")) == shared + 3 * each


def test_learning_to_reason_s_judge_tokens_by_hand():
    p = reason()
    claims = 23 * (500 + 250 + 5 * 30) + 46 * (500 + 30 + 4 * 256)
    compared = 500 + 250 + 2 * 23 * 30  # the answer, and the judge's own
    assert workload.judge_tokens(p, "fact") == 16_000 * claims
    assert workload.judge_tokens(p, "fact_relevance") == 16_000 * (claims + compared)


def test_learning_to_reason_s_searches_and_pages_by_hand():
    rows = rows_of(reason())
    assert workload.web_searches(reason()) == 3000 + 4000 + 200 + TESTS == 10_392
    assert rows["web searches"][0] == "10,392"
    assert rows["web pages"][0] == "103,920"
    assert "3,192 in test" in rows["web searches"][1]


def test_learning_to_reason_s_gpu_hours_by_hand():
    hours = costs.gpu_hours(reason(), LLAMA)
    hour = 2500 * 8 / 8.030261248 * 3600  # tokens
    assert hours["drawing"] == pytest.approx(70_000 * 4096 / hour)
    assert hours["own answers"] == pytest.approx((7200 + TESTS) * 4096 / hour)
    assert hours["evaluation"] == pytest.approx((200 + TESTS) * 4096 / hour)
    # 8 training and 8 of the engine: all 16 are held while 8 generate
    assert hours["rollouts"] == pytest.approx(16_000 * 2 * 4096 / hour)
    total = hours["rollouts"] + hours["training"] + hours["evaluation"]
    rows = rows_of(reason())
    assert rows["GPU-hours: an RL arm"][0] == f"{total:.1f}"


def test_on_one_node_no_gpu_waits_and_the_engine_takes_its_share():
    one, two = reason(variant="one-node"), reason()
    hours = [costs.gpu_hours(p, LLAMA) for p in (one, two)]
    assert hours[0]["rollouts"] == pytest.approx(hours[1]["rollouts"] / 2)
    assert gigabytes(one)["rollout engine"] == pytest.approx(32)
    assert gigabytes(two)["rollout engine"] == 0
    for p in (one, two, reason("h100_lora")):
        assert sum(gigabytes(p).values()) < costs.GPU_GB


# ---- RLFH

OF_TESTS = 256 + 191 + 183  # HotpotQA, SQuADv2, Biography
VICUNA = costs.SHAPES["lmsys/vicuna-7b-v1.5"]


def test_rlfh_s_tokens_by_hand():
    p = rlfh()
    assert workload.rollout_tokens(p) == 312 * 128 * (100 + 1024) == 44_888_064
    assert workload.sampled_tokens(p) == {
        "drawing": 20_000 * (100 + 10 * 1024),
        "own answers": (20_000 + 200 + OF_TESTS) * (100 + 1024),
    }


def test_rlfh_s_small_profiles_have_two_test_sets_of_one_size():
    assert workload.evaluated_responses(rlfh("laptop")) == 30 + 2 * 80
    assert workload.evaluated_responses(rlfh()) == 200 + OF_TESTS


@pytest.mark.parametrize(
    ("annotation", "each"),
    [("pipeline", 11 + 22 + 1), ("single_pass", 1)],
)
def test_rlfh_s_calls_by_arm_by_hand(annotation, each):
    # 11 sentences are read, 22 statements verified, and all of them rated in one call
    p = rlfh(annotation=annotation)
    rows, rollouts = rows_of(p), 312 * 128
    evaluation = (200 + OF_TESTS) * (11 + 22 + each)  # FactScore's, and the annotator's
    for arm in p.arms.split():
        rewarded = arm not in ("base", "dpo")
        assert workload.judge_calls(p, arm) == {
            "training": rollouts * each * rewarded,
            "evaluation": 0 if arm == "base" else evaluation,
        }
        assert (f"judge calls training {arm}" in rows) == rewarded
    assert workload.shared_judge_calls(p) == {
        "drawn responses": 20_000 * 10 * each,
        "evaluation before": evaluation,
    }
    how = rows["judge calls training statement"][1]
    assert how == f"{each} a rollout; {128 * each:,} a step × 312 steps"


def test_rlfh_s_calls_of_all_arms_and_seeds_by_hand():
    evaluation = (200 + OF_TESTS) * 67
    each = 4 * 312 * 128 * 34 + 5 * evaluation
    shared = 200_000 * 34 + evaluation
    assert workload.all_judge_calls(rlfh()) == shared + each == 12_564_956
    assert workload.all_judge_calls(rlfh(seeds="0 1 2")) == shared + 3 * each


def test_rlfh_s_judge_tokens_by_hand():
    answer, stated, evidence = 11 * 30, 22 * 30, 3 * 96
    read = 11 * (500 + 100 + 5 * 30) + 22 * (500 + 30 + evidence)
    pipeline = read + 500 + 100 + answer + stated
    assert workload.judge_tokens(rlfh(), "statement") == 312 * 128 * pipeline
    one = 2 * 500 + 100 + answer + evidence + answer + stated
    single = rlfh(annotation="single_pass")
    assert workload.judge_tokens(single, "statement") == 312 * 128 * one


def test_rlfh_s_searches_and_pages_by_hand():
    rows = rows_of(rlfh())
    assert workload.web_searches(rlfh()) == 20_000 + 200 + OF_TESTS == 20_830
    assert rows["web searches"][0] == "20,830"
    assert rows["web pages"][0] == "208,300"
    assert "630 in test" in rows["web searches"][1]


def test_rlfh_s_gpu_hours_by_hand():
    hours = costs.gpu_hours(rlfh(), VICUNA)
    hour = 2500 * 8 / 6.738415616 * 3600  # tokens
    assert hours["drawing"] == pytest.approx(200_000 * 1024 / hour)
    assert hours["evaluation"] == pytest.approx((200 + OF_TESTS) * 1024 / hour)
    # every GPU generates and trains in turn
    assert hours["rollouts"] == pytest.approx(312 * 128 * 1024 / hour)
    # PPO reads a rollout once more than GRPO, for its values
    flops = 14 * 6.738415616e9 * 44_888_064
    assert hours["training"] == pytest.approx(flops / (989e12 * 0.3) / 3600)


@pytest.mark.parametrize(
    ("profile", "variant"),
    [("h100_lora", ""), ("h100_full", ""), ("h100_full", "qwen2.5-7b")],
)
def test_rlfh_s_policy_its_engine_and_its_reference_fit_a_gpu(profile, variant):
    p = rlfh(profile, variant)
    found = {what: gb for what, gb, _ in costs.memory(p, costs.shape_of(p))}
    assert found["rollout engine"] == pytest.approx(32)
    assert (found["reference"] == 0) == (profile == "h100_lora")
    assert sum(found.values()) < costs.GPU_GB


# ---- Veri-R1

CLAIMS = 5 * 900  # of its five test sets
QWEN = costs.SHAPES["Qwen/Qwen2.5-3B-Instruct"]


def test_veri_s_trajectory_is_its_budgets_together():
    p = veri()
    assert workload.prompt_tokens(p) == 512
    assert workload.written_tokens(p) == 4 * 512 == 2048
    assert workload.response_tokens(p) == 2048 + 3 * 768 == 4352
    assert workload.sequence_tokens(p) == p.longest == p.max_context_length == 4864


def test_veri_s_tokens_by_hand():
    p = veri()  # 215 rollouts of 256 claims, 3 trajectories each
    assert workload.rollout_tokens(p) == 215 * 256 * 3 * 4864 == 803_143_680
    assert workload.sampled_tokens(p) == {"own trajectories": CLAIMS * 4864}
    assert workload.evaluated_responses(p) == 300 + CLAIMS
    assert workload.evaluated_responses(veri("tiny")) == 90 + 240


def test_veri_s_lengths_as_assumed_by_hand():
    typical = workload.veri.typical(veri())
    # three entries of three sentences, each of 30 tokens after an id of 10
    observation = 3 * 3 * (30 + 10)
    assert workload.sequence_tokens(typical) == 460 + 3 * 150 + 2 * observation == 1630
    assert workload.written_tokens(typical) == 450
    rows = rows_of(veri())
    assert rows["tokens of a trajectory, as assumed"][0] == "1,630"
    tokens = 165_120 * 1630
    assert rows["rollout tokens of an RL run, as assumed"][0] == f"{tokens:,}"


def test_veri_s_assumed_lengths_stay_within_the_budgets():
    p = veri(max_completion_length=64, max_searches=1, max_observation_length=100)
    found = workload.veri.typical(p)
    assert (found.max_completion_length, found.max_searches) == (64, 1)
    assert found.max_observation_length == 100


@pytest.mark.assets
def test_veri_s_prompt_is_as_long_as_assumed():
    from transformers import AutoTokenizer

    from factkit import assets, models, prompts

    claim = 40  # tokens; the published training claims have 38 on average
    policy = assets.policy_path("smollm2-135m-instruct")
    tokenizer = AutoTokenizer.from_pretrained(policy)
    text = prompts.template(veri().prompt_template).replace("{claim}", "")
    (asked,) = models.as_chat(tokenizer, [text])
    found = len(tokenizer(asked)["input_ids"]) + claim
    assert found == pytest.approx(workload.veri.PROMPT_TOKENS, rel=0.05)


def test_veri_s_judge_is_asked_for_the_data_alone():
    p = veri()
    for arm in p.arms.split():
        assert sum(workload.judge_calls(p, arm).values()) == 0
    assert workload.shared_judge_calls(p) == {
        "filtering": 2 * 3 * 3000,  # two sets, three labels
        "trajectories": 5500 * 5,  # three searches, an answer or its forced opening
    }
    assert workload.all_judge_calls(p) == 18_000 + 27_500
    rows = rows_of(p)
    assert rows["judge calls shared"][0] == rows["judge calls of all"][0] == "45,500"
    fewer = workload.shared_judge_calls(veri(claims="leads", train_claims=100))
    assert fewer == {"filtering": 0, "trajectories": 500}


def test_veri_s_searches_by_arm_by_hand():
    p, training = veri(), 3 * 165_120
    evaluation = 3 * (300 + CLAIMS)
    expected = {
        "instruct": (0, 3 * 300),  # its test is in the data run
        "sft": (0, evaluation),
        "offline_rl": (0, evaluation),
        "online_rl": (training, evaluation),
        "without_evidence": (training, evaluation),
        "without_validity": (training, evaluation),
        "larger": (0, evaluation),
    }
    assert p.arms.split() == list(expected)
    for arm, (trained, evaluated) in expected.items():
        found = workload.veri.searches(p, arm)
        assert found == {"training": trained, "evaluation": evaluated}


def test_veri_s_searches_of_all_arms_and_seeds_by_hand():
    shared = 5500 + CLAIMS + 3 * 5500 + 3 * CLAIMS
    each = 3 * 495_360 + 6 * 14_400 + 900
    rows = rows_of(veri())
    assert rows["searches shared"][0] == f"{shared:,}" == "40,000"
    assert rows["searches of online_rl"][0] == f"{495_360 + 14_400:,}"
    assert rows["searches of all"][0] == f"{shared + 3 * each:,}"  # three seeds
    assert "localhost:8003" in rows["searches of all"][1]
    assert "in process" in rows_of(veri("tiny"))["searches of all"][1]


def test_veri_s_memory_has_logits_of_whole_trajectories_and_a_rollout_s_cache():
    p = veri()
    found = {what: gb for what, gb, _ in costs.memory(p, QWEN)}
    assert found["weights"] == pytest.approx(2 * 3.0859 / 8, abs=1e-3)
    assert found["logits"] == pytest.approx(4 * 4352 * 151_936 * 8 / 1e9)
    assert found["activations"] == pytest.approx(4 * 4864 * 2048 * 36 * 2 / 1e9)
    assert found["rollout engine"] == pytest.approx(24)
    # 768 trajectories, not the 192 of an update; 36 layers, 2 heads of 128
    cache = 768 * 4864 * (2 * 36 * 2 * 128 * 2) / 1e9
    assert rows_of(p)["KV cache of a step's rollouts"][0] == f"{cache:.1f} GB"


@pytest.mark.parametrize(
    ("profile", "variant"),
    [("h100_lora", ""), ("h100_full", ""), ("h100_full", "llama3.2-3b")],
)
def test_veri_s_policy_and_its_engine_fit_a_gpu(profile, variant):
    p = veri(profile, variant)
    found = sum(gb for _, gb, _ in costs.memory(p, costs.shape_of(p)))
    assert found < 0.85 * costs.GPU_GB


def test_veri_s_gpu_hours_by_hand():
    hours = costs.gpu_hours(veri(), QWEN)
    hour = 2500 * 8 / 3.085938688 * 3600  # tokens
    # every GPU generates and trains in turn; what is found is not generated
    assert hours["rollouts"] == pytest.approx(165_120 * 4 * 512 / hour)
    assert hours["own trajectories"] == pytest.approx(CLAIMS * 4 * 512 / hour)
    assert hours["evaluation"] == pytest.approx((300 + CLAIMS) * 4 * 512 / hour)
    flops = 12 * 3.085938688e9 * 803_143_680
    assert hours["training"] == pytest.approx(flops / (989e12 * 0.3) / 3600)


def test_the_paper_s_15_hours_lie_between_veri_s_assumed_and_full_lengths(monkeypatch):
    """App. B: 100 steps on two A800, here with 312 dense TFLOP/s and 2.04 TB/s each, to
    which decoding is proportional, in place of an H100's 989 and 3.35."""
    monkeypatch.setattr(costs, "GPU_FLOPS", 312e12)
    monkeypatch.setattr(costs, "DECODE_TOKENS_S", 2500 * 2.04 / 3.35)
    p = veri(num_processes=2, rl_steps=400)  # 4 updates a step
    found = []
    for of in (workload.veri.typical(p), p):
        hours = costs.gpu_hours(of, QWEN)
        found.append((hours["rollouts"] + hours["training"]) / 2)
    assert found == pytest.approx([8.1, 26.1], abs=0.1)
    assert found[0] < 15 < found[1]
