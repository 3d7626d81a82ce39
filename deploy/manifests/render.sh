#!/usr/bin/env bash
# Renders the chart for those without Helm: into deploy/, or into a folder that is given. HELM is the program.
set -euo pipefail
deploy=$(cd "$(dirname "$0")/.." && pwd)
to=${1:-$deploy}
mkdir -p "$to/manifests"

# render <file> <what it is> <arguments of helm template>
render() {
    local file=$1 about=$2
    shift 2
    {
        echo "# $about"
        echo "# Rendered from deploy/chart/kosmos-csi by make manifests: change it there."
        "${HELM:-helm}" template kosmos-csi "$deploy/chart/kosmos-csi" --namespace kosmos-csi --skip-tests "$@" | sed -e '/^# Source: /d' -e '/^$/d'
    } >"$to/$file"
}

only=(--set virtualNode.enabled=false --set namespace.create=true)

render host.yaml "What the driver needs in the host to run anywhere: its namespace, its rights and no more, and its own object." \
    "${only[@]}" --set controller.enabled=false
render host-attach.yaml "The driver's right to keep Secrets for real nodes. Apply it after host.yaml." \
    --set nodeSecrets.enabled=true --show-only templates/node-secrets.yaml
render manifests/controller.yaml "The driver and its sidecars in the host." \
    "${only[@]}" --set sidecars.snapshotter.enabled=false
render manifests/controller-with-snapshots.yaml "The same for a host that serves volume snapshots and their groups." \
    "${only[@]}" --set sidecars.snapshotter.enabled=true
render manifests/virtual-node.yaml "The agent of virtual nodes. Apply it after the controller's." \
    --show-only templates/virtual-node-rights.yaml --show-only templates/virtual-node-policy.yaml \
    --show-only templates/virtual-node.yaml
render manifests/moves.yaml "What moving volumes to other members needs in the host. The controller has to be given --mover-image besides." \
    --set moves.enabled=true --show-only templates/moves.yaml
render manifests/node.yaml "The driver on real nodes of the host, which use volumes of cluster38 made by storage.example.com: change both names." \
    --set node.enabled=true --set 'node.members[0].name=cluster38' --set 'node.members[0].leafDrivers={storage.example.com}' \
    --show-only templates/node.yaml
