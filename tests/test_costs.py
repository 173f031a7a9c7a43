"""What a profile costs, against numbers worked out by hand."""

import math

import pytest

from factkit import arms, costs, params, workload
from factkit.params.files import ROOT
from factkit.veri import workload as veri_workload

LLAMA = costs.SHAPES["meta-llama/Llama-3.1-8B-Instruct"]
PROFILES = [  # paper, profile, variant
    (paper, path.parent.name, variant)
    for path in sorted(ROOT.glob("params/*/*.yaml"))
    for paper, _, variant in [path.stem.partition("-")]
    if paper in arms.PAPERS
]


def load(paper="truthrl", profile="h100_full", variant="", **values):
    return params.load(paper, profile, values, variant)


def rows_of(p):
    return {what: (value, how) for what, value, how in costs.estimate(p)}


def gigabytes(p):
    return {what: gb for what, gb, _ in costs.memory(p, costs.shape_of(p))}


def test_sizes_give_the_published_number_of_weights():
    published = {  # elements of the published safetensors files
        "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
        "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
        "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
        "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
        "Qwen/Qwen2.5-32B-Instruct": 32_763_876_352,
        "Qwen/Qwen3-4B": 4_022_468_096,
        "Qwen/Qwen3-8B": 8_190_735_360,
        "allenai/Llama-3.1-Tulu-3-8B": 8_030_326_784,
        "allenai/Llama-3.1-Tulu-3-8B-DPO": 8_030_326_784,
        "lmsys/vicuna-7b-v1.5": 6_738_415_616,
        "smollm2-135m-instruct": 134_515_008,
        "smollm2-135m-leads": 134_515_008,
    }
    assert {name: shape.parameters for name, shape in costs.SHAPES.items()} == published


def test_the_tiny_policy_s_weights_are_counted_as_torch_counts_them():
    from factkit.train.start import build_policy
    from factkit.world import facts as world
    from factkit.world import texts as world_text

    for paper in arms.PAPERS:
        p = load(paper, "tiny")
        made = world.build_world(people=p.world_people, seed=p.world_seed)
        tokenizer = world_text.build_tokenizer(made, p.answer_format)
        sizes = {"hidden_size": p.pretrain_hidden_size, "layers": p.pretrain_layers}
        model = build_policy(tokenizer, **sizes)
        assert costs.shape_of(p).parameters == model.num_parameters(), paper


def test_weights_of_lora_and_bytes_of_keys_and_values_by_hand():
    # a layer, a rank: q, o 4096 + 4096; k, v 4096 + 1024; gate, up, down 4096 + 14336
    layer = 2 * 8192 + 2 * 5120 + 3 * 18432
    assert LLAMA.lora(64) == 32 * 64 * layer == 167_772_160
    assert LLAMA.kv_bytes == 2 * 32 * 8 * 128 * 2 == 131_072


def test_memory_of_lora_by_hand():
    amounts = gigabytes(load(profile="h100_lora"))
    assert amounts["weights"] == pytest.approx(2 * 8.0303 + 4 * 0.16777, abs=1e-3)
    assert amounts["gradients"] == pytest.approx(4 * 0.16777, abs=1e-3)
    assert amounts["optimizer"] == pytest.approx(8 * 0.16777, abs=1e-3)
    assert amounts["reference"] == 0
    assert amounts["logits"] == pytest.approx(4 * 2048 * 128_256 * 8 / 1e9)
    assert amounts["rollout engine"] == pytest.approx(32)


def test_memory_of_zero3_on_four_gpus_by_hand():
    amounts = gigabytes(load(deepspeed="zero3"))
    assert amounts["weights"] == pytest.approx(2 * 8.0303 / 4, abs=1e-3)
    assert amounts["gradients"] == pytest.approx(4 * 8.0303 / 4, abs=1e-3)
    assert amounts["optimizer"] == pytest.approx(12 * 8.0303 / 4, abs=1e-3)
    assert amounts["reference"] == pytest.approx(2 * 8.0303 / 4, abs=1e-3)


def test_offload_leaves_no_shard_on_the_gpu():
    amounts = gigabytes(load())
    assert amounts["weights"] == amounts["optimizer"] == amounts["gradients"] == 0


def test_veri_s_memory_has_logits_of_whole_trajectories():
    amounts = gigabytes(load("veri"))
    assert amounts["weights"] == pytest.approx(2 * 3.0859 / 8, abs=1e-3)
    assert amounts["logits"] == pytest.approx(4 * 4352 * 151_936 * 8 / 1e9)
    assert amounts["activations"] == pytest.approx(4 * 4864 * 2048 * 36 * 2 / 1e9)
    assert amounts["rollout engine"] == pytest.approx(24)


# ---- the rows that doctor prints: whole numbers, hours with one decimal

LLAMA_HOUR, QWEN3_HOUR, VICUNA_HOUR, QWEN_HOUR = (  # tokens that a GPU writes
    2500 * 8 / billions * 3600
    for billions in (8.030261248, 8.19073536, 6.738415616, 3.085938688)
)
HOUR = 989e12 * 0.3 * 3600  # FLOP of a GPU in training
# a call's instructions, then request, response or sentences, evidence
WHOLE = 500 + 500 + 15 * 30 + 8 * 512
BY_CLAIM = 15 * (500 + 500 + 5 * 30) + 30 * (500 + 30 + 4 * 256)
REASON_CLAIMS = 23 * (500 + 250 + 5 * 30) + 46 * (500 + 30 + 4 * 256)
COMPARED = 500 + 250 + 2 * 23 * 30  # the answer, and the judge's own
REASON_TESTS = 6 * 532  # requests of six sets
REASON_BEFORE = (200 + REASON_TESTS) * (69 + 2)  # VeriScore, and both orders
RLFH_TESTS = 256 + 191 + 183  # HotpotQA, SQuADv2, Biography
RLFH_EVALUATION = (200 + RLFH_TESTS) * (33 + 34)  # FactScore's, and the annotator's
CLAIMS = 5 * 900  # of Veri-R1's five test sets
BY_HAND = {
    ("truthrl", "h100_lora"): {
        "rollout tokens of an RL run": 300 * 64 * (200 + 2048),
        "probing tokens": 1700 * (200 + 256 * 2048),
        "judge calls shared": 448_060,
        "GPU-hours: rollouts": 300 * 64 * 2048 / LLAMA_HOUR,
        "GPU-hours: probing": 1700 * 256 * 2048 / LLAMA_HOUR,
        "GPU-hours: evaluation": (5 + 64) * 643 * 2048 / LLAMA_HOUR,
        "GPU-hours: training": 12 * 8.030261248e9 * 43_161_600 / HOUR,
    },
    ("truthrl", "h100_full"): {
        # 4 training and 2 of the engine: all 6 are held while 2 generate
        "GPU-hours: rollouts": 300 * 64 * 2048 / LLAMA_HOUR / 2 * 6,
        "host memory": "233 GB",  # 8.03 × (18 × 1.5 + 2)
    },
    ("rar", "h100_full"): {
        "rollout tokens of an RL run": 2000 * 128 * (500 + 4096),
        "drawing tokens": 8000 * (500 + 8 * 4096),
        "own answers tokens": (3 * 200 + 42 + 3 * 500 + 42) * (500 + 4096),
        # VeriScore: 15 sentences are read and 30 claims held against evidence
        "judge calls training lm_judge": 256_000,
        "judge calls training veriscore": 256_000 * 45,
        "judge calls training binary_rar": 256_000,
        "judge calls training rating_rar": 256_000,
        "judge calls training binary_veriscore": 256_000 * 45,
        "judge calls training conflict_only_veriscore": 256_000 * 45,
        "judge calls training veriscore_plus_judge": 256_000 * 46,
        "judge calls shared": 20 * 8000 + 8000 * 8 * 45 + 700 * 48,
        # evaluation has 45 calls for claims, 1 for quality, 2 for outcomes: of seven
        # arms four policies on dev, of two one; the base policy's is shared
        "judge calls of all": 160_000
        + 2_880_000
        + 33_600
        + 256_000 * (3 * 1 + 3 * 45 + 46)
        + 7 * (4 * 200 + 500) * 48
        + 2 * (200 + 500) * 48,
        "judge tokens training binary_rar": 256_000 * WHOLE,
        "judge tokens training veriscore": 256_000 * BY_CLAIM,
        "web searches": 8000 + 200 + 500,
        "web pages": 87_000,
        "GPU-hours: drawing": 8000 * 8 * 4096 / QWEN3_HOUR,
        # 3 kinds of requests, and 42 of a form
        "GPU-hours: evaluation": (4 * 642 + 1542) * 4096 / QWEN3_HOUR,
        # 4 training and 1 of the engine: all 5 are held while 1 generates
        "GPU-hours: rollouts": 256_000 * 5 * 4096 / QWEN3_HOUR,
    },
    ("reason", "h100_full"): {
        "rollout tokens of an RL run": 4000 * 4 * (250 + 4096),
        "drawing tokens": 7000 * (500 + 250 + 10 * 4096),
        "own answers tokens": (7000 + 200 + REASON_TESTS) * (250 + 4096),
        # 23 sentences are read and 46 claims held; a comparison if relevance counts
        "judge calls training fact": 16_000 * 69,
        "judge calls training fact_detail": 16_000 * 69,
        "judge calls training fact_relevance": 16_000 * 70,
        "judge calls training fact_detail_relevance": 16_000 * 70,
        "judge calls training fact_detail10_relevance": 16_000 * 70,
        "judge calls shared": 7200 + 7000 * 10 * 69 + REASON_BEFORE,
        # each but the base policy is evaluated, and its strategies are told on test
        "judge calls of all": 7200
        + 7000 * 10 * 69
        + REASON_BEFORE
        + 16_000 * (2 * 69 + 3 * 70)
        + 7 * (REASON_BEFORE + REASON_TESTS),
        "judge tokens training fact": 16_000 * REASON_CLAIMS,
        "judge tokens training fact_relevance": 16_000 * (REASON_CLAIMS + COMPARED),
        "web searches": 3000 + 4000 + 200 + REASON_TESTS,
        "web pages": 103_920,
        "GPU-hours: drawing": 70_000 * 4096 / LLAMA_HOUR,
        "GPU-hours: own answers": (7200 + REASON_TESTS) * 4096 / LLAMA_HOUR,
        "GPU-hours: evaluation": (200 + REASON_TESTS) * 4096 / LLAMA_HOUR,
        # 8 training and 8 of the engine: all 16 are held while 8 generate
        "GPU-hours: rollouts": 16_000 * 2 * 4096 / LLAMA_HOUR,
    },
    ("rlfh", "h100_full"): {
        "rollout tokens of an RL run": 312 * 128 * (100 + 1024),
        "drawing tokens": 20_000 * (100 + 10 * 1024),
        "own answers tokens": (20_000 + 200 + RLFH_TESTS) * (100 + 1024),
        # 11 sentences are read, 22 statements verified, all of them rated in one call
        **{
            f"judge calls training {arm}": 312 * 128 * 34
            for arm in ("paragraph", "sentence", "statement")
        },
        "judge calls shared": 20_000 * 10 * 34 + RLFH_EVALUATION,
        "judge calls of all": 200_000 * 34
        + RLFH_EVALUATION
        + 4 * 312 * 128 * 34
        + 5 * RLFH_EVALUATION,
        "judge tokens training statement": 312
        * 128
        * (
            11 * (500 + 100 + 5 * 30)
            + 22 * (500 + 30 + 3 * 96)
            + (500 + 100 + 11 * 30 + 22 * 30)
        ),
        "web searches": 20_000 + 200 + RLFH_TESTS,
        "web pages": 208_300,
        "GPU-hours: drawing": 200_000 * 1024 / VICUNA_HOUR,
        "GPU-hours: evaluation": (200 + RLFH_TESTS) * 1024 / VICUNA_HOUR,
        # every GPU generates and trains in turn
        "GPU-hours: rollouts": 312 * 128 * 1024 / VICUNA_HOUR,
        # PPO reads a rollout once more than GRPO, for its values
        "GPU-hours: training": 14 * 6.738415616e9 * 44_888_064 / HOUR,
    },
    ("veri", "h100_full"): {
        # 215 rollouts of 256 claims, 3 trajectories each of 4 turns and 3 replies
        "rollout tokens of an RL run": 165_120 * (512 + 4 * 512 + 3 * 768),
        "own trajectories tokens": CLAIMS * 4864,
        # three entries of three sentences, each of 30 tokens after an id of 10
        "tokens of a trajectory, as assumed": 460 + 3 * 150 + 2 * 3 * 3 * (30 + 10),
        "rollout tokens of an RL run, as assumed": 165_120 * 1630,
        # two sets, three labels; three searches, an answer or its forced opening
        "judge calls shared": 2 * 3 * 3000 + 5500 * 5,
        "judge calls of all": 45_500,
        "searches shared": 5500 + CLAIMS + 3 * 5500 + 3 * CLAIMS,
        "searches of online_rl": 3 * 165_120 + 3 * (300 + CLAIMS),
        # three seeds; three arms search in training, one is evaluated on dev alone
        "searches of all": 40_000 + 3 * (3 * 495_360 + 6 * 14_400 + 3 * 300),
        # 768 trajectories, not the 192 of an update; 36 layers, 2 heads of 128
        "KV cache of a step's rollouts": (
            f"{768 * 4864 * (2 * 36 * 2 * 128 * 2) / 1e9:.1f} GB"
        ),
        # every GPU generates and trains in turn; what is found is not generated
        "GPU-hours: rollouts": 165_120 * 4 * 512 / QWEN_HOUR,
        "GPU-hours: own trajectories": CLAIMS * 4 * 512 / QWEN_HOUR,
        "GPU-hours: evaluation": (300 + CLAIMS) * 4 * 512 / QWEN_HOUR,
        "GPU-hours: training": 12 * 3.085938688e9 * 803_143_680 / HOUR,
    },
}


def printed(number):
    if isinstance(number, str):
        return number
    return f"{number:.1f}" if isinstance(number, float) else f"{number:,}"


@pytest.mark.parametrize(("paper", "profile"), BY_HAND)
def test_the_rows_of_a_profile_by_hand(paper, profile):
    rows = rows_of(load(paper, profile))
    expected = {what: printed(n) for what, n in BY_HAND[paper, profile].items()}
    assert {what: rows[what][0] for what in expected} == expected


def test_rows_say_how_their_numbers_came_about():
    rar, reason, veri = (rows_of(load(paper)) for paper in ("rar", "reason", "veri"))
    assert "128 a step" in rar["judge calls training binary_rar"][1]
    how = reason["judge calls training fact_relevance"][1]
    assert how == "70 a rollout; 8,960 a step × 125 steps"
    assert "3,192 in test" in reason["web searches"][1]
    assert "localhost:8003" in veri["searches of all"][1]
    assert "in process" in rows_of(load("veri", "tiny"))["searches of all"][1]


def test_an_arm_without_a_judged_reward_has_no_row_of_training_calls():
    for paper in ("rar", "reason", "rlfh"):
        rows = rows_of(load(paper))
        for arm in ("base", "sft", "sft_dpo", "dpo"):
            assert f"judge calls training {arm}" not in rows


def test_other_settings_change_the_calls_they_concern():
    prompt = workload.prompt_tokens  # as far as the context goes
    assert prompt(load(variant="retrieval")) == 200 + 24 * 512
    assert prompt(load(variant="retrieval", max_context_length=4096)) == 2048
    assert "web pages" not in rows_of(load("rar", search_url=""))
    single = rows_of(load("rlfh", annotation="single_pass"))
    assert single["judge calls training statement"][0] == f"{312 * 128:,}"
    shared = workload.shared_judge_calls(load("veri", claims="leads", train_claims=100))
    assert shared == {"filtering": 0, "trajectories": 500}
    assert workload.shared_judge_calls(load("reason", requests="leads")) == {
        "synthetic prompts": 0,
        "drawn responses": 7000 * 10 * 69,
        "evaluation before": REASON_BEFORE,
    }
    for paper in ("rar", "reason"):
        one, three = (load(paper, seeds=seeds) for seeds in ("0", "0 1 2"))
        shared = sum(workload.shared_judge_calls(one).values())
        each = workload.all_judge_calls(one) - shared
        assert workload.all_judge_calls(three) == shared + 3 * each


def test_truthrl_s_judge_calls_by_arm_by_hand():
    p = load(profile="h100_lora")
    # test, comparison and 3 sets of 643, judged twice; 64 samples each
    evaluation = 5 * 643 * 2 + 64 * 643
    for arm, (sampling, training) in {
        "ternary": (0, 300 * 64),
        "ternary_reason_additive": (0, 2 * 300 * 64),
        "ternary_strict_match": (0, 0),
        "rlhf": (0, 0),
        "rft": (1700 * 64, 0),
        "iterative_dpo": (4 * 1700 * 256, 0),
    }.items():
        assert workload.judge_calls(p, arm) == {
            "sampling": sampling,
            "training": training,
            "evaluation": evaluation,
        }


def test_on_one_node_no_gpu_waits():
    one, two = (load("reason", variant=variant) for variant in ("one-node", ""))
    hours = [costs.gpu_hours(p, LLAMA)["rollouts"] for p in (one, two)]
    assert hours[0] == pytest.approx(hours[1] / 2)


def test_the_small_profiles_have_test_sets_of_their_own():
    assert workload.evaluated_responses(load("rlfh", "laptop")) == 30 + 2 * 80
    assert workload.evaluated_responses(load("veri", "tiny")) == 90 + 240


def test_veri_s_assumed_lengths_stay_within_the_budgets():
    p = load("veri", max_completion_length=64, max_searches=1)
    typical = veri_workload.typical(p)
    assert (typical.max_completion_length, typical.max_searches) == (64, 1)


@pytest.mark.assets
def test_prompts_are_as_long_as_assumed():
    from transformers import AutoTokenizer

    from factkit import assets, models, prompts
    from factkit.reason.workload import EXAMPLES_TOKENS

    policy = assets.policy_path("smollm2-135m-instruct")
    tokenizer = AutoTokenizer.from_pretrained(policy)

    def tokens(text):
        return len(tokenizer(text)["input_ids"])

    examples = prompts.template(load("reason").reasoning_template)
    examples = tokens(examples.replace("{question}", ""))
    assert examples == pytest.approx(EXAMPLES_TOKENS, rel=0.1)
    # the published training claims have 38 tokens on average
    text = prompts.template(load("veri").prompt_template).replace("{claim}", "")
    (chat,) = models.as_chat(tokenizer, [text])
    assert tokens(chat) + 40 == pytest.approx(veri_workload.PROMPT_TOKENS, rel=0.05)


def test_every_profile_is_estimated_and_a_gpu_profile_fits_its_gpu():
    for profile in PROFILES:
        paper, name, variant = profile
        p = load(paper, name, variant)
        rows = costs.estimate(p)
        assert len(rows) >= 10
        for what, value, how in rows:
            assert what and value and how, profile
            assert "nan" not in value and "inf" not in value, profile
        amounts = gigabytes(p).values()
        assert all(math.isfinite(gb) and gb >= 0 for gb in amounts), profile
        if name.startswith("h100"):
            assert sum(amounts) < costs.GPU_GB, profile


def test_a_profile_without_endpoints_costs_no_calls_and_no_gpu():
    for paper in arms.PAPERS:
        for profile in ("tiny", "laptop"):
            rows = rows_of(load(paper, profile))
            assert rows["judge calls"][0] == rows["GPU-hours"][0] == "0"
            if paper in ("rar", "reason", "rlfh"):
                assert rows["web searches"][0] == "0"


def test_an_unknown_model_is_said_to_be_unknown():
    rows = costs.estimate(load(policy="someone/new-9B"))
    assert rows[0][:2] == ("parameters", "unknown")
    assert any(what.startswith("judge calls") for what, *_ in rows)


def test_the_paper_s_15_hours_lie_between_veri_s_assumed_and_full_lengths(monkeypatch):
    """App. B: 100 steps on two A800, here with 312 dense TFLOP/s and 2.04 TB/s each, to
    which decoding is proportional, in place of an H100's 989 and 3.35."""
    monkeypatch.setattr(costs, "GPU_FLOPS", 312e12)
    monkeypatch.setattr(costs, "DECODE_TOKENS_S", 2500 * 2.04 / 3.35)
    p = load("veri", num_processes=2, rl_steps=400)  # 4 updates a step
    reckoned = []
    for lengths in (veri_workload.typical(p), p):
        hours = costs.gpu_hours(lengths, costs.shape_of(p))
        reckoned.append((hours["rollouts"] + hours["training"]) / 2)
    assert reckoned == pytest.approx([8.1, 26.1], abs=0.1)
    assert reckoned[0] < 15 < reckoned[1]
