// Package natslock_test runs the safety harness on NATS. Package natslock does without
// the harness, whose tests require the clients of all other stores.
package natslock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
