package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/bench/scale"
	"github.com/holdfast-go/holdfast/internal/cli/bench"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// scaleStages start the stores of docs/scale.md.
var scaleStages = []struct {
	name string
	set  func(h *host) (scale.Store, map[string]string)
}{
	{"memory", func(*host) (scale.Store, map[string]string) {
		return scale.Store{URL: "memory:scale", Kept: "the heap of the process", Bytes: func() (float64, error) {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc), nil
		}}, nil
	}},
	{"sqlite", func(h *host) (scale.Store, map[string]string) {
		file := filepath.Join(h.TempDir(), "locks.db")
		return scale.Store{URL: "sqlite:" + file, Kept: "the file and its log", Bytes: func() (float64, error) {
			var sum float64
			for _, name := range []string{file, file + "-wal"} {
				if info, err := os.Stat(name); err == nil {
					sum += float64(info.Size())
				}
			}
			return sum, nil
		}}, map[string]string{"sqlite": version("modernc.org/sqlite")}
	}},
	{"redis", func(h *host) (scale.Store, map[string]string) {
		s := servers.Redis(h, servers.RedisOptions{})
		return serverStore(s.URL(""), "`used_memory`", func() (float64, error) {
			return strconv.ParseFloat(s.Info(h, "memory", "used_memory"), 64)
		}, s.PID()), map[string]string{"redis": s.Info(h, "server", "redis_version")}
	}},
	{"etcd", func(h *host) (scale.Store, map[string]string) {
		s := servers.Etcd(h, servers.EtcdOptions{})
		return serverStore(s.URL(""), "the database in use, with history that is not yet compacted", func() (float64, error) {
			c, err := dialEtcd(s.Endpoints()[0])
			if err != nil {
				return 0, err
			}
			defer c.Close()
			status, err := c.Status(context.Background(), s.Endpoints()[0])
			if err != nil {
				return 0, err
			}
			return float64(status.DbSizeInUse), nil
		}, s.Members[0].PID()), map[string]string{"etcd": string(servers.EtcdNewest)}
	}},
	{"zookeeper", func(h *host) (scale.Store, map[string]string) {
		s := servers.ZooKeeper(h, servers.ZooKeeperOptions{})
		m := s.Members[0]
		first, _, _ := strings.Cut(m.Ask(h, "srvr"), "-")
		return serverStore(s.URL("", ""), "`zk_approximate_data_size`, of paths and data", func() (float64, error) {
			for line := range strings.Lines(m.Ask(h, "mntr")) {
				if v, ok := strings.CutPrefix(line, "zk_approximate_data_size"); ok {
					return strconv.ParseFloat(strings.TrimSpace(v), 64)
				}
			}
			return 0, errors.New("mntr has no zk_approximate_data_size")
		}, m.PID()), map[string]string{"zookeeper": strings.TrimPrefix(first, "Zookeeper version: ")}
	}},
	{"postgresql", func(h *host) (scale.Store, map[string]string) {
		s := servers.Postgres(h, servers.PostgresOptions{})
		n := s.Value(h, "SELECT current_setting('server_version_num')::bigint")
		return serverStore(s.URL("postgres", "sslmode=disable"), "the database's files", func() (float64, error) {
			return float64(s.Value(h, "SELECT pg_database_size(current_database())")), nil
		}, s.PID()), map[string]string{"postgresql": fmt.Sprintf("%d.%d", n/10000, n%10000)}
	}},
	{"mariadb", func(h *host) (scale.Store, map[string]string) {
		s := servers.MariaDB(h, servers.MariaDBOptions{})
		n := s.Value(h, "SELECT CAST(SUBSTRING_INDEX(VERSION(), '.', 1) AS SIGNED) * 100 + CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(VERSION(), '.', 2), '.', -1) AS SIGNED)")
		return serverStore(s.URL("holdfast", ""), "the tables' files", func() (float64, error) {
			return float64(s.Value(h, "SELECT CAST(SUM(FILE_SIZE) AS SIGNED) FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME LIKE 'locks/%'")), nil
		}, s.PID()), map[string]string{"mariadb": fmt.Sprintf("%d.%d", n/100, n%100)}
	}},
}

func serverStore(url, kept string, bytes func() (float64, error), pid int) scale.Store {
	return scale.Store{URL: url, Kept: kept, Bytes: bytes, CPU: server{pids: []int{pid}}.CPU, Pids: []int{pid}}
}

// measureScale measures what grows with what on the stores, and writes a file for each.
func (o *options) measureScale(ctx context.Context) error {
	names := make([]string, 0, len(scaleStages))
	for _, s := range scaleStages {
		names = append(names, s.name)
	}
	stores := o.stores
	if len(stores) == 0 {
		stores = names
	}
	for _, name := range stores {
		i := slices.Index(names, name)
		if i < 0 {
			return fmt.Errorf("scale knows no store %q, but %s", name, strings.Join(names, ", "))
		}
		if err := os.MkdirAll(o.out, 0o777); err != nil {
			return err
		}
		err := withHost(func(h *host) error {
			store, versions := scaleStages[i].set(h)
			store.Name = name
			c := scale.Defaults()
			c.Only = o.scenarios
			if o.quick {
				c.Names, c.Holds, c.Waiters, c.Clients = c.Names[:2], c.Holds[:2], c.Waiters[:2], c.Clients[:1]
			}
			c.Limit, c.Progress = o.limit, func(s string) { fmt.Println(time.Now().Format(time.TimeOnly), s) }
			r, err := scale.Run(ctx, store, c, anylock.OpenDriver)
			if r == nil {
				return err
			}
			r.Machine, r.Versions = bench.Machine(), versions
			b, jsonErr := json.MarshalIndent(r, "", " ")
			return errors.Join(err, jsonErr, os.WriteFile(filepath.Join(o.out, name+".json"), append(b, '\n'), 0o666))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
