// The csi-spec command writes the descriptors of the published CSI interface to stdout, as a serialised
// FileDescriptorSet, so that proto/csi.proto can be compared with them.
package main

import (
	"log"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

func main() {
	published := protodesc.ToFileDescriptorProto(csi.File_csi_proto)
	bytes, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{published}})
	if err == nil {
		_, err = os.Stdout.Write(bytes)
	}
	if err != nil {
		log.Fatal(err)
	}
}
