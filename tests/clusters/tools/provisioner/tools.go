//go:build tools

// Package tools pins external-provisioner, apart from the other sidecars because it needs older Kubernetes libraries.
package tools

import _ "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"
