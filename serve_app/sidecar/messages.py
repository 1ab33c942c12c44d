"""Between the messages of ``verdicts.proto`` and the documents of the HTTP interface: protobuf's own JSON mapping.

So a snapshot that comes as a message is checked as one that comes as JSON, in the same words and at the same places.
"""

from google.protobuf import json_format

from serve_app.errors import InvalidDocument
from serve_app.sidecar.generated.verdicts_pb2 import Snapshot, Verdict


def verdict_message(document: bytes) -> Verdict:
    """The message of a verdict's JSON document; what a later version wrote into it beyond that is left out."""
    message: Verdict = json_format.Parse(document, Verdict(), ignore_unknown_fields=True)
    return message


def snapshot_document(message: Snapshot) -> bytes:
    """The JSON document of a snapshot's message. What must be there and is not is empty or left out, for the document's
    own check to name.

    Raises:
        InvalidDocument: its time is none.
    """
    try:
        document: str = json_format.MessageToJson(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True, indent=None
        )
    except (json_format.Error, ValueError) as error:
        detail = f"expected a time between the years 1 and 9999 ({str(error).rstrip('.')}); correct it"
        raise InvalidDocument(
            f"/observed_at: {detail}",
            pointer="/observed_at",
            errors=[{"pointer": "/observed_at", "detail": detail}],
        ) from None
    return document.encode()
