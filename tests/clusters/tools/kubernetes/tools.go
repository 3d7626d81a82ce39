//go:build tools

// Package tools pins the control plane and the node of the test clusters. The replaces in go.mod give
// Kubernetes' own libraries the version that belongs to the release; Kubernetes itself names none.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
