package fence_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/testkit/paused"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestMain(m *testing.M) {
	paused.Child(func(ctx context.Context, _ string, t fence.Token) (string, error) {
		return "old data", nil // the test is the resource, and receives this
	})
	servers.Main(m)
}
