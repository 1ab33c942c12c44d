"""``tagae audit``: prints who changed what, and who signed in."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from serve_app.cli.client_options import LOCAL, CaFile, TokenFile, Url, connect
from serve_app.cli.console import stderr_console
from serve_app.cli.mesh_options import parse_time

if TYPE_CHECKING:
    from serve_app.api.schemas.audit import AuditRecordDocument

PAGE = 1000  # records of one answer of the service


def audit(
    url: Url = LOCAL,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start, UTC. Default: seven days before now.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="End, UTC. Default: now.")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this user or token.")] = None,
    mesh: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this mesh.")] = None,
    action: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this operation, such as add_mute, sign_in or push.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of records.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each record.")] = False,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
) -> None:
    """Print the audit log of a running service: who changed what, when and from where, and who signed in. The newest
    records come first. The token needs the scope admin for all meshes.

    \b
    Example:
      tagae audit --token-file secrets/admin.token
      tagae audit --action sign_in --since 2026-03-01 --json
    """
    begin = datetime.now(UTC) - timedelta(days=7) if since is None else parse_time(since)
    end = None if until is None else parse_time(until)
    with connect(url, token_file, ca_file) as client:
        found = client.audit(since=begin, until=end, user=user, mesh=mesh, action=action, limit=min(limit, PAGE))
        records = islice(found, limit)
        if as_json:
            for record in records:
                typer.echo(record.model_dump_json())
            return
        _print(list(records), begin)


def _print(records: "list[AuditRecordDocument]", since: datetime) -> None:
    if not records:
        stderr_console().print(f"no records since {since:%Y-%m-%d %H:%M} UTC; try an earlier --since", soft_wrap=True)
        return
    table = Table(box=None, padding=(0, 1))
    for column in ("time (UTC)", "user", "action", "mesh", "of", "status", "from"):
        table.add_column(column, overflow="fold")
    for record in records:
        cells = (
            f"{record.at:%Y-%m-%d %H:%M:%S}",
            f"{record.user or 'unknown'}{f' ({record.way})' if record.way else ''}",
            record.action,
            record.mesh,
            ", ".join(record.names),
            "unknown" if record.status is None else str(record.status),
            record.address,
        )
        # Names come from others: as text without markup, and without control characters.
        table.add_row(
            *(Text("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cell)) for cell in cells)
        )
    Console(highlight=False).print(table)
