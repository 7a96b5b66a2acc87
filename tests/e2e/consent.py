"""Decides which cluster may be tested: one that is named on the command line and looks like a test cluster.

`KUBECONFIG` and the current context are set for other purposes, and may lead to production.
"""

import re

_TEST_CLUSTERS = re.compile(r"((kind|k3d|vdev)-.+|vdev|minikube.*|docker-desktop|rancher-desktop|colima.*|orbstack)")


def refusal(context, *, named, confirmed):
    """Why a cluster is not tested; empty if it may be tested.

    `named`: the context was given by name, so it is not just the current one. `confirmed`: with `--yes-this-cluster`.
    """
    if _TEST_CLUSTERS.fullmatch(context) and "prod" not in context:
        return ""
    if not confirmed:
        return (
            f"the context {context!r} does not look like that of a test cluster (kind-, k3d-, vdev-, minikube …), and "
            "these tests deploy an agent with access to a node; if it may be tested, give its name with --context and "
            "add --yes-this-cluster"
        )
    return "" if named else "--yes-this-cluster needs --context with the cluster's name: the current one may change"
