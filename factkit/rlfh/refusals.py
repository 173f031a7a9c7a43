"""Whether a response refuses to answer, told in two ways (RLFH §4.2, §4.3).

By annotation: a response without a statement refuses. By words, as FactScore's
pipeline does: so does one with characteristic phrases, wherever they stand. The paper
reports this and notes that it counts too few responses once a policy says how unsure it
is while it informs.

The phrases are ours, chosen with ChatGPT's refusals in view. Of 183 biographies by each
of FactScore's models, `refuses` agrees with its annotators on all of InstructGPT's (who
refused 1) and ChatGPT's (26) and on 175 of PerplexityAI's (17), where refusals speak of
what a search found and biographies say that there is no more information.
"""

import re
from collections.abc import Sized

from factkit.verify.outcome import normalise

_CANNOT = (
    r"(do not|don't|dont|cannot|can not|can't|could not|couldn't"
    r"|('m|am|was) (unable|not able) to)"
)
_KNOW = (
    r"(know|have|find|recall|recogni[sz]e|provide|give|offer|write|tell|answer|say"
    r"|determine|verify|confirm|help)"
)
_MORE = r"(provide|give|share|clarify|specify|tell)"
REFUSAL = re.compile(
    rf"\bi ?{_CANNOT} (really |currently )?{_KNOW}\b"
    r"|\bi('m| am) (not (sure|certain|familiar|aware)|unsure|unfamiliar)\b"
    r"|\bi('m| am)( very| so| truly)? sorry\b|\bi apologi[sz]e\b|\bmy apologies\b"
    r"|\bi have no (idea|information|knowledge|record)\b"
    r"|\bas an ai\b|\bas a language model\b"
    r"|\b(there is|there's|found) no (\w+ ){0,2}information\b"
    rf"|\b(can|could|would) you (please )?{_MORE}\b|\bplease {_MORE}\b"
)


def refuses(response: str) -> bool:
    """Whether a response has the words of a refusal, or no words at all."""
    said = normalise(response)
    return not said or REFUSAL.search(said) is not None


def responds_by_words(response: str, stated: Sized) -> bool:
    """Whether FactScore's pipeline takes a response for an answer: it states something
    and does not have the words of a refusal."""
    return len(stated) > 0 and not refuses(response)
