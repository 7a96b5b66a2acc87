#!/bin/sh
# The action's second half: loads the image into an existing kind cluster, installs the chart, waits for devices.
# Environment: CLUSTER; CONFIG, IMAGE, VALUES (may be empty); WAIT in seconds. Its outputs go to the file $GITHUB_OUTPUT.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
context=kind-$CLUSTER
namespace=vdev-system
wait=${WAIT:-180}
version=$(sed -n 's/^appVersion: //p' "$root/deploy/helm/vdev/Chart.yaml")

fail() {
    echo "::error title=vdev::$*" >&2
    exit 1
}
say() { printf '==> %s\n' "$*"; }
kube() { kubectl --context "$context" "$@"; }
output() { printf '%s=%s\n' "$1" "$2" >>"${GITHUB_OUTPUT:-/dev/stdout}"; }

case $wait in '' | *[!0-9]*) fail "wait: expected seconds, found '$wait'" ;; esac
for program in docker kind kubectl helm jq; do
    command -v "$program" >/dev/null || fail "$program is not installed on this runner"
done

if [ -n "${IMAGE:-}" ]; then
    image=$IMAGE
    say "pulling $image"
    docker pull --quiet "$image" || fail "image: cannot pull $image"
else
    image=vdev:$version
    say "building $image"
    docker build --quiet --tag "$image" --build-arg "VERSION=$version" "$root"
fi
loaded=vdev:of-this-cluster # a name without a digest, because loading into the nodes loses digests
docker tag "$image" "$loaded"
say "loading it into the nodes"
kind load docker-image "$loaded" --name "$CLUSTER"

set -- --set "image.repository=${loaded%:*}" --set "image.tag=${loaded#*:}" --set "image.digest=" \
    --set "image.pullPolicy=Never" --set "nodeLabel.enabled=true"
[ -z "${VALUES:-}" ] || set -- "$@" --values "$VALUES"
if [ -d "${CONFIG:-}" ]; then
    found=
    for file in "$CONFIG"/*.yaml; do
        [ -f "$file" ] || continue
        name=$(basename "$file" .yaml | sed 's/[.,]/\\&/g')
        set -- "$@" --set-file "config.$name\\.yaml=$file"
        found=yes
    done
    [ -n "$found" ] || fail "config: no file *.yaml in $CONFIG"
elif [ -n "${CONFIG:-}" ]; then
    [ -f "$CONFIG" ] || fail "config: there is no $CONFIG; check out the repository first"
    set -- "$@" --set-file "config.default\\.yaml=$CONFIG"
fi

diagnose() {
    kube --namespace "$namespace" get pods --output wide >&2 || true
    kube --namespace "$namespace" logs --selector app.kubernetes.io/name=vdev --tail 30 --prefix >&2 || true
    fail "$*"
}

say "installing the chart"
kube create namespace "$namespace" --dry-run=client --output yaml | kube apply --filename - >/dev/null
kube label --overwrite namespace "$namespace" pod-security.kubernetes.io/enforce=privileged >/dev/null
helm upgrade --install vdev "$root/deploy/helm/vdev" --kube-context "$context" --namespace "$namespace" \
    --wait --timeout "${wait}s" "$@" >/dev/null || diagnose "the agents were not ready within $wait s"

# Extended resources have a name with a slash that is not Kubernetes' own.
devices() {
    kube get nodes --output json | jq --compact-output '[.items[] | {(.metadata.name): (.status.allocatable
        | with_entries(select((.key | contains("/")) and (.key | contains("kubernetes.io/") | not)) | .value |= tonumber))}]
        | add'
}
say "waiting for devices"
waited=0
until found=$(devices) && [ "$(printf '%s' "$found" | jq '[.[][]] | add // 0')" -gt 0 ]; do
    [ "$waited" -lt "$wait" ] || diagnose "no node had a device within $wait s; is there one for these nodes in the configuration?"
    sleep 1
    waited=$((waited + 1))
done
printf '%s' "$found" | jq --raw-output 'to_entries[] | .key as $node | .value | to_entries[] | "\($node)  \(.key)  \(.value)"'

output context "$context"
output namespace "$namespace"
output image "$image"
output version "$version"
output devices "$found"
