"""Text functions of the reward path take time linear in the text."""

import json
import subprocess
import sys

import pytest

from factkit.verify.response import split_sentences

# Each is repeated to make a text.
UNITS = """
a|A |1|1950 |[1950 1951 1952 1953] |[|((|"|'|“|.|. |a. |A. |A.|... |! |?! |, |a, |-| - 
|a-b |—|a/|\\boxed{|{|}|<think>|</answer>|<|<a>|[[|[[a]], |``` |# |* |_|1. |é|ł
|中|。|ไ|क|²|½|١|İ|%|$1|-1|1,|1,000,|1.000.|1.|1 000 |million |twenty-|BC |12 Jan 19
|is |not |not know |I |n't |I think|but |born |was born in |born 18|died |in 
|by |the |a the |and was |who was |probably |(1900-|by de la |is a 
|is the capital of |Label: SUPPORT |Evidence: |<search>|true |score: |^|&|+|#
""".replace("\n", "").split("|")

READ_ALL = """
import json, resource, sys
from factkit.facts.leads import facts, reader
from factkit.verify.llm import Reply
from factkit.verify.replies import read_reply
from factkit.prompts import neutral
from factkit.papers.reason import evaluate as reason
from factkit.data import bm25
from factkit.papers.rlfh import evaluate as rlfh
from factkit.verify import judge, outcome, response, trajectory
from factkit.facts.world import facts as world

leads, made = facts.Leads({}, frozenset(["France"])), world.build_world(people=20)
man = facts.Fact("Ann Lee", "birth_year", "1900")
leads.subjects["Ann Lee"] = facts.Subject("Ann Lee", "Ann Lee", "", "", (man,))

def read(facts, text):
    for sentence in facts.sentences(text, "Ann Lee"):
        for statement in facts.statements(sentence, "Ann Lee"):
            facts.parse(statement), facts.verify(statement)

def of_trajectory(text):
    for turns in ([text], ["<think></think><answer>", text, "</answer>"]):
        turns = [trajectory.Turn(t, True) for t in turns]
        trajectory.parse_answer(turns), trajectory.is_well_formed(turns, False)

FUNCTIONS = [
    response.split_sentences, response.extract_boxed, response.extract_reasoning,
    response.split_response, response.split_confidence,
    lambda text: response.extract_answer(text, False),
    lambda text: response.split_response(response.format_response(text, text)),
    lambda text: outcome.grade_by_rules(text, ["Paris", "1868", "1"], text[:999]),
    lambda text: outcome.grade_by_rules(text[:400] + " Paris " + text[:400], ["Paris"]),
    lambda text: outcome.grade_by_containment(text, ["Paris"]), outcome.abstains,
    lambda text: outcome.grade_by_exact_match(text, ["Paris"]), outcome.plain,
    lambda text: read_reply(Reply(text), judge.Grade), judge.quote,
    of_trajectory, neutral,
    lambda text: read(made, text), lambda text: read(made, made.people[0] + text),
    lambda text: made.reasoning_quality("", text),
    lambda text: read(reader.LeadReader(leads), text),
    lambda text: read(reader.LeadReader(leads), "Ann Lee " + text),
    bm25.tokenize, lambda text: reason.tag(text, text), rlfh.REFUSAL.search,
]
length, limit_s = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
for unit in json.load(sys.stdin):
    text = (unit * length)[:length]
    for number, function in enumerate(FUNCTIONS):
        print(f"function {number} on {unit!r}", flush=True)
        function(text)
print("done")
"""


# Linear code takes a twentieth of the processor time, quadratic code much more.
@pytest.mark.parametrize(
    ("length", "limit_s"),
    [(3_000, 60), pytest.param(20_000, 400, marks=pytest.mark.slow)],
)
def test_text_functions_of_rewards_are_linear_in_hostile_text(length, limit_s):
    command = [sys.executable, "-c", READ_ALL, str(length), str(limit_s)]
    child = subprocess.run(
        command,
        input=json.dumps(UNITS),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert child.stdout.splitlines()[-1] == "done", child.stderr[-2000:]


NUMBERS = f"[{' '.join(map(str, range(1950, 1958)))}]"


def test_a_response_of_numbers_is_split_at_once():
    assert split_sentences(f"It was {NUMBERS}. Then {NUMBERS * 1000} came.")[0] == (
        f"It was {NUMBERS}."
    )
