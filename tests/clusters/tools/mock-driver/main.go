// Serves the CSI driver that plays storage in Kubernetes' own end-to-end tests: `mock-driver SOCKET`. It keeps its volumes in memory
// and asks no cluster, so that what it takes is what a CSI driver in Go takes for the call alone.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mock-driver SOCKET")
		os.Exit(64)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	driver := service.New(service.Config{DriverName: service.Name, DisableAttach: true})
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, driver)
	csi.RegisterControllerServer(server, driver)
	return server.Serve(listener)
}
