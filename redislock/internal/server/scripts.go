package server

import (
	"sync"

	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// The scripts are made once, by the first driver: a program that links this package and
// opens another store, as the command does, starts without them.
var (
	plainScripts = sync.OnceValue(wire.NewScripts)
	shardScripts = sync.OnceValue(wire.NewShardScripts)
)

// scriptsOf returns the scripts for a server, or for a node of a cluster.
func scriptsOf(cluster bool) *wire.Scripts {
	if cluster {
		return shardScripts()
	}
	return plainScripts()
}
