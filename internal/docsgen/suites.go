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

// suite is one run of the cases that all stores share: its test, and the
// conditions that decide which cases the test runs. CI finds an entry that
// promises more than its test runs, because every test named on the page of
// faults has to pass there.
type suite struct {
	column, kind, test string
	traits             driver.Traits
	has                string // the abilities of its Harness
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
	{"memory", "drivertest", "memlock.TestDriverConformance", memory, "Pause LoseData Snapshot StepClock", ""},
	{"memory", "locks", "memlock.TestLocks", memory, "Pause", ""},
	{"sqlite", "drivertest", "sqlitelock.TestDriverConformance", sqlite, "Pause Restart LoseData Snapshot StepClock HasElsewhere Rows", "close-silent"},
	{"sqlite", "locks", "sqlitelock.TestLocks", sqlite, "Pause", ""},
	{"sqlite", "multiproc", "sqlitelock.TestLocksAcrossProcesses", sqlite, "", ""},
	{"redis", "drivertest", "redislock.TestDriverConformance", redis, "Pause Restart LoseData Snapshot StepClock OpenAt HasRights Rows", "clock-back-dead"},
	{"redis", "locks", "redislock.TestLocks", redis, "Pause", ""},
	{"redis", "multiproc", "redislock.TestLocksAcrossProcesses", redis, "", ""},
	{"sentinel", "drivertest", "redislock.TestSentinelConformance", sentinel, "Pause Restart LoseData StepClock OpenAt HasRights", "clock-back-dead"},
	{"sentinel", "locks", "redislock.TestSentinelLocks/locks", sentinel, "Pause", ""},
	{"sentinel", "multiproc", "redislock.TestSentinelLocks/processes", sentinel, "", ""},
	{"cluster", "drivertest", "redislock.TestClusterConformance", cluster, "Pause LoseData Snapshot StepClock OpenAt HasRights", "break-held clock-back-dead"},
	{"cluster", "locks", "redislock.TestClusterLocks", cluster, "Pause", ""},
	{"cluster", "multiproc", "redislock/goredis.TestClusterLocks/processes", cluster, "", ""},
	{"redlock", "drivertest", "redlock.TestDriverConformance/3", majority, "LoseData Snapshot StepClock", ""},
	{"redlock", "drivertest", "redlock.TestRedisConformance", majority, "Pause Restart LoseData", "inspect replaces leave-frees-no-stranger hammer-cancel nasty-names"},
	{"redlock", "locks", "redlock.TestRedisLocks", majority, "Pause", ""},
	{"redlock", "multiproc", "redlock.TestRedisProcesses", majority, "", ""},
	{"etcd", "drivertest", "etcdlock.TestDriverConformance/3.7", etcd, "Pause Restart OpenAt HasForeign", "token-floor"},
	{"etcd", "locks", "etcdlock.TestLocks", etcd, "Pause", ""},
	{"etcd", "multiproc", "etcdlock.TestLocksAcrossProcesses", etcd, "", ""},
	{"postgres", "drivertest", "pglock.TestDriverConformance", postgres, "Pause Restart LoseData Snapshot StepClock OpenAt HasRights LockRow Rows FailPushes", ""},
	{"postgres", "locks", "pglock.TestLocks", postgres, "Pause", ""},
	{"postgres", "multiproc", "pglock.TestLocksAcrossProcesses", postgres, "", ""},
	{"mysql", "drivertest", "mysqllock.TestDriverConformance", mysql, "Pause Restart LoseData Snapshot StepClock OpenAt HasRights LockRow Rows FailPushes", ""},
	{"mysql", "locks", "mysqllock.TestLocks", mysql, "Pause", ""},
	{"mysql", "multiproc", "mysqllock.TestLocksAcrossProcesses", mysql, "", ""},
	{"zookeeper", "drivertest", "zklock.TestDriverConformance", zk, "Pause Restart OpenAt HasForeign", ""},
	{"zookeeper", "locks", "zklock.TestLocks", zk, "Pause", ""},
	{"zookeeper", "multiproc", "zklock.TestLocksAcrossProcesses", zk, "", ""},
}

// runs reports whether a suite runs a case.
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
