#!/bin/sh
# Delete the kind cluster that up.sh made. Environment: CLUSTER (vdev).
set -eu
exec kind delete cluster --name "${CLUSTER:-vdev}"
