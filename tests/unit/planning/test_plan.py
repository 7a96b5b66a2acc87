"""Results of a plan that the next plan uses."""

import json
from dataclasses import replace

from vdev import config
from vdev.planning.allocation import cdi_documents
from vdev.planning.inventory import inventory
from vdev.planning.plan import ObservedState, desired_state


def spec(**virtual):
    """A configuration with CDI."""
    entry = {"name": "npu", "resource": "x.dev/npu", "virtual": {"count": 2, **virtual}}
    return config.load_text(
        json.dumps({"flags": {"plugin": {"deviceListStrategy": "cdi-cri"}}, "devices": [entry]})
    ).spec


def test_cdi_documents_match_the_lists():
    """Also after an edit and after it is undone."""
    before = ObservedState()
    documents = []
    for wanted in (spec(), spec(), spec(count=3), spec(count=3, memory="1Gi"), spec()):
        plan = desired_state(replace(before, spec=wanted, node="n", inventory=inventory(wanted, "n")))
        assert cdi_documents(plan.advertised) == plan.cdi
        documents.append(plan.cdi)
        before = replace(before, previous=plan.as_previous())
