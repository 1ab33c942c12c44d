"""Statements of a store about its own answer: hints about the query, or that a part of the answer may be missing.

| store | how it says that a part is missing |
|---|---|
| Prometheus | a warning for each remote read or federated source that failed, or for a limit that cut the result |
| Thanos | a warning for each store that did not answer (partial response) |
| Cortex | a warning, "query result may contain partial data" |
| VictoriaMetrics | ``"isPartial": true`` |
| M3, Chronosphere | warnings and the headers ``M3-Results-Limited`` and ``M3-Returned-Data-Limited`` |

Since version 2.48, Prometheus also sends hints about the query in the same list. They begin with "PromQL info" or
"PromQL warning", and later versions send the former in a list of their own, ``infos``. Stores that use its engine send
the same texts. A warning that is not a known hint counts as a sign of a missing part.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

RESULTS_LIMITED, DATA_LIMITED = "M3-Results-Limited", "M3-Returned-Data-Limited"

_HINTS = re.compile(
    r"PromQL (info|warning)\b"
    r"|\d+ more (info|warning) annotations omitted"  # Prometheus sends the first ten of each kind
    # Texts of the same hints without their beginning, as older versions and other engines write them.
    r"|metric might not be a counter"
    r"|bucket label \S+ is missing or has a malformed value|no bucket label or malformed label value"
    r"|histogram_quantile (needed to be )?fixed for monotonicity|input to histogram_(quantile|fraction)"
    r"|quantile value should be between"
    r"|ignored histograms?\b|mix of (histograms and floats|classic and native histograms)"
    r"|\bdeprecated\b"
    r"|resolution larger than query range",  # M3: the query asks for more detail than is stored
    re.IGNORECASE,
)
# A text with one of these is not a hint, whatever else it says.
_CUT = re.compile(
    r"\b(partial|incomplete|truncated|timed? ?out|unavailable|unreachable|not exhaustive)\b", re.IGNORECASE
)


class _Limited(msgspec.Struct, rename="pascal"):
    limited: bool = False


def is_hint(warning: str) -> bool:
    """Whether a warning is a remark about the query, and not about the answer."""
    if re.match(r"PromQL (info|warning)\b", warning):  # may quote any name of a metric
        return True
    return bool(_HINTS.search(warning)) and not _CUT.search(warning)


def missing_parts(
    warnings: Sequence[str], headers: Mapping[str, str], *, is_partial: bool, harmless: Sequence[str] = ()
) -> tuple[str, ...]:
    """A store's statements about missing parts of its answer; empty if the answer is complete.

    Args:
        warnings: of the answer.
        headers: of the reply; names in any case.
        is_partial: ``isPartial`` of VictoriaMetrics.
        harmless: texts; a statement that contains one of them does not count.
    """
    said = [warning for warning in warnings if not is_hint(warning)]
    if is_partial:
        said.append("isPartial: true")
    limited = headers.get(RESULTS_LIMITED, "")
    if limited and not is_hint(limited):
        said.append(f"{RESULTS_LIMITED}: {limited}")
    if _is_limited(headers.get(DATA_LIMITED, "")):
        said.append(f"{DATA_LIMITED}: {headers[DATA_LIMITED]}")
    return tuple(dict.fromkeys(one for one in said if not any(text in one for text in harmless)))


def _is_limited(header: str) -> bool:
    """Whether ``M3-Returned-Data-Limited``, which M3 sends with complete answers too, says that data were cut."""
    if not header:
        return False
    try:
        return msgspec.json.decode(header, type=_Limited).limited
    except msgspec.MsgspecError:
        return True
