"""Whether meshes can change to a model without losing their state.

The state of a mesh depends on the inputs of the network, and on how many neighbours of a service it reads. It does not
depend on the weights, so a mesh that changes to others needs no warm-up.
"""

from serve_app.api.schemas.models import ModelCard
from serve_app.api.schemas.views import ChannelDocument
from serve_app.api.views import feature_schema_document
from serve_app.errors import UnfitModel

NEIGHBOURS = "neighbours"  # in the architecture of a card


def require_compatible(card: ModelCard, neighbours: int) -> None:
    """Refuse a model that meshes cannot change to.

    Args:
        card: of the model.
        neighbours: that the model in use reads of a service.

    Raises:
        UnfitModel: it reads other inputs, or another number of neighbours; the message names the first difference.
    """
    ours = feature_schema_document()
    for what, wanted, given in (
        ("service", ours.services, card.features.services),
        ("call", ours.calls, card.features.calls),
    ):
        for number in range(max(len(wanted), len(given))):
            expected, got = wanted[number : number + 1], given[number : number + 1]
            if expected != got:
                raise UnfitModel(
                    f"model {card.version}: {what} channel {number}: expected {_name(expected)}, got {_name(got)} (its "
                    f"feature schema is {card.schema_version}); train it again with this version of TAGAE"
                )
    if card.architecture.get(NEIGHBOURS) != neighbours:
        raise UnfitModel(
            f"model {card.version}: expected a network that reads {neighbours} neighbours, as the one in use, got one "
            f"that reads {card.architecture.get(NEIGHBOURS, 0):g}; set model.weights to it and restart the service"
        )


def _name(channels: list[ChannelDocument]) -> str:
    return " ".join(f"{one.name} ({one.unit}, {one.transform})" for one in channels) or "none"
