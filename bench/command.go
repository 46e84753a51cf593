package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// commandScenario is the scenario of short commands under a lock, `run x -- true`.
const commandScenario = "command"

// commandTurns is the number of times that a run starts each command.
const commandTurns = 40

// commandStages start the stores whose commands are compared.
var commandStages = []struct {
	name string
	set  func(h *host) (url string, peers []competitor, versions map[string]string)
}{
	{"redis", func(h *host) (string, []competitor, map[string]string) {
		s := servers.Redis(h, servers.RedisOptions{})
		return s.URL(""), nil, map[string]string{"redis": s.Info(h, "server", "redis_version")}
	}},
	{"etcd", func(h *host) (string, []competitor, map[string]string) {
		s := servers.Etcd(h, servers.EtcdOptions{})
		release := string(servers.EtcdNewest)
		etcdctl := s.Ctl(h, "lock", "x", "true")
		return s.URL(""), []competitor{{"etcdctl lock", bench.RolePeer, release, etcdctl.Args}}, map[string]string{"etcd": release}
	}},
	{"sqlite", func(h *host) (string, []competitor, map[string]string) {
		return "sqlite:" + filepath.Join(h.TempDir(), "locks.db"), nil, map[string]string{"sqlite": version("modernc.org/sqlite")}
	}},
}

// competitor is a command that is started again and again.
type competitor struct {
	name, role, version string
	args                []string
}

// measureCommands measures what a short command under a lock costs on some stores, and
// writes a file for each: the processor time of all processes that a command starts and
// waits for, and the time until it has ended.
func (o *options) measureCommands(ctx context.Context) error {
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return err
	}
	return withHost(func(h *host) error {
		holdfast := filepath.Join(h.TempDir(), "holdfast")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", holdfast, "./cmd/holdfast") // as a release has it
		build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0", "GOWORK=")
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w: %s", err, text)
		}
		for _, s := range commandStages {
			url, peers, versions := s.set(h)
			all := append([]competitor{{bench.Holdfast, bench.RoleHoldfast, "", []string{holdfast, "run", "--store", url, "x", "--", "true"}}}, peers...)
			all = append(all, competitor{"limit: holdfast version", bench.RoleLimit, "", []string{holdfast, "version"}},
				competitor{"limit: true", bench.RoleLimit, "", []string{"true"}})
			r, err := compareCommands(ctx, s.name, all, o.runs)
			if err != nil {
				return err
			}
			r.Versions = versions
			if err := save(filepath.Join(o.out, s.name+"-"+commandScenario+".json"), r); err != nil {
				return err
			}
			printReport(r)
		}
		return nil
	})
}

// compareCommands starts commands in turns.
func compareCommands(ctx context.Context, store string, all []competitor, runs int) (*bench.Report, error) {
	r := &bench.Report{Began: time.Now(), Machine: bench.Machine(), Go: runtime.Version(), Runs: runs}
	for _, c := range all {
		r.Rows = append(r.Rows, bench.Row{Scenario: commandScenario, Title: "a command that does nothing", Store: store, Implementation: c.name, Role: c.role, Version: c.version})
	}
	for run := range runs + 1 {
		cpu, wall := make([][]float64, len(all)), make([][]float64, len(all))
		for range commandTurns {
			for i, c := range all {
				cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
				began := time.Now()
				if text, err := cmd.CombinedOutput(); err != nil {
					return nil, fmt.Errorf("%s on %s: %w: %s", c.name, store, err, text)
				}
				wall[i] = append(wall[i], milliseconds(time.Since(began)))
				cpu[i] = append(cpu[i], milliseconds(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()))
			}
		}
		if run == 0 {
			continue // it warmed up
		}
		for i := range r.Rows {
			r.Rows[i].Runs = append(r.Rows[i].Runs, bench.Figures{"cpu_ms": median(cpu[i]), "wall_ms": median(wall[i])})
		}
	}
	for i := range r.Rows {
		r.Rows[i].Figures = bench.SpreadOf(r.Rows[i].Runs)
	}
	r.Seconds = time.Since(r.Began).Seconds()
	return r, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
