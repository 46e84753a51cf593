package server

import (
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// findings judges what the server reported about itself.
func (s *serverState) findings() []driver.Finding {
	fs := []driver.Finding{s.clock(), s.roundTrip()}
	if s.infoErr != nil {
		return append(fs, driver.Finding{Topic: "server", Level: driver.Warning,
			Detail: "nothing is known about version, memory, persistence and replication: INFO is refused: " + s.infoErr.Error(),
			Advice: "run the check as a user with the right +info"})
	}
	return append(fs, s.version(), s.uptime(), s.eviction(), s.memory(), s.persistence(), s.replication())
}

func (s *serverState) clock() driver.Finding {
	f := driver.Finding{Topic: "clock", Detail: fmt.Sprintf("the server's differs from this machine's by %v", s.skew.Round(time.Millisecond))}
	if s.skew.Abs() > time.Minute {
		// Nothing is decided by the difference itself. But a wrong clock will
		// be set some day, and the lives of tickets depend on how it moves.
		f.Level, f.Advice = driver.Warning, "let both machines follow NTP: when the server's clock is set, locks end early or late by the step"
	}
	return f
}

func (s *serverState) roundTrip() driver.Finding {
	f := driver.Finding{Topic: "round trip", Detail: s.trip.Round(10 * time.Microsecond).String()}
	if s.trip > 100*time.Millisecond {
		f.Level, f.Advice = driver.Warning, "use TTLs of at least a hundred round trips, or a server that is nearer"
	}
	return f
}

func (s *serverState) version() driver.Finding {
	name, version := "Redis", s.info["redis_version"]
	if v := s.info["valkey_version"]; v != "" {
		name, version = "Valkey", v
	}
	return driver.Finding{Topic: "version", Detail: name + " " + version}
}

func (s *serverState) number(name string) int64 {
	n, _ := strconv.ParseInt(s.info[name], 10, 64)
	return n
}

func (s *serverState) uptime() driver.Finding {
	up := time.Duration(s.number("uptime_in_seconds")) * time.Second
	f := driver.Finding{Topic: "uptime", Detail: up.String()}
	if up < time.Minute && !s.durable() {
		f.Level = driver.Warning
		f.Detail += ": locks held before the restart may be held by others now"
		f.Advice = "persist every write, or after a restart wait for the longest TTL before work goes on"
	}
	return f
}

// durable reports whether an acknowledged write survives a crash.
func (s *serverState) durable() bool {
	return s.info["aof_enabled"] == "1" && s.config["appendfsync"] == "always"
}

func (s *serverState) eviction() driver.Finding {
	policy := s.info["maxmemory_policy"]
	f := driver.Finding{Topic: "eviction", Detail: "maxmemory-policy is " + policy}
	if policy == "noeviction" {
		return f
	}
	f.Level = driver.Warning
	f.Advice = "set maxmemory-policy to noeviction, or keep locks in a server of their own"
	if s.number("maxmemory") > 0 {
		// Locks have short times to live, so volatile-ttl evicts them first.
		f.Level = driver.Problem
		f.Detail += ": when memory runs out, the server drops locks that are held"
	} else {
		f.Detail += ", without effect as long as there is no maxmemory"
	}
	return f
}

func (s *serverState) memory() driver.Finding {
	used, most := s.number("used_memory"), s.number("maxmemory")
	f := driver.Finding{Topic: "memory", Detail: fmt.Sprintf("%d MiB used, no limit", used>>20)}
	if most > 0 {
		f.Detail = fmt.Sprintf("%d of %d MiB used", used>>20, most>>20)
		if used > most/10*9 {
			f.Level = driver.Warning
			f.Advice = "raise maxmemory: when it is used up, nobody can take a lock; those held can be renewed and released"
		}
	}
	return f
}

func (s *serverState) persistence() driver.Finding {
	f := driver.Finding{Topic: "persistence"}
	fsync, known := s.config["appendfsync"]
	switch {
	case s.durable():
		f.Detail = "every write is on disk before it is answered"
	case s.info["aof_enabled"] == "1" && !known:
		f.Level, f.Detail = driver.Warning, "writes are logged; how soon they reach the disk is not known, because CONFIG GET is refused"
		f.Advice = "make sure that appendfsync is always, or that work under a lock checks its fencing token"
	case s.info["aof_enabled"] == "1":
		f.Level, f.Detail = driver.Warning, "writes reach the disk late (appendfsync "+fsync+"): a crash forgets the last ones, and Once may run a slot again"
		f.Advice = "set appendfsync to always, or check fencing tokens where work is done under a lock"
	default:
		f.Level, f.Detail = driver.Warning, "a crash forgets the locks that are held, and the slots that Once has done"
		if save := s.config["save"]; save != "" {
			f.Detail = "a crash brings back the locks of the last snapshot (save " + save + "), and Once may run later slots again"
		}
		f.Advice = "set appendonly to yes and appendfsync to always, or check fencing tokens where work is done under a lock"
	}
	if s.info["aof_last_write_status"] == "err" || s.info["rdb_last_bgsave_status"] == "err" {
		f.Level = driver.Problem
		f.Detail += "; the last write to disk failed"
		f.Advice = "check the server's disk: until writes succeed, the server may refuse to take and release locks"
	}
	return f
}

func (s *serverState) replication() driver.Finding {
	replicas := s.number("connected_slaves")
	f := driver.Finding{Topic: "replication", Detail: fmt.Sprintf("%s with %d replicas", s.info["role"], replicas)}
	least, known := s.config["min-replicas-to-write"]
	switch {
	case s.info["role"] != "master":
		f.Level, f.Advice = driver.Problem, "connect to the primary: a replica takes no locks"
	case replicas > 0 && known && least == "0":
		f.Level = driver.Warning
		f.Detail += ": a failover can forget locks, and an old primary goes on granting them"
		f.Advice = "set min-replicas-to-write to at least 1, and check fencing tokens where work is done under a lock"
	case replicas > 0:
		f.Level = driver.Warning
		f.Detail += ": a failover can forget the last locks"
		f.Advice = "check fencing tokens where work is done under a lock"
	}
	return f
}
