// Command servers builds the servers that tests need and no package has: etcd
// and nats-server of the newest releases. Tests would build it themselves, but each of them
// beside the others, and on their own time.
package main

import (
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func main() {
	dir, err := servers.EtcdBuild()
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
	fmt.Println("etcd is in", dir)
	path, err := servers.NATSBuild()
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
	fmt.Println("nats-server is", path)
}
