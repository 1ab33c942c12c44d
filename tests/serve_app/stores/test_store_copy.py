"""``tagae store copy``: meshes move between stores, with their revisions."""

import uuid
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lab.contracts.store_content import append, at, incident, is_step
from serve_app.cli import app
from serve_app.errors import StoreConflict
from serve_app.settings import StoreSettings
from serve_app.stores.base import ROLLOUT, StateStore, WholeMesh
from serve_app.stores.copying import copy_meshes, copy_rollout
from serve_app.stores.opening import open_store
from serve_app.stores.sqlite import LocalStore
from tests.live.redis import RedisProgram


def copy(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["store", "copy", *map(str, arguments)])


def fill(folder: Path) -> dict[str, WholeMesh]:
    """Write three meshes into a local store, and return them."""
    with closing(LocalStore(folder)) as store:
        for mesh in ("shop", "web"):
            for sequence in range(1, 6):
                ended = incident(sequence, until=at(sequence + 1))
                append(store, sequence, mesh=mesh, is_step=is_step(sequence), incidents=(ended,))
        store.replace("new", b"baseline", revision=0)
        return read(store)


def read(store: StateStore) -> dict[str, WholeMesh]:
    found = {one.mesh: store.read_whole(one.mesh) for one in store.meshes()}
    return {mesh: whole for mesh, whole in found.items() if whole is not None}


def test_meshes_move_to_redis_and_back(redis_program: RedisProgram, tmp_path: Path) -> None:
    meshes, prefix = fill(tmp_path / "one"), f"store.key_prefix=t-{uuid.uuid4().hex[:12]}"
    there = copy("--from", tmp_path / "one", "--to", redis_program.url, "--set", prefix)
    assert there.exit_code == 0, there.stderr
    assert "copied and compared 3 meshes" in there.stderr
    revision = meshes["shop"].state.revision
    assert f"shop\tsequence 5\trevision {revision}\t3 snapshots\t5 incidents" in there.stdout
    back = copy("--from", redis_program.url, "--to", tmp_path / "two", "--set", prefix)
    assert back.exit_code == 0, back.stderr
    with closing(LocalStore(tmp_path / "two")) as store:
        assert read(store) == meshes
        append(store, 6, mesh="shop", revision=revision)


def test_a_mesh_in_the_target_is_replaced_only_on_request(tmp_path: Path) -> None:
    meshes = fill(tmp_path / "one")
    with closing(LocalStore(tmp_path / "two")) as store:
        append(store, 1, mesh="web")
    refused = copy("--from", tmp_path / "one", "--to", tmp_path / "two")
    assert refused.exit_code == 1
    assert "got one with web; nothing was copied" in " ".join(refused.stderr.split())
    with closing(LocalStore(tmp_path / "two")) as store:
        assert list(read(store)) == ["web"]
    assert copy("--from", tmp_path / "one", "--to", tmp_path / "two", "--mesh", "shop").exit_code == 0
    assert copy("--from", tmp_path / "one", "--to", tmp_path / "two", "--mesh", "web", "--overwrite").exit_code == 0
    with closing(LocalStore(tmp_path / "two")) as store:
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

    class Busy(LocalStore):
        def read_whole(self, mesh: str) -> WholeMesh | None:
            found = super().read_whole(mesh)
            append(self, 6, mesh=mesh)
            return found

    with closing(Busy(tmp_path / "one")) as source, closing(LocalStore(tmp_path / "two")) as target:
        copied = copy_meshes(source, target, ["shop"], overwrite=False)
        with pytest.raises(StoreConflict, match="stop the service that writes to it"):
            list(copied)


def test_a_store_that_is_the_same_under_another_mesh_is_independent(place: StoreSettings) -> None:
    with closing(open_store(place)) as store:
        append(store, 1)
        whole = store.read_whole("prod")
        assert whole is not None
        store.write_whole("copy", whole)
        store.delete("prod")
        assert store.read_whole("copy") == whole


def test_which_mesh_uses_which_model_moves_too(tmp_path: Path) -> None:
    fill(tmp_path / "one")
    with closing(LocalStore(tmp_path / "one")) as store:
        store.write_document(ROLLOUT, b"first", revision=0)
    done = copy("--from", tmp_path / "one", "--to", tmp_path / "two")
    assert "copied which mesh uses which model" in done.stderr
    single = copy("--from", tmp_path / "one", "--to", tmp_path / "three", "--mesh", "shop")
    assert "model" not in single.stderr
    with closing(LocalStore(tmp_path / "one")) as store, closing(LocalStore(tmp_path / "two")) as other:
        first = store.read_document(ROLLOUT)
        assert first is not None
        store.write_document(ROLLOUT, b"second", revision=first.revision)
        with pytest.raises(StoreConflict, match="expected a target without a rollout"):
            copy_rollout(store, other, overwrite=False)
        assert copy_rollout(store, other, overwrite=True)
        found = other.read_document(ROLLOUT)
        assert found is not None
        assert found.content == b"second"
        assert not copy_rollout(LocalStore(tmp_path / "three"), other, overwrite=True)
