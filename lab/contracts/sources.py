"""The contract of sources of a live mesh: they return the snapshot of the requested time, or none.

A package with a source of its own subclasses :class:`SourceContract` in a test module::

    class TestFilesSource(SourceContract):
        @pytest.fixture
        def mesh(self, tmp_path: Path) -> MeshSettings:
            ...
            return MeshSettings(source="files", source_options={"folder": str(tmp_path)})

The source is opened as the collector opens it: by the name of its kind.
"""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

import pytest

from model.snapshot import MeshSnapshot
from serve_app.collect.base import LiveSource, SourcePlugin
from serve_app.collect.opening import open_source
from serve_app.plugins import SOURCES
from serve_app.settings import CollectorSettings, MeshSettings


class SourceContract:
    """The tests that every source passes.

    A subclass, or its module, has these fixtures: ``mesh`` is the settings of a mesh with a source of the kind,
    ``instants`` are three or more for which it has snapshots, one interval apart, oldest first, and ``empty`` is one
    for which it has none and will never have one.
    """

    @pytest.fixture
    def collector(self) -> CollectorSettings:
        """The settings of all meshes, with the interval."""
        return CollectorSettings()

    @pytest.fixture
    def source(self, mesh: MeshSettings, collector: CollectorSettings) -> Iterator[LiveSource]:
        """The source of the mesh."""
        assert mesh.other_source is not None
        plugin = SOURCES.load(mesh.other_source, SourcePlugin)
        with closing(plugin.open(plugin.check_options(mesh.source_options), collector)) as opened:
            yield opened

    def test_a_snapshot_has_the_time_that_was_asked_for(self, source: LiveSource, instants: list[datetime]) -> None:
        for at in instants:
            assert _require(source.snapshot_at(at)).observed_at == at

    def test_the_same_instant_has_the_same_content(self, source: LiveSource, instants: list[datetime]) -> None:
        first = [_require(source.snapshot_at(at)).digest for at in instants]
        again = [_require(source.snapshot_at(at)).digest for at in instants]
        assert first == again, "an instant comes again after a push that failed"

    def test_missed_instants_are_read_later(
        self, mesh: MeshSettings, collector: CollectorSettings, source: LiveSource, instants: list[datetime]
    ) -> None:
        read = [_require(source.snapshot_at(at)).digest for at in instants]
        plugin = SOURCES.load(mesh.other_source or "", SourcePlugin)
        for at, digest in zip(instants, read, strict=True):
            with closing(plugin.open(plugin.check_options(mesh.source_options), collector)) as restarted:
                assert _require(restarted.snapshot_at(at)).digest == digest

    def test_an_instant_without_services_has_no_snapshot(self, source: LiveSource, empty: datetime) -> None:
        assert source.snapshot_at(empty) is None, "the snapshot of another time stands for nothing"

    def test_the_collector_polls_it(
        self, mesh: MeshSettings, collector: CollectorSettings, instants: list[datetime], empty: datetime
    ) -> None:
        with closing(open_source(mesh, collector)) as opened:
            polls = [opened.poll(at) for at in instants]
            assert [poll.why for poll in polls] == [""] * len(instants)
            assert all(poll.snapshot is not None for poll in polls)
            nothing = opened.poll(empty)
        assert (nothing.snapshot, list(nothing.answers)) == (None, []), "not an error, so that it is not polled again"

    def test_unknown_options_are_refused(self, mesh: MeshSettings) -> None:
        with pytest.raises(ValueError, match="no_such_option"):
            MeshSettings(source=mesh.source, source_options={**mesh.source_options, "no_such_option": 1})


def _require(snapshot: MeshSnapshot | None) -> MeshSnapshot:
    assert snapshot is not None, "expected a snapshot of one of `instants`"
    return snapshot
