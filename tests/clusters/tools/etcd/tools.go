//go:build tools

// Package tools pins the store of the test clusters.
package tools

import _ "go.etcd.io/etcd/server/v3"
