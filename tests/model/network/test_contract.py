"""The contract of networks, for ours."""

from lab.contracts.networks import NetworkContract
from model.network.autoencoder import Autoencoder


class TestAutoencoder(NetworkContract):
    network = Autoencoder
