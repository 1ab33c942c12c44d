"""Documents of saved views of the page: named links that people share."""

from pydantic import ConfigDict, Field

from serve_app.api.schemas.base import Document, Id, Instant, Text

LONGEST_VIEW_NAME, LONGEST_ADDRESS = 80, 2000  # characters


class SavedViewDocument(Document):
    """A view to save. With an id, it replaces the view with this id, and so renames it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "Checkout, whole mesh", "address": "mesh=shop&view=all&space=checkout"}]
        }
    )

    name: Text = Field(min_length=1, max_length=LONGEST_VIEW_NAME, pattern=r"\S")
    address: Text = Field(
        max_length=LONGEST_ADDRESS,
        description="the part of the page's address after the #; its mesh decides who sees the view, and one without a "
        "mesh is for everyone",
    )
    id: Id | None = Field(None, description="of the view to replace; null: save a new one")


class KeptSavedViewDocument(Document):
    """A saved view."""

    id: str
    name: str
    address: str = Field(description="the part of the page's address after the #")
    mesh: str | None = Field(description="mesh of the address; null: it is for all meshes")
    saved_at: Instant
    saved_by: str = Field(description="token or user; empty: unknown")


class SavedViewsDocument(Document):
    """The saved views that the caller may see, by name."""

    views: list[KeptSavedViewDocument] = Field([])
