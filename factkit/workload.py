"""How much a paper's runs ask of the policy, of a judge and of searches.

Counts, reckoned from the parameters alone; upper bounds, every prompt of every set.
What is one paper's is in the module of its name.
"""

from types import ModuleType

from factkit.rar import workload as rar
from factkit.rar.arms import RAR
from factkit.reason import workload as reason
from factkit.reason.arms import Reason
from factkit.rlfh import workload as rlfh
from factkit.rlfh.arms import Rlfh
from factkit.truthrl import arms as truthrl
from factkit.truthrl.arms import TruthRL
from factkit.veri import workload as veri
from factkit.veri.arms import Veri

LongForm = RAR | Reason | Rlfh
Paper = TruthRL | LongForm | Veri
Row = tuple[str, str, str]  # what, value, how reckoned


def _of(p: Paper) -> ModuleType:
    """The module of p's paper."""
    of = {TruthRL: truthrl, RAR: rar, Reason: reason, Rlfh: rlfh, Veri: veri}
    return of[type(p)]


# ---- the policy


def prompt_tokens(p: Paper) -> int:
    """Tokens of a prompt in RL, as far as there is room."""
    return min(_of(p).prompt_tokens(p), _room(p))


def _room(p: Paper) -> int:
    """Tokens that a full response leaves for its prompt."""
    return max(p.max_context_length - response_tokens(p), 0)


def response_tokens(p: Paper) -> int:
    """Tokens of a full response: what follows a prompt, searches and all."""
    return veri.response_tokens(p) if isinstance(p, Veri) else p.max_completion_length


def written_tokens(p: Paper) -> int:
    """Tokens of a full response that the policy writes."""
    return veri.written_tokens(p) if isinstance(p, Veri) else p.max_completion_length


def sequence_tokens(p: Paper) -> int:
    """Tokens of a prompt and its response."""
    return prompt_tokens(p) + response_tokens(p)


def rollout_tokens(p: Paper) -> int:
    """Tokens of an RL run's prompts and responses."""
    return p.rl_steps * p.rl_batch_size * sequence_tokens(p)


def sampling(p: Paper) -> dict[str, tuple[int, int, int]]:
    """What all arms share, sampled once: stage → (prompts, tokens of a prompt,
    responses a prompt)."""
    return {
        stage: (prompts, min(tokens, _room(p)), each)
        for stage, (prompts, tokens, each) in _of(p).sampling(p).items()
    }


def sampled_tokens(p: Paper) -> dict[str, int]:
    """Tokens of `sampling`: each prompt is read once for all its responses."""
    return {
        stage: prompts * (tokens + each * response_tokens(p))
        for stage, (prompts, tokens, each) in sampling(p).items()
    }


def evaluated_responses(p: Paper) -> int:
    """Responses of one RL arm's evaluation."""
    return _of(p).evaluated_responses(p)


# ---- the judge


def judge_calls(p: Paper, arm: str) -> dict[str, int]:
    """Calls of one run of an arm by stage; none where no judge is asked."""
    return _of(p).judge_calls(p, arm) if p.verifier == "judge" else {}


def shared_judge_calls(p: Paper) -> dict[str, int]:
    """Calls that all arms and seeds share, by stage; none where no judge is asked."""
    return _of(p).shared_judge_calls(p) if p.verifier == "judge" else {}


def all_judge_calls(p: Paper) -> int:
    """Calls of all arms with all seeds, and the shared ones."""
    each = sum(sum(judge_calls(p, arm).values()) for arm in p.arms.split())
    return sum(shared_judge_calls(p).values()) + each * len(p.seeds.split())


def judge_tokens(p: LongForm, arm: str) -> int:
    """Tokens of an RL run's judge calls in training, read and written."""
    return p.rl_steps * p.rl_batch_size * _of(p).tokens_a_response(p, arm)


def judge_rows(p: Paper) -> list[Row]:
    """Rows of the judge's calls: shared, of `p.arm`, of all; of long answers by arm."""
    if p.verifier != "judge":
        return [("judge calls", "0", f"verifier={p.verifier} needs no endpoint")]
    arms, seeds = len(p.arms.split()), len(p.seeds.split())
    found = {"shared": shared_judge_calls(p), f"of {p.arm}": judge_calls(p, p.arm)}
    total = f"{arms} arms × {seeds} seed(s), and the shared calls"
    return [
        *(
            (f"judge calls {whose}", f"{sum(of.values()):,}", _added(of))
            for whose, of in found.items()
        ),
        ("judge calls of all", f"{all_judge_calls(p):,}", total),
        *(_reward_rows(p) if isinstance(p, LongForm) else []),
    ]


def _added(numbers: dict[str, int]) -> str:
    return " + ".join(f"{n:,} {what}" for what, n in numbers.items())


def _reward_rows(p: LongForm) -> list[Row]:
    """Rows of the calls in training of each arm with a reward, and of some's tokens."""
    paper = _of(p)
    answer = paper.ANSWER
    how = f"{answer.sentences} sentences, assumed by us, and {answer.claims} claims, "
    rows = [
        (
            "judge calls a response, claim by claim",
            str(answer.veriscore_calls),
            how + answer.source,
        )
    ]
    for arm in (arm for arm in p.arms.split() if paper.calls_a_response(p, arm)):
        step = p.rl_batch_size * paper.calls_a_response(p, arm)
        how = f"{paper.calls_a_response(p, arm)} a rollout; {step:,} a step × "
        how += f"{p.rl_steps} steps"
        rows.append((f"judge calls training {arm}", f"{p.rl_steps * step:,}", how))
    for arm in paper.MAIN_ARMS:
        each = paper.tokens_a_response(p, arm)
        how = f"{each:,} a rollout; lengths of texts assumed by us"
        rows.append((f"judge tokens training {arm}", f"{judge_tokens(p, arm):,}", how))
    return rows


# ---- the web, and other searches


def web_searches(p: LongForm) -> int:
    """Searches for evidence, one a request; 0 offline."""
    return sum(_of(p).searches(p).values()) if p.search_url else 0


def search_rows(p: Paper) -> list[Row]:
    """Rows of searches, and of the web's pages; none where no arm searches."""
    if isinstance(p, TruthRL):
        return []
    return _trajectory_rows(p) if isinstance(p, Veri) else _web_rows(p)


def _web_rows(p: LongForm) -> list[Row]:
    searches = web_searches(p)
    if not searches:
        return [("web searches", "0", "evidence is from the embedded corpus")]
    pages = f"{p.pages} a search at most"
    return [
        ("web searches", f"{searches:,}", f"requests: {_added(_of(p).searches(p))}"),
        ("web pages", f"{searches * p.pages:,}", pages),
    ]


def _trajectory_rows(p: Veri) -> list[Row]:
    """Rows of the searches among entries: shared, of `p.arm`, of all."""
    where = f"at {p.search_url}" if p.search_url else "in process"
    arms, seeds = p.arms.split(), len(p.seeds.split())
    shared, own = veri.shared_searches(p), veri.searches(p, p.arm)
    each = sum(sum(veri.searches(p, arm).values()) for arm in arms)
    total = sum(shared.values()) + each * seeds
    of_all = f"{len(arms)} arms × {seeds} seed(s), and the shared ones; {where}"
    most = f"at most {p.max_searches} a trajectory: "
    return [
        ("searches shared", f"{sum(shared.values()):,}", _added(shared)),
        (f"searches of {p.arm}", f"{sum(own.values()):,}", most + _added(own)),
        ("searches of all", f"{total:,}", of_all),
    ]
