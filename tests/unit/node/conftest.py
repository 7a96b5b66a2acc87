"""Labels of a node for the text of a configuration, as in `vdev plan`."""

from types import SimpleNamespace

import pytest

from vdev import config
from vdev.node.labels import node_labels
from vdev.node.vendor_labels import Machine
from vdev.planning.inventory import arrange
from vdev.planning.inventory import virtual_devices as devices


@pytest.fixture
def labels():
    """The labels and problems of a configuration on a machine, without the devices that `away` selects."""

    def made(text, *, machine=None, away=lambda _raw: False, node="node-1", found=None):
        spec = config.load_text(text).spec
        found = (
            found
            if found is not None
            else {
                entry.name: tuple(raw for raw in devices(entry, entry.virtual, node) if not away(raw))
                for entry in spec.on_node(node)
            }
        )
        values, problems = node_labels(spec, node, found, arrange(spec, node, found), machine or Machine("Model 7"))
        return SimpleNamespace(values=values, problems=problems)

    return made
