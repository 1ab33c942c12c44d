"""``tagae store copy``: meshes move between stores, with their revisions."""

import uuid
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from serve_app.errors import StoreConflict
from serve_app.stores.copying import copy_meshes, copy_rollout
from serve_app.stores.records import ROLLOUT
from serve_app.stores.row_store import Range, Row
from serve_app.stores.sqlite.store import SqliteRows
from serve_app.stores.state_store import StateStore
from tests.live.redis import RedisProgram
from tests.serve_app.cli.command import tagae
from tests.serve_app.stores.content import append, at, contents, incident, is_step
from tests.serve_app.stores.local import local_store

copy = partial(tagae, "store", "copy")


def fill(folder: Path) -> dict[str, object]:
    """Write three meshes into a local store, and return them."""
    with closing(local_store(folder)) as store:
        for mesh in ("shop", "web"):
            for sequence in range(1, 6):
                ended = incident(sequence, until=at(sequence + 1))
                append(store, sequence, mesh=mesh, is_step=is_step(sequence), incidents=(ended,))
        store.replace("new", b"baseline", revision=0)
        return read(store)


def read(store: StateStore) -> dict[str, object]:
    return {mesh.mesh: contents(store, mesh.mesh) for mesh in store.meshes()}


def revision_of(store: StateStore, mesh: str) -> int:
    stored = store.load(mesh)
    assert stored is not None
    return stored.revision


def test_meshes_move_to_redis_and_back(redis_program: RedisProgram, tmp_path: Path) -> None:
    meshes, prefix = fill(tmp_path / "one"), f"store.key_prefix=t-{uuid.uuid4().hex[:12]}"
    there = copy("--from", tmp_path / "one", "--to", redis_program.url, "--set", prefix)
    assert there.exit_code == 0, there.stderr
    assert "copied and compared 3 meshes" in there.stderr
    with closing(local_store(tmp_path / "one")) as store:
        revision = revision_of(store, "shop")
    assert f"shop\tsequence 5\trevision {revision}" in there.stdout
    back = copy("--from", redis_program.url, "--to", tmp_path / "two", "--set", prefix)
    assert back.exit_code == 0, back.stderr
    with closing(local_store(tmp_path / "two")) as store:
        assert read(store) == meshes
        append(store, 6, mesh="shop", revision=revision)


def test_a_mesh_in_the_target_is_replaced_only_on_request(tmp_path: Path) -> None:
    meshes = fill(tmp_path / "one")
    with closing(local_store(tmp_path / "two")) as store:
        append(store, 1, mesh="web")
    refused = copy("--from", tmp_path / "one", "--to", tmp_path / "two")
    assert refused.exit_code == 1
    assert "got one with web; nothing was copied" in " ".join(refused.stderr.split())
    with closing(local_store(tmp_path / "two")) as store:
        assert list(read(store)) == ["web"]
    assert copy("--from", tmp_path / "one", "--to", tmp_path / "two", "--mesh", "shop").exit_code == 0
    assert copy("--from", tmp_path / "one", "--to", tmp_path / "two", "--mesh", "web", "--overwrite").exit_code == 0
    with closing(local_store(tmp_path / "two")) as store:
        assert read(store) == {mesh: meshes[mesh] for mesh in ("shop", "web")}


@pytest.mark.parametrize(
    ("source", "target", "code", "words"),
    [
        ("one", "one", 2, "another store than --from"),
        ("missing", "two", 2, "expected a directory with state.sqlite"),
        ("one", "http://127.0.0.1", 1, "expected redis://HOST"),
        ("one", "redis://me:secret@127.0.0.1", 1, "store.password_file"),
    ],
)
def test_a_wrong_place_is_named(tmp_path: Path, source: str, target: str, code: int, words: str) -> None:
    fill(tmp_path / "one")
    given = target if "://" in target else tmp_path / target
    result = copy("--from", tmp_path / source, "--to", given)
    assert result.exit_code == code
    assert "secret" not in result.stderr
    assert words.replace(" ", "") in "".join(result.stderr.replace("│", "").split())
    assert not (tmp_path / "missing").exists()


def test_an_unknown_mesh_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "one")
    result = copy("--from", tmp_path / "one", "--to", tmp_path / "two", "--mesh", "shp")
    assert result.exit_code == 1
    assert "expected meshes of the source (new, shop, web), got shp" in " ".join(result.stderr.split())


def test_a_mesh_that_changes_during_the_copy_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path / "one")

    class Busy(SqliteRows):
        def read(self, space: str, *ranges: Range) -> list[list[Row]]:
            found = super().read(space, *ranges)
            if len(ranges) > 5:  # the rows to be copied
                append(StateStore(SqliteRows(self.file.path.parent)), 6, mesh=space)
            return found

    with (
        closing(StateStore(Busy(tmp_path / "one"))) as source,
        closing(local_store(tmp_path / "two")) as target,
    ):
        copied = copy_meshes(source, target, ["shop"], overwrite=False)
        with pytest.raises(StoreConflict, match="stop the service that writes to it"):
            list(copied)


def test_which_mesh_uses_which_model_moves_too(tmp_path: Path) -> None:
    fill(tmp_path / "one")
    with closing(local_store(tmp_path / "one")) as store:
        store.write_document(ROLLOUT, b"first", revision=0)
    done = copy("--from", tmp_path / "one", "--to", tmp_path / "two")
    assert "copied the choice of models" in done.stderr
    single = copy("--from", tmp_path / "one", "--to", tmp_path / "three", "--mesh", "shop")
    assert "model" not in single.stderr
    with closing(local_store(tmp_path / "one")) as store, closing(local_store(tmp_path / "two")) as other:
        first = store.read_document(ROLLOUT)
        assert first.revision
        store.write_document(ROLLOUT, b"second", revision=first.revision)
        with pytest.raises(StoreConflict, match="expected a target without a rollout"):
            copy_rollout(store, other, overwrite=False)
        assert copy_rollout(store, other, overwrite=True)
        assert other.read_document(ROLLOUT).content == b"second"
        assert not copy_rollout(local_store(tmp_path / "three"), other, overwrite=True)
