"""``tagae store``: copy meshes between stores, and their history to files."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.console import print_note, progress
from serve_app.cli.options import Assignments, ConfigFile, blame, read_settings

if TYPE_CHECKING:
    from serve_app.settings import StoreSettings

PLACE = "directory of a local store, URL of a Redis, or kind of another package's store"

app = typer.Typer(no_args_is_help=True, help="Copy meshes between stores, and their history to files.")


@app.command()
def copy(
    source: Annotated[str, typer.Option("--from", metavar="STORE", help=f"Store to read: {PLACE}.")],
    target: Annotated[str, typer.Option("--to", metavar="STORE", help=f"Store to write: {PLACE}.")],
    mesh: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A mesh to copy. Repeatable. Default: all.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace meshes that the target has.")] = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Copy meshes from one store to another: state, window, verdicts, incident archive, and revisions. Without --mesh,
    also copy the choice of models.

    Stop the service first. Each copy is compared with its source. Limits on meshes and archives do not apply. The state
    of notifications is not in the store. The other settings of `store`, such as password_file and key_prefix, apply to
    a Redis, and store.options to another package's store.

    \b
    Example:
      tagae store copy --from ~/.local/state/tagae --to redis://127.0.0.1:6379/0
      tagae store copy --from redis://127.0.0.1:6379/0 --to backup --mesh shop --set store.password_file=redis.password
    """
    from serve_app.plugins import STORES
    from serve_app.stores.copying import choose_meshes, copy_meshes, copy_rollout
    from serve_app.stores.opening import open_store

    plugin = next((place for place in (source, target) if place in STORES.names() and place not in STORES.own), None)
    begin, end = (_settings_of(place, config, assignments, plugin) for place in (source, target))
    _require_file(begin)
    if begin == end:
        raise typer.BadParameter(f"expected another store than --from, got {target}", param_hint="--to")
    with closing(open_store(begin)) as reading, closing(open_store(end)) as writing:
        names = choose_meshes(reading, writing, mesh or (), overwrite=overwrite)
        copies = copy_meshes(reading, writing, names, overwrite=overwrite)
        for mesh_copy in progress(copies, "copy", len(names)):
            typer.echo(f"{mesh_copy.mesh}\tsequence {mesh_copy.sequence}\trevision {mesh_copy.revision}")
        if not mesh and copy_rollout(reading, writing, overwrite=overwrite):
            print_note("copied the choice of models")
    print_note(f"copied and compared {len(names)} mesh{'' if len(names) == 1 else 'es'} to {target}")


@app.command()
def history(
    mesh: Annotated[str, typer.Argument(metavar="MESH", help="Name of the mesh.")],
    target: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Folder for the Parquet files.")],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="STORE", help=f"Store to read: {PLACE}. Default: the one of the settings."),
    ] = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Export a mesh's history as the store's Parquet files, for DuckDB or pandas.

    Columns: docs/state.md. The service may run meanwhile.

    \b
    Example:
      tagae store history shop --to out/shop-history
    """
    from serve_app.stores.copying import export_history
    from serve_app.stores.opening import open_store

    store_settings = (
        read_settings(config, assignments).store if source is None else _settings_of(source, config, assignments, None)
    )
    _require_file(store_settings)
    with closing(open_store(store_settings)) as store:
        count = export_history(store, mesh, target)
    print_note(f"wrote {count} files to {target}")


def _require_file(settings: "StoreSettings") -> None:
    """Refuse to read a local store that does not exist."""
    from serve_app.stores.sqlite.file import FILE_NAME

    if settings.kind == "local" and not (settings.path / FILE_NAME).exists():
        raise typer.BadParameter(f"expected a directory with {FILE_NAME}, got {settings.path}", param_hint="--from")


def _settings_of(place: str, config: Path | None, assignments: list[str] | None, plugin: str | None) -> "StoreSettings":
    """Return the settings for the store at this place. ``plugin`` is another package's kind of store, if one of the two
    stores has it: its options are not among our settings."""
    from serve_app.settings import StoreSettings

    kind, name = ("redis", "url") if "://" in place else ("local", "path")
    if plugin is None:
        return read_settings(config, assignments, {"store.kind": kind, f"store.{name}": place}).store
    store = read_settings(config, assignments, {"store.kind": plugin}).store
    if place == plugin:
        return store
    with blame():
        return StoreSettings.model_validate({**store.model_dump(exclude={"options"}), "kind": kind, name: place})
