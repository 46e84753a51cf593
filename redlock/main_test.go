package redlock

import (
	"context"
	"flag"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock"
)

func TestMain(m *testing.M) {
	multiproc.Child(openTarget)
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // the tests wait more than they compute
		panic(err)
	}
	servers.Main(m)
}

// openTarget opens a driver on the Redis servers at several URLs.
func openTarget(target string) (driver.Driver, error) {
	var nodes []driver.Driver
	drop := func() {
		for _, n := range nodes {
			n.Close()
		}
	}
	for url := range strings.SplitSeq(target, " ") {
		d, err := openNode(url)
		if err != nil {
			drop()
			return nil, err
		}
		nodes = append(nodes, d)
	}
	d, err := New(nodes, nil)
	if err != nil {
		drop()
		return nil, err
	}
	return d, nil
}

func openNode(url string) (driver.Driver, error) {
	d, err := redislock.Open(context.Background(), url)
	if err != nil {
		return nil, err
	}
	return d, nil
}
