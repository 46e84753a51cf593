package mysqllock

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF11_GarbledAnswers checks answers that cannot be understood.
func TestF11_GarbledAnswers(t *testing.T) {
	t.Parallel()
	s := servers.SharedMariaDB(t)
	g := servers.Garble(t, fmt.Sprintf("127.0.0.1:%d", s.Port))
	url := s.URL("holdfast", own())
	direct := openOn(t, url)
	d := openOn(t, strings.Replace(url, fmt.Sprint(":", s.Port), fmt.Sprint(":", g.Port), 1))
	servers.GarbledAnswers(t, g, d, direct)
}
