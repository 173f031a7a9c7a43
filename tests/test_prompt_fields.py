"""Whatever a text holds, it stays within its field of every prompt to a judge."""

import json
from types import SimpleNamespace

from fake_llm import FakeLLM, hostile, template_of, text_of
from hypothesis import given, settings

from factkit import prompts
from factkit.papers.rar.rewards import EvidenceEngine
from factkit.papers.reason.rewards import PreferenceEngine
from factkit.papers.rlfh import feedback as rlfh
from factkit.verify import claims
from factkit.verify.calls import run_all
from factkit.verify.llm import Reply

UNUSED = dict.fromkeys(("extract", "verify", "pieces", "search"))


@settings(max_examples=40)
@given(text=hostile)
def test_texts_stay_within_the_json_of_their_fields_in_every_request(text):
    llm = FakeLLM(lambda prompt: Reply("fails"))
    found = [SimpleNamespace(chunk=SimpleNamespace(text=text))]
    whole = SimpleNamespace(search=lambda *_: found)
    rows = ["i"], [text], [text]
    engine = EvidenceEngine(**UNUSED, llm=llm, whole=whole)
    engine.values(["no_contradiction", "rating", "quality"], *rows)
    PreferenceEngine(**UNUSED, llm=llm).values(["preferred"], *rows)
    run_all(
        [
            claims.extract_claims(llm, text, f"A{text}"),
            claims.label_text(llm, text, [text, "e"]),
            claims.label_text(llm, text, [text], rlfh.STATEMENT_LABEL),
            rlfh.rate(llm, text, text, [text]),
        ]
    )
    rlfh.llm_annotator(llm, lambda i, t: [text])(["i"], [text], [f"A{text}"])
    for request in llm.requests:
        template = prompts.template(template_of(request)).splitlines()
        lines = text_of(request).splitlines()
        places = sum(line.endswith("}") and ": {" in line for line in template[-4:])
        assert lines[:-places] == template[:-places]
        values = [json.loads(line.partition(": ")[2]) for line in lines[-places:]]
        assert all(isinstance(value, str | list) for value in values)
        assert not any("<" in line or "[INST]" in line for line in lines[-places:])
