//go:build tools

// Pins the image that most pods of the suites are of, which is a program of Kubernetes' own as well.
package main

import (
	_ "k8s.io/kubernetes/test/images/agnhost"
)
