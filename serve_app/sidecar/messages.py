"""Between the messages of ``verdicts.proto`` and the documents of the HTTP interface: protobuf's own JSON mapping.

So a snapshot in a message gets the same checks as one in JSON, with the same error texts and pointers.
"""

from google.protobuf import json_format

from serve_app.errors import InvalidDocument
from serve_app.sidecar.generated.verdicts_pb2 import Snapshot, Verdict


def verdict_message(document: bytes) -> Verdict:
    """The message of a verdict's JSON document. Fields of later versions are left out."""
    message: Verdict = json_format.Parse(document, Verdict(), ignore_unknown_fields=True)
    return message


def snapshot_document(message: Snapshot) -> bytes:
    """The JSON document of a snapshot's message. Missing fields are empty or left out; the check of the document
    reports them.

    Raises:
        InvalidDocument: its time is not valid.
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
