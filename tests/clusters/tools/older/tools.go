//go:build tools

// Package tools pins a control plane of the minor version before the test clusters' own. The replaces in go.mod give
// Kubernetes' own libraries the version that belongs to the release; Kubernetes itself names none.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
