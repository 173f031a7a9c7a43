"""The policy `tiny-world`: pre-trained on texts about the fact world.

Ours: the papers start from released instruct models.
"""

from functools import cache

from factkit.facts.world import claims, texts
from factkit.facts.world.facts import Exposure, World, build_world
from factkit.run.params.stages import PolicyParams
from factkit.train import pretraining


def make_policy(p: PolicyParams) -> str:
    """The folder of the policy that has read about the fact world of `p`.

    With `p.answer_format` "claims" it has read trajectories about made-up worlds (and
    so no fact), else texts that state the facts.
    """
    world, corpus = _read_corpus(
        p.world_people,
        p.world_seed,
        p.world_exposure,
        p.pretrain_reading,
        p.answer_format,
    )
    tokenizer = texts.build_tokenizer(world, p.answer_format)
    longest = pretraining.ROW_TOKENS
    if p.answer_format == "claims":
        longest = claims.LONGEST
    return pretraining.pretrain(p, corpus, tokenizer, row_tokens=longest)


@cache  # an RL arm asks twice, for its start and its reference
def _read_corpus(
    people: int, seed: int, exposure: Exposure, reading: float, answer_format: str
) -> tuple[World, list[str]]:
    world = build_world(seed, people=people, exposure=exposure)
    if answer_format == "claims":
        return world, claims.pretraining_texts(world, seed)
    return world, texts.pretraining_texts(world, seed, reading, answer_format)
