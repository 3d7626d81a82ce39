//go:build tools

// Package tools pins the node-local storage that a member cluster is likely to have.
package tools

import _ "github.com/rancher/local-path-provisioner"
