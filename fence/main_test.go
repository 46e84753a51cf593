package fence_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/paused"
	"github.com/holdfast-go/holdfast/internal/backends"
)

func TestMain(m *testing.M) {
	paused.Child(func(ctx context.Context, _ string, t fence.Token) (string, error) {
		return "old data", nil // the test is the resource, and is told
	})
	backends.Main(m)
}
