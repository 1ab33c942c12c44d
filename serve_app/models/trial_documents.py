"""What the store keeps of a trial, one document for each mesh: its last snapshots, and sums over all of them."""

from serve_app.api.schemas.models import BlockDocument, MeshTrialDocument, PairDocument
from serve_app.models.comparison import SNAPSHOTS_OF_A_BLOCK, add_failure, add_pair, attempts, is_comparable
from serve_app.stores.state_store import StateStore

MOST_PAIRS = 120  # in the document of a mesh
MOST_BLOCKS = 288  # a day of snapshots each 15 s
LONGEST_GAP_INTERVALS = 4.0  # a longer time between two snapshots counts as this many intervals


def add_snapshot(
    document: MeshTrialDocument,
    pair: PairDocument,
    new_alerts: tuple[int, int],
    empty: BlockDocument,
    interval_seconds: float,
    services: int,
    most_blocks: int = MOST_BLOCKS,
) -> MeshTrialDocument:
    """Add a snapshot to the trial of a mesh.

    Args:
        document: with the snapshots before it.
        pair: what both models made of it.
        new_alerts: of the candidate and of the baseline, that began with it.
        empty: a block that begins with it.
        interval_seconds: between two snapshots, as a rule.
        services: in the snapshot.
        most_blocks: that are kept.
    """
    blocks, pairs = document.blocks, document.pairs
    closed, block = _split(blocks, empty)
    has_candidate, has_baseline = pair.candidate.coverage >= 1, pair.baseline.coverage >= 1
    if is_comparable(pair):
        passed = (pair.observed_at - pairs[-1].observed_at).total_seconds() if pairs else interval_seconds
        seconds = min(max(passed, 0.0), LONGEST_GAP_INTERVALS * interval_seconds)
        blocks = [*closed, add_pair(block, pair, seconds, *new_alerts)][-most_blocks:]
    elif has_candidate != has_baseline:
        blocks = [*closed, add_failure(block, of_candidate=has_baseline)][-most_blocks:]
    changes = {"pairs": [*pairs, pair][-MOST_PAIRS:], "blocks": blocks, "services": services}
    return document.model_copy(update=changes)


def add_failed_snapshot(document: MeshTrialDocument, empty: BlockDocument, *, of_candidate: bool) -> MeshTrialDocument:
    """Add a snapshot of which one model made nothing at all; ``empty`` is a block that begins with it."""
    closed, block = _split(document.blocks, empty)
    blocks = [*closed, add_failure(block, of_candidate=of_candidate)][-MOST_BLOCKS:]
    return document.model_copy(update={"blocks": blocks})


def _split(blocks: list[BlockDocument], empty: BlockDocument) -> tuple[list[BlockDocument], BlockDocument]:
    """The blocks that are closed, and the block of the next snapshot. A new stage of the trial begins a new block."""
    if blocks and attempts(blocks[-1]) < SNAPSHOTS_OF_A_BLOCK:
        last = blocks[-1]
        if (last.since, last.share) == (empty.since, empty.share):
            return blocks[:-1], last
    return blocks, empty


def trial_name(mesh: str) -> str:
    """The name of the document in the store that has the trial of a mesh."""
    return f"trial/{mesh}"


def read_trial(store: StateStore, mesh: str) -> tuple[int, MeshTrialDocument | None]:
    """The revision and the trial of a mesh; 0 and None if there is none. One of another version counts as none."""
    found = store.read_document(trial_name(mesh))
    if found is None:
        return 0, None
    try:
        return found.revision, MeshTrialDocument.model_validate_json(found.content)
    except ValueError:
        return found.revision, None


def write_trial(store: StateStore, document: MeshTrialDocument, revision: int) -> int:
    """Replace the trial of a mesh; arguments, result and errors as of :meth:`StateStore.write_document`."""
    return store.write_document(trial_name(document.mesh), document.model_dump_json().encode(), revision=revision)


def delete_trial(store: StateStore, mesh: str) -> None:
    """Delete the trial of a mesh, if there is one.

    Raises:
        ServeError: the store cannot be used, or another process changed the trial meanwhile.
    """
    found = store.read_document(trial_name(mesh))
    if found is not None:
        store.write_document(trial_name(mesh), b"", revision=found.revision)
