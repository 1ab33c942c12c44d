"""The base class and common field types of the HTTP interface's documents."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from model.names import (
    LONGEST_NAME,
    NAME_RULE,
    NAMESPACE_PATTERN,
    SERVICE_PATTERN,
    as_service_id,
    is_service_name,
    is_services_name,
)
from model.snapshot import LARGEST_VALUE

_STRICT = ConfigDict(extra="forbid", frozen=True)
_ABSENT = object()


class Document(BaseModel):
    """Base of every document. An unknown field is an error."""

    model_config = _STRICT

    @classmethod
    def from_object(cls, source: object, /, **values: Any) -> Self:
        """A document with the values of the same names in ``source``, except for ``values``; fields that it lacks get
        defaults."""
        for name in cls.__pydantic_fields__:  # model_fields is computed at each access
            if name not in values:
                value = getattr(source, name, _ABSENT)
                if value is not _ABSENT:
                    values[name] = list(value) if isinstance(value, tuple) else value
        return cls(**values)


class KeptDocument(Document):
    """Base of documents that are stored or read back: an unknown field comes from another version, or is a computed
    text."""

    model_config = ConfigDict(extra="ignore")


YEARS = "expected a time between the years 1 and 9999 in UTC"
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)


def _as_text(value: Any) -> Any:
    """Refuse Unix times and dates, which pydantic would accept. A leap second becomes the next second, as in clocks
    without leap seconds."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and _RFC_3339.fullmatch(value):
        return _after_leap_second(value) if value[17:19] == "60" else value
    raise ValueError("expected an RFC 3339 time with a zone, such as 2026-03-01T03:12:00Z")


def _after_leap_second(value: str) -> datetime:
    before = datetime.fromisoformat(f"{value[:17]}59{value[19:]}".replace("z", "Z"))
    try:
        if before.utcoffset() is not None and before.astimezone(UTC).strftime("%H:%M") == "23:59":
            return before + timedelta(seconds=1)
    except OverflowError:
        raise ValueError(YEARS) from None
    raise ValueError("expected seconds up to 59, or a leap second, which is at 23:59:60 UTC")


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError(YEARS) from None


def _no_truth(value: Any) -> Any:
    """Refuse True, which equals 1 in Python."""
    if isinstance(value, bool | float):
        raise ValueError("Input should be 1")
    return value


Version = Annotated[Literal[1], BeforeValidator(_no_truth, json_schema_input_type=Literal[1])]
Instant = Annotated[
    AwareDatetime,
    BeforeValidator(_as_text, json_schema_input_type=datetime),
    AfterValidator(_in_utc),
    Field(description="RFC 3339 time with a zone", examples=["2026-03-01T03:12:00Z"]),
]
ServiceKey = Annotated[str, Field(description="`namespace/name`", examples=["shop/cart"])]
SERVICES = r"^[^/]+/[\s\S]"  # a prefix of their names
MAX_REASON = 200  # characters
MAX_KIND, MAX_CHANGE_REASON, MAX_NOTE, MAX_ID = 100, 1000, 1000, 200  # characters
MAX_TEAM, MAX_CONTACT = 100, 200  # characters
MAX_SERVICE = 2 * LONGEST_NAME + 1
# Characters that are refused in texts: they forge lines in logs, move a terminal's cursor, reverse the direction of
# writing, or cannot be encoded (surrogates). A note may have several lines.
_UNPRINTABLE = "\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
UNPRINTABLE = re.compile(f"[\x00-\x1f{_UNPRINTABLE}]")
_UNPRINTABLE_IN_NOTES = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f{_UNPRINTABLE}]")
PagedServices = Annotated[
    str,
    Field(
        pattern=SERVICES, description="`namespace/name`, or `namespace/*` for a whole namespace", examples=["shop/cart"]
    ),
]


def _require_name(is_name: Callable[[str], bool], kind: str, value: str) -> str:
    if is_name(value):
        return value
    service_id = as_service_id(value)
    hint = "" if service_id == value else f"; write {service_id}"
    raise ValueError(f"expected the pattern {kind}: {NAME_RULE}{hint}")


def _require_printable(unprintable: re.Pattern[str], value: str) -> str:
    if match := unprintable.search(value):
        raise ValueError(f"expected printable text, character {match.start()} is U+{ord(match[0]):04X}; remove it")
    return value


# For requests. Responses use the types above, since an older version may have stored other characters.
GivenService = Annotated[
    str,
    Field(
        max_length=MAX_SERVICE,
        description="`namespace/name`",
        examples=["shop/cart"],
        json_schema_extra={"pattern": SERVICE_PATTERN},
    ),
    AfterValidator(partial(_require_name, is_service_name, "`namespace/name`")),
]
GivenServices = Annotated[
    str,
    Field(
        max_length=MAX_SERVICE,
        description="`namespace/name`, or `namespace/*` for a whole namespace",
        examples=["shop/cart"],
        json_schema_extra={"pattern": f"{SERVICE_PATTERN}|{NAMESPACE_PATTERN[:-1]}/[*]$"},
    ),
    AfterValidator(partial(_require_name, is_services_name, "`namespace/name` or `namespace/*`")),
]
_PRINTABLE_SCHEMA = {"pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]*$"}
_PRINTABLE = AfterValidator(partial(_require_printable, UNPRINTABLE))
Text = Annotated[str, _PRINTABLE, Field(json_schema_extra=_PRINTABLE_SCHEMA)]
AskedService = Annotated[
    ServiceKey, Field(min_length=1, max_length=MAX_SERVICE, json_schema_extra=_PRINTABLE_SCHEMA), _PRINTABLE
]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID, json_schema_extra=_PRINTABLE_SCHEMA), _PRINTABLE]
NoteText = Annotated[
    str, Field(max_length=MAX_NOTE), AfterValidator(partial(_require_printable, _UNPRINTABLE_IN_NOTES))
]
Number = Annotated[
    float, Field(strict=True, allow_inf_nan=False, json_schema_extra={"minimum": 0, "maximum": LARGEST_VALUE})
]
Ratio = Annotated[float, Field(strict=True, allow_inf_nan=False, json_schema_extra={"minimum": 0, "maximum": 1})]
Deviation = Annotated[
    float | None,
    Field(description="anomaly score in decades of improbability, without what neighbours explain; null: not scored"),
]
