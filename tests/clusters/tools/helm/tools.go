//go:build tools

// Package tools pins helm, which renders the chart and installs it in tests.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
