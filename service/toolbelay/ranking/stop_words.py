"""Words that say nothing about which tool is meant."""

from __future__ import annotations

from toolbelay.ranking.text import words

# English function words and the small talk of requests to an assistant. Words that name actions or
# things ("open", "show", "find", "time") are left in: they are what tools are called by.
_ENGLISH = """
a an the this that these those such same other another some any each every either neither both all most
i me my mine myself we us our ours ourselves you your yours yourself he him his himself she her hers herself
it its itself they them their theirs themselves who whom whose which what where when why how
am is are was were be been being do does did doing done have has had having
can could may might must shall should will would ought
don didn doesn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn ll ve re im ive id
and or but nor so yet if then else than because while although though whereas unless until whether
of in on at by for with about against between into through during before after above below to from
up down out off over under again further once here there as per via
not no only own too very just also even still already however therefore thus hence
please kindly thank thanks hello hi hey ok okay yes yeah sure well
let lets like want wanted wanna wish need needed would'd love appreciate help assist assistance able
now today currently next later first last lastly finally
really quite rather actually basically simply
tool tools function functions
s t d m o
"""

STOP_WORDS: frozenset[str] = frozenset(words(_ENGLISH))
