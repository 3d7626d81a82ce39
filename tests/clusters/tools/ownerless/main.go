// Shows a folder at another place as storage that keeps no owners: `ownerless ignores|refuses FOLDER PLACE`. Whoever gives a file to
// another user there is told that it is done, or that he may not, and it stays as it was. On TERM the place is as before at once for
// whoever comes then; it ends when nobody uses it any more.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

type node struct {
	*fs.LoopbackNode
	refuses bool
}

func (n *node) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{child.(*fs.LoopbackNode), n.refuses}
}

func (n *node) Setattr(ctx context.Context, file fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	const owners = fuse.FATTR_UID | fuse.FATTR_GID
	if n.refuses && in.Valid&owners != 0 {
		return syscall.EPERM
	}
	in.Valid &^= owners
	return n.LoopbackNode.Setattr(ctx, file, in, out)
}

func main() {
	if len(os.Args) != 4 || (os.Args[1] != "ignores" && os.Args[1] != "refuses") {
		fmt.Fprintln(os.Stderr, "usage: ownerless ignores|refuses FOLDER PLACE")
		os.Exit(64)
	}
	if err := serve(os.Args[1] == "refuses", os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(refuses bool, folder, place string) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM)
	plain, err := fs.NewLoopbackRoot(folder)
	if err != nil {
		return err
	}
	root := &node{plain.(*fs.LoopbackNode), refuses}
	root.RootData.RootNode = root
	server, err := fs.Mount(place, root, &fs.Options{
		NullPermissions: true,
		MountOptions: fuse.MountOptions{
			AllowOther:        true,
			DirectMountStrict: true,
			Name:              "ownerless",
			FsName:            folder,
			Options:           []string{"default_permissions"},
		},
	})
	if err != nil {
		return err
	}
	<-asked
	if err := syscall.Unmount(place, syscall.MNT_DETACH); err != nil {
		return err
	}
	server.Wait()
	return nil
}
