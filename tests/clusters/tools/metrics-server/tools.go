//go:build tools

// Package tools pins what tells in a cluster what pods use.
package tools

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
