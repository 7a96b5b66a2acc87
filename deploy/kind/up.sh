#!/bin/sh
# Create a kind cluster, build and load the image, deploy the agent, wait until the nodes show their devices.
# Environment: CLUSTER (vdev), IMAGE (vdev:dev), OVERLAY (deploy/overlays/kind). A second run updates the cluster.
set -eu

cd "$(dirname "$0")/../.."
cluster=${CLUSTER:-vdev}
image=${IMAGE:-vdev:dev}
overlay=${OVERLAY:-deploy/overlays/kind}
context=kind-$cluster
patience=180 # seconds that the nodes have to show their devices

say() { printf '\n==> %s\n' "$*"; }
need() {
    command -v "$1" >/dev/null || { echo "$0: $1 is not installed; $2" >&2; exit 2; }
}
kube() { kubectl --context "$context" "$@"; }

need docker "see docs/tutorial.md"
need kind "see docs/tutorial.md"
need kubectl "see docs/tutorial.md"
docker info >/dev/null 2>&1 || { echo "$0: the Docker daemon does not answer; is it running?" >&2; exit 2; }

if kind get clusters 2>/dev/null | grep -qx "$cluster"; then
    say "cluster $cluster is there already"
else
    say "creating cluster $cluster"
    kind create cluster --name "$cluster" --config deploy/kind/cluster.yaml --wait 120s
fi

say "building $image"
docker build --tag "$image" .

say "loading $image into the nodes"
kind load docker-image "$image" --name "$cluster"

say "deploying $overlay"
kube apply --kustomize "$overlay"
kube --namespace vdev-system rollout restart daemonset/vdev >/dev/null # the image's content may have changed under the same name
kube --namespace vdev-system rollout status daemonset/vdev --timeout "${patience}s"

# Each worker must show at least one extended resource: a name with a slash that is not Kubernetes' own.
shown() {
    # shellcheck disable=SC2016 # the dollars are the template's
    kube get nodes --selector '!node-role.kubernetes.io/control-plane' --output \
        'go-template={{range .items}}{{.metadata.name}}{{range $k, $v := .status.allocatable}} {{$k}}={{$v}}{{end}}{{"\n"}}{{end}}'
}
say "waiting until the nodes show their devices"
waited=0
until [ "$(shown | grep -c '[a-z]/[a-z0-9.-]*=[1-9]')" -eq "$(shown | wc -l)" ]; do
    if [ "$waited" -ge "$patience" ]; then
        echo "$0: not within ${patience} s; the agents say:" >&2
        kube --namespace vdev-system logs daemonset/vdev --tail 20 --prefix >&2 || true
        exit 1
    fi
    sleep 1
    waited=$((waited + 1))
done
shown | awk '{ print $1; for (i = 2; i <= NF; i++) if ($i ~ /[a-z]\/[a-z]/) print "    " $i }'

cat <<EOF

Ready. Try:
  kubectl --context $context apply -f deploy/examples/pod.yaml
  kubectl --context $context logs pod/one-npu
  kubectl --context $context -n vdev-system exec daemonset/vdev -- vdev status
  kubectl --context $context -n vdev-system port-forward daemonset/vdev 8080     then open http://localhost:8080
  kubectl --context $context -n vdev-system edit configmap vdev-config          the nodes follow, without a restart
  make kind-down                                                                  when you have seen enough
EOF
