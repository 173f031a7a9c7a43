"""The embedded verifier: what it reads, what a long text gives, how it is measured."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import assets, params
from factkit.curate.nli_pairs import Pair
from factkit.evaluate import verifier_errors as errors
from factkit.evaluate.verifier_errors import Judged
from factkit.train import embedded_verifier as training
from factkit.verify import embedded
from factkit.verify.embedded import EmbeddedVerifier, encode, windows

FEVER = params.ROOT.parent / "shared" / "data" / "fever_symmetric"


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTKIT_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(assets.embedder_path())


class ByTable(EmbeddedVerifier):
    """Gives each text of evidence the probabilities that a table has for it."""

    def __init__(self, table):
        self.table, self.asked = table, []

    def _read(self, pairs):
        self.asked += pairs
        return np.array([self.table[evidence] for evidence, _ in pairs])


def long_text(*sentences):
    """Sentences of 40 words: each a window of its own."""
    return [f"{s} {'so ' * (40 - len(s.split()) - 1)}so." for s in sentences]


def test_of_a_long_text_the_window_that_is_least_inconclusive_counts():
    texts = long_text("Ada was tall", "Ada slept")
    table = {texts[0]: [0.1, 0.2, 0.7], texts[1]: [0.2, 0.5, 0.3]}
    found = ByTable(table).probabilities([(" ".join(texts), "Ada was tall.")])
    assert found.tolist() == [[0.2, 0.5, 0.3]]


def test_of_a_long_text_only_the_nearest_windows_are_read():
    texts = long_text("Ada was tall", "it rained", "Ada slept", "they left")
    verifier = ByTable(dict.fromkeys(texts, [0.2, 0.2, 0.6]))
    verifier.probabilities([(" ".join(texts), "Ada was tall.")])
    assert {text for text, _ in verifier.asked} == {texts[0], texts[2]}


def test_equal_pairs_are_read_once_and_rows_keep_the_order_of_the_pairs():
    verifier = ByTable({"a": [1, 0, 0], "longer": [0, 1, 0]})
    found = verifier.probabilities([("longer", "x"), ("a", "x"), ("longer", "x")])
    assert found.argmax(1).tolist() == [1, 0, 1]
    assert len(verifier.asked) == 2


def test_no_pairs_give_no_rows():
    assert ByTable({}).probabilities([]).shape == (0, 3)


@given(st.lists(st.sampled_from(["a", "b c", "D.", "E!", "f?", "\n"]), max_size=200))
def test_windows_lose_no_word_and_are_long_only_for_one_sentence(parts):
    text = " ".join(parts)
    pieces = windows(text)
    assert " ".join(pieces).split() == text.split()
    for piece in pieces:
        sentences = [s for s in embedded._SENTENCE.split(piece) if s]
        assert len(piece.split()) <= embedded.WINDOW or len(sentences) == 1


@pytest.mark.assets
def test_token_types_tell_the_text_and_whether_the_other_has_the_token(tokenizer):
    batch = encode(tokenizer, [("ada slept .", "ada left .")])
    tokens = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
    types = dict(zip(tokens, batch["token_type_ids"][0], strict=True))
    assert types == {
        "[CLS]": 0,
        "ada": 3,
        "slept": 0,
        ".": 3,
        "[SEP]": 1,
        "left": 1,
    }
    assert batch["token_type_ids"][0] == [0, 2, 0, 2, 0, 3, 1, 3, 1]


@pytest.mark.assets
def test_a_claim_is_read_whole_beside_an_endless_evidence(tokenizer):
    batch = encode(tokenizer, [("so " * 500, "ada left .")])
    types = batch["token_type_ids"][0]
    assert len(types) == embedded.MAX_TOKENS
    assert sum(t % 2 for t in types) == 4


def toy_pairs():
    """A claim is contradicted unless its last word is the evidence's."""
    words = ["red", "tall", "old", "big", "wet", "cold"]
    return [
        Pair(f"Ada is {a}.", f"Ada is {b}.", int(a != b), a, "toy")
        for a in words
        for b in (words if a == "red" else [a])
    ] * 4


@pytest.fixture(scope="module")
def trained_folder(tmp_path_factory):
    recipe = training.Recipe(batch_size=8)
    return training.train(toy_pairs(), tmp_path_factory.mktemp("toy") / "t", recipe)


@pytest.mark.assets
def test_a_trained_verifier_gives_probabilities_whatever_the_batch(trained_folder):
    verifier = EmbeddedVerifier(trained_folder)
    pairs = [("Ada is red.", "Ada is red."), ("Ada is red and very tall.", "She left.")]
    together = verifier.probabilities(pairs)
    assert together.sum(1) == pytest.approx([1, 1], abs=1e-5)
    alone = np.concatenate([verifier.probabilities([pair]) for pair in pairs])
    assert together == pytest.approx(alone, abs=0.02)  # bfloat16


@pytest.mark.assets
def test_a_killed_training_goes_on_and_ends_in_the_same_weights(
    trained_folder, tmp_path, monkeypatch
):
    from transformers import TrainerCallback

    class Kill(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 3:
                raise KeyboardInterrupt

    whole = training.setup.run_to_end

    def killed(trainer, label):
        trainer.add_callback(Kill())
        whole(trainer, label)

    recipe, folder = training.Recipe(batch_size=8), tmp_path / "t"
    with monkeypatch.context() as patched:
        patched.setattr(training, "CHECKPOINT_STEPS", 2)
        patched.setattr(training.setup, "run_to_end", killed)
        with pytest.raises(KeyboardInterrupt):
            training.train(toy_pairs(), folder, recipe)
    assert not folder.exists()
    training.train(toy_pairs(), folder, recipe)
    weights = [f / "model.safetensors" for f in (folder, trained_folder)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.assets
def test_a_verifier_that_is_not_there_and_not_to_be_trained_is_named(own_cache):
    with pytest.raises(assets.AssetError, match="not trained yet"):
        embedded.embedded_verifier(train_if_missing=False)


def test_another_recipe_has_a_folder_of_its_own():
    one, other = training.Recipe(), training.Recipe(seed=1)
    assert training._digest(one) == training._digest(training.Recipe())
    assert training._digest(one) != training._digest(other)


@pytest.mark.parametrize(
    ("contradicted", "scores", "wanted"),
    [
        ([0, 0, 1, 1], [1, 2, 3, 4], 1.0),
        ([0, 0, 1, 1], [4, 3, 2, 1], 0.0),
        ([0, 1, 0, 1], [1, 2, 3, 4], 0.75),
        ([0, 1, 1], [2, 2, 3], 0.75),  # a tie counts half
        ([0, 1], [5, 5], 0.5),
    ],
)
def test_auc_is_the_share_of_pairs_in_order(contradicted, scores, wanted):
    assert errors.auc(contradicted, np.array(scores)) == wanted


def test_auc_of_one_kind_alone_is_refused():
    with pytest.raises(ValueError, match="AUC needs"):
        errors.auc([True, True], np.array([1, 2]))


def test_error_rates_by_hand():
    truth = [True, True, True, False, False]
    rows = [Judged("c", ["e"], t) for t in truth]
    scores = np.array([0.5, 0.2, -0.1, 0.3, -0.4])
    found = errors.error_rates(rows, scores, resamples=50)
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["majority"] == pytest.approx(3 / 5)
    assert found["false_negative"] == pytest.approx(1 / 2)  # 1 of 2 is called wrong
    assert found["false_positive"] == pytest.approx(1 / 3)  # 1 of 3 passes
    assert found["auc"] == pytest.approx(4 / 6)
    assert found["auc_low"] <= found["auc"] <= found["auc_high"]


def test_of_several_texts_the_strongest_support_and_contradiction_count():
    table = {"a": [0.1, 0.6, 0.3], "b": [0.7, 0.1, 0.2]}

    def probabilities(pairs):
        return np.array([table[evidence] for evidence, _ in pairs])

    rows = [Judged("c", ["a", "b"], True), Judged("c", ["a"], True)]
    found = errors.contradiction_scores(rows, probabilities)
    assert found == pytest.approx([0.6 - 0.7, 0.6 - 0.1])


def test_evidence_known_to_decide_is_read_as_support_or_contradiction():
    rows = [Judged("c", ["a"], True)]
    (found,) = errors.contradiction_scores(
        rows, lambda pairs: np.array([[0.1, 0.3, 0.6]]), decided=True
    )
    assert found == pytest.approx(0.75 - 0.25)


def test_a_claim_without_evidence_is_not_contradicted():
    rows = [Judged("c", ["a"], True), Judged("c", [], True)]
    found = errors.contradiction_scores(rows, lambda pairs: np.array([[0.1, 0.9, 0.0]]))
    assert found.tolist() == pytest.approx([0.8, 0.0])


@pytest.mark.parametrize(
    ("claim", "evidence", "wanted"),
    [
        ("Ada was tall.", "Ada is tall.", 0),
        ("Ada was not tall.", "Ada is tall.", 1 / 2),
        ("Ada left in 1903.", "Ada left in 1904.", 1 / 3),
    ],
)
def test_the_lexical_baseline_counts_words_that_the_evidence_lacks(
    claim, evidence, wanted
):
    (found,) = errors.lexical_scores([Judged(claim, [evidence], True)])
    assert found == pytest.approx(wanted)


def test_fever_text_is_read_as_it_is_usually_written(tmp_path):
    row = {"claim": "Ada -LRB- 1903 -- 1990 -RRB- 's .", "evidence": "`` So ''"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row | {"label": "REFUTES"}) + "\n")
    (found,) = errors.fever_symmetric(path)
    assert found == Judged("Ada (1903 – 1990)'s.", ['" So "'], True)


def test_a_label_that_is_none_is_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"claim": "a", "evidence": "b", "label": "MAYBE"}))
    with pytest.raises(ValueError, match="MAYBE"):
        errors.fever_symmetric(path)


@pytest.mark.skipif(not FEVER.is_dir(), reason="no shared data beside the project")
def test_fever_symmetric_has_708_balanced_rows():
    rows = errors.fever_symmetric(FEVER / "fever_symmetric_dev.jsonl")
    assert len(rows) == 708
    assert 0.45 < np.mean([row.contradicted for row in rows]) < 0.55
