package redislock

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backends"
)

// Answers that cannot be understood. A length beyond what memory can have is left
// out: the client library takes a server at its word, and panics.
func TestF11_GarbledAnswers(t *testing.T) {
	t.Parallel()
	s := backends.SharedRedis(t)
	g := backends.Garble(t, s.Addr())
	d, err := Open(context.Background(), fmt.Sprintf("redis://127.0.0.1:%d", g.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	backends.GarbledAnswers(t, g, d, openOn(t, s, ""), "a huge length")
}
