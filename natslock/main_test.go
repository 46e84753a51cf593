package natslock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
