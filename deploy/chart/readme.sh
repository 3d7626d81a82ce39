#!/usr/bin/env bash
# Prints the README of the chart: what Chart.yaml says of it, and each of its values with the comment above it in values.yaml.
set -euo pipefail
chart=$(cd "$(dirname "$0")" && pwd)/kosmos-csi

# told <key of Chart.yaml>
told() {
    sed -n "s/^$1: *//p" "$chart/Chart.yaml" | tr -d '"'
}

cat <<END
<!-- Made from Chart.yaml and values.yaml by make manifests: change it there. -->
# $(told name)

$(told description). It needs Kubernetes $(told kubeVersion | sed 's/-0$//'), and no other chart.

\`\`\`sh
helm install kosmos-csi deploy/chart/kosmos-csi --namespace kosmos-csi --create-namespace
helm test kosmos-csi --namespace kosmos-csi --logs
\`\`\`

Then add each member by \`kosmos-csi member add\`, and make a StorageClass that leads to them: \`helm status kosmos-csi --namespace kosmos-csi\` shows
how. Helm refuses a wrong value, and names it.

| Value | Default | What it does |
|---|---|---|
END

# A comment is of the key that follows at once; one that begins with a dash or with more blanks is an example, and of none. Where a map has a
# comment, it has a row as well.
awk '
function row(path, value, text) {
    gsub(/\|/, "\\|", value)
    gsub(/\|/, "\\|", text)
    printf "| `%s` | %s | %s |\n", path, value == "" ? "" : "`" value "`", text
}
function path(depth,   at, all) {
    all = keys[0]
    for (at = 1; at <= depth; at++) all = all "." keys[at]
    return all
}
/^ *$/ { about = ""; next }
/^ *#/ {
    text = $0
    sub(/^ *# ?/, "", text)
    if (text !~ /^(- | )/) about = about (about == "" ? "" : " ") text
    next
}
/^ *- / { text = $0; sub(/^ *- /, "", text); row(path(last), "[{" text "}]", ""); next }
{
    match($0, /^ */)
    last = RLENGTH / 2
    text = substr($0, RLENGTH + 1)
    match(text, /^[^:]*:/)
    keys[last] = substr(text, 1, RLENGTH - 1)
    value = substr(text, RLENGTH + 2)
    if (value != "" || about != "") row(path(last), value, about)
    about = ""
}' "$chart/values.yaml"
