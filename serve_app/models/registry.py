"""The model registry: a folder, or an object store that fsspec can open.

    VERSION/model.safetensors   weights
    VERSION/card.json                their card; written last, so a version without it is incomplete
    rollout.json                which version sidecars use; missing: they use their configured weights

A version is the weights' digest, so it never changes. The registry only grows; to remove a version, delete its
folder.
"""

import asyncio
import hashlib
import logging
import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import fsspec

from model.checkpoint import Checkpoint, load, save
from model.errors import IncompatibleWeights
from serve_app.api.schemas.models import ModelCard, RolloutDocument
from serve_app.errors import BadSettings, RegistryGone, UnknownModel
from serve_app.models.card import decode_card, encode_card
from serve_app.models.rollout import decode_rollout

WEIGHTS, CARD, ROLLOUT = "model.safetensors", "card.json", "rollout.json"
VERSION = re.compile("[0-9a-f]{16}")
log = logging.getLogger(__name__)
T = TypeVar("T")


class Registry:
    """The models in one place. Threads may share it; each call reads the place again.

    Args:
        place: folder, or fsspec URL.
        network: class that weights may name; see :func:`model.checkpoint.load`.

    Raises:
        BadSettings: fsspec does not know the URL's scheme, or a package for it is missing.
    """

    def __init__(self, place: str, network: str | None = None) -> None:
        self.place, self._network = place, network
        try:
            self._files, self._root = fsspec.core.url_to_fs(place, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise BadSettings(
                f"models.registry: expected a folder or a URL that fsspec can open, got {place!r} ({error}); install "
                "the package that it names, or correct the URL"
            ) from error

    def cards(self) -> list[ModelCard]:
        """Return the cards of all versions, oldest first. A card that cannot be read is logged and left out.

        Raises:
            RegistryGone: the place does not answer, or denies read access.
        """
        cards = []
        for version in self._versions():
            try:
                cards.append(self.card(version))
            except UnknownModel:  # incomplete, or deleted meanwhile
                continue
            except IncompatibleWeights as error:
                log.warning("%s", error)
        return sorted(cards, key=lambda card: (card.created_at, card.version))

    def card(self, version: str) -> ModelCard:
        """Read a version's card.

        Raises:
            UnknownModel: the registry has no such version.
            IncompatibleWeights: its card cannot be read, or belongs to another version.
            RegistryGone: as in :meth:`cards`.
        """
        place = self._path(version, CARD)
        card = decode_card(self._read(version, CARD), place)
        if card.version != version:
            raise IncompatibleWeights(
                f"model card {place}: expected version {version}, got {card.version}; add the model again"
            )
        return card

    def load(self, version: str, sha256: str) -> Checkpoint:
        """Load a version's weights if they have this SHA-256.

        Raises:
            UnknownModel: the registry has no such version.
            IncompatibleWeights: they have another SHA-256, or this version of TAGAE cannot read them.
            RegistryGone: as in :meth:`cards`.
        """
        content = self._read(version, WEIGHTS)
        actual = hashlib.sha256(content).hexdigest()
        if actual != sha256:
            raise IncompatibleWeights(
                f"model {version}: expected SHA-256 {sha256}, got {actual} in {self._path(version, WEIGHTS)}; the file "
                "was changed after it was added: restore it, or add the model again"
            )
        return load_content(content, self._network)

    def add(self, content: bytes, card: ModelCard) -> bool:
        """Add a model. Returns False, and keeps the card, if the registry already has it.

        Raises:
            RegistryGone: the place does not answer, or denies write access.
        """
        if self._ask(lambda: self._files.exists(self._path(card.version, CARD))):
            return False
        folder = f"{self._root.rstrip('/')}/{card.version}"
        self._ask(lambda: self._files.makedirs(folder, exist_ok=True))
        self._write(content, card.version, WEIGHTS)
        self._write(encode_card(card), card.version, CARD)
        return True

    def rollout(self) -> RolloutDocument:
        """Return the rollout that sidecars follow; an empty one if there is none.

        Raises:
            CorruptState: this version cannot read it.
            RegistryGone: as in :meth:`cards`.
        """
        try:
            return decode_rollout(self._fetch(lambda: self._files.cat_file(self._path(ROLLOUT))))
        except UnknownModel:  # there is no such file
            return RolloutDocument()

    def write_rollout(self, rollout: RolloutDocument) -> None:
        """Replace the rollout that sidecars follow. If two people do so at once, the last one wins.

        Raises:
            RegistryGone: see :meth:`add`.
        """
        self._write(rollout.model_dump_json().encode(), ROLLOUT)

    def _versions(self) -> Iterator[str]:
        try:
            paths: list[str] = self._fetch(lambda: self._files.ls(self._root, detail=False))
        except UnknownModel:  # nothing has been added yet
            return
        yield from filter(VERSION.fullmatch, (path.rstrip("/").rpartition("/")[2] for path in paths))

    def _read(self, version: str, name: str) -> bytes:
        if not VERSION.fullmatch(version):
            raise UnknownModel(f"model: expected a version, 16 hexadecimal digits, got {version[:80]!r}; correct it")
        content: bytes = self._fetch(lambda: self._files.cat_file(self._path(version, name)), version)
        return content

    def _write(self, content: bytes, *place: str) -> None:
        """Write a file atomically."""
        path = self._path(*place)
        self._ask(lambda: self._files.pipe_file(f"{path}.part", content))
        self._ask(lambda: self._files.mv(f"{path}.part", path))

    def _path(self, *place: str) -> str:
        return "/".join((self._root.rstrip("/"), *place))

    def _fetch(self, action: Callable[[], T], version: str = "") -> T:
        """Like :meth:`_ask`, but raise ``UnknownModel`` for a missing file."""
        try:
            return self._ask(action)
        except RegistryGone as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise UnknownModel(
                f"model {version}: expected a version of the registry {self.place}, got none of this name; `tagae "
                "models list` shows them"
            ) from error.__cause__

    def _ask(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:  # each fsspec implementation has its own errors
            raise RegistryGone(
                f"registry {self.place}: expected an answer, got {type(error).__name__}: {error}; correct "
                "models.registry or its access, or try again"
            ) from error


class AsyncRegistry:
    """A registry for an event loop. It runs in its own thread, so that a registry that hangs blocks no other work.

    Args:
        seconds: maximum wait for an answer.
    """

    def __init__(self, registry: Registry, seconds: float) -> None:
        self._registry, self.seconds = registry, seconds
        self._thread = ThreadPoolExecutor(1, "registry")

    async def ask(self, question: Callable[[Registry], T]) -> T:
        """Call the registry, for example :meth:`Registry.cards`.

        Raises:
            RegistryGone: also if there is no answer in time.
        """
        answer = asyncio.wrap_future(self._thread.submit(question, self._registry))
        try:
            # A call that still waits for the thread is then cancelled.
            return await asyncio.wait_for(answer, self.seconds)
        except TimeoutError:
            raise self._late() from None

    def ask_in_thread(self, question: Callable[[Registry], T]) -> T:
        """Like :meth:`ask`, for a thread that may wait."""
        answer = self._thread.submit(question, self._registry)
        try:
            return answer.result(self.seconds)
        except TimeoutError:
            answer.cancel()
            raise self._late() from None

    def _late(self) -> RegistryGone:
        return RegistryGone(
            f"registry {self._registry.place}: no answer within {self.seconds:g} s; try again, or "
            "check that this node reaches models.registry"
        )


def open_registry(place: str | None, network: str | None = None) -> Registry | None:
    """Open a registry; None without a place. :class:`Registry` describes arguments and errors."""
    return None if place is None else Registry(place, network)


def content_of(checkpoint: Checkpoint) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tagae-") as folder:
        path = Path(folder) / WEIGHTS
        save(checkpoint, path)
        return path.read_bytes()


def load_content(content: bytes, network: str | None = None) -> Checkpoint:
    """Load weights from their file's content, which may name this ``network``.

    Raises:
        IncompatibleWeights: this version cannot read them.
    """
    with tempfile.TemporaryDirectory(prefix="tagae-") as folder:  # safetensors reads its metadata from files only
        path = Path(folder) / WEIGHTS
        path.write_bytes(content)
        return load(path, network=network)
