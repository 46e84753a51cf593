package main

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/mysqllock"
	"github.com/holdfast-go/holdfast/pglock"
	"github.com/holdfast-go/holdfast/redislock"
	"github.com/holdfast-go/holdfast/redlock"
	"github.com/holdfast-go/holdfast/sqlitelock"
	"github.com/holdfast-go/holdfast/zklock"
)

// A suite is one run of the cases that all stores share: its test, and what
// decides which of them it runs. A line that promises more than the test does is
// found in CI, where every test named on the page of faults has to have passed.
type suite struct {
	column, kind, test string
	traits             driver.Traits
	has                string // what its Harness can do
	leavesOut          string
}

var (
	memory   = new(memlock.Driver).Traits()
	sqlite   = new(sqlitelock.Driver).Traits()
	redis    = new(redislock.Driver).Traits()
	sentinel = new(redislock.Sentinel).Traits()
	cluster  = new(redislock.Cluster).Traits()
	majority = new(redlock.Driver).Traits()
	etcd     = new(etcdlock.Driver).Traits()
	postgres = new(pglock.Driver).Traits()
	mysql    = new(mysqllock.Driver).Traits()
	zk       = new(zklock.Driver).Traits()
)

var suites = []suite{
	{"memory", "drivertest", "memlock.TestConformance", memory, "Pause LoseData Snapshot StepClock", ""},
	{"memory", "locktest", "drivertest/locktest.TestMemory", memory, "", ""},
	{"sqlite", "drivertest", "sqlitelock.TestConformance", sqlite, "Pause Restart LoseData Snapshot StepClock", ""},
	{"sqlite", "locktest", "sqlitelock.TestLocks", sqlite, "", ""},
	{"sqlite", "procs", "sqlitelock.TestProcesses", sqlite, "", ""},
	{"redis", "drivertest", "redislock.TestConformance", redis, "Pause Restart LoseData Snapshot StepClock", ""},
	{"redis", "locktest", "redislock.TestLocks", redis, "", ""},
	{"redis", "procs", "redislock.TestProcesses", redis, "", ""},
	{"sentinel", "drivertest", "redislock.TestSentinelConformance", sentinel, "Pause Restart LoseData StepClock", ""},
	{"sentinel", "locktest", "redislock.TestSentinelLocks/locks", sentinel, "", ""},
	{"sentinel", "procs", "redislock.TestSentinelLocks/processes", sentinel, "", ""},
	{"cluster", "drivertest", "redislock.TestClusterConformance", cluster, "Pause LoseData Snapshot StepClock", "break-held"},
	{"cluster", "locktest", "redislock.TestClusterLocks", cluster, "", ""},
	{"cluster", "procs", "redislock/goredis.TestClusterLocks/processes", cluster, "", ""},
	{"redlock", "drivertest", "redlock.TestConformance/3", majority, "LoseData Snapshot StepClock", ""},
	{"redlock", "drivertest", "redlock.TestRedisConformance", majority, "Pause Restart LoseData", "replaces leave-frees-no-stranger hammer-cancel"},
	{"redlock", "locktest", "redlock.TestRedisLocks", majority, "", ""},
	{"redlock", "procs", "redlock.TestRedisProcesses", majority, "", ""},
	{"etcd", "drivertest", "etcdlock.TestConformance/3.7", etcd, "Pause Restart", "token-floor"},
	{"etcd", "locktest", "etcdlock.TestLocks", etcd, "", ""},
	{"etcd", "procs", "etcdlock.TestProcesses", etcd, "", ""},
	{"postgres", "drivertest", "pglock.TestConformance", postgres, "Pause Restart LoseData Snapshot StepClock", ""},
	{"postgres", "locktest", "pglock.TestLocks", postgres, "", ""},
	{"postgres", "procs", "pglock.TestProcesses", postgres, "", ""},
	{"mysql", "drivertest", "mysqllock.TestConformance", mysql, "Pause Restart LoseData Snapshot StepClock", ""},
	{"mysql", "locktest", "mysqllock.TestLocks", mysql, "", ""},
	{"mysql", "procs", "mysqllock.TestProcesses", mysql, "", ""},
	{"zookeeper", "drivertest", "zklock.TestConformance", zk, "Pause Restart", ""},
	{"zookeeper", "locktest", "zklock.TestLocks", zk, "", ""},
	{"zookeeper", "procs", "zklock.TestProcesses", zk, "", ""},
}

// runs says whether a suite runs a case.
func (s suite) runs(c suiteCase) bool {
	if slices.Contains(strings.Fields(s.leavesOut), c.name) {
		return false
	}
	for _, need := range c.needs {
		switch strings.ToLower(need) {
		case "shared":
			if !s.traits.Shared {
				return false
			}
		case "owner", "owners":
			if !s.traits.Owner {
				return false
			}
		case "fair":
			if !s.traits.Fair {
				return false
			}
		case "push":
			if !s.traits.Push {
				return false
			}
		case "fencing":
			if !s.traits.Fencing {
				return false
			}
		default:
			if !slices.Contains(strings.Fields(s.has), need) {
				return false
			}
		}
	}
	return true
}
