package scale

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// sockets returns how many sockets the server's processes have open, or 0 without a
// server.
func (r *run) sockets() (n int) {
	for _, pid := range r.below() {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		files, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range files {
			if target, err := os.Readlink(dir + "/" + f.Name()); err == nil && strings.HasPrefix(target, "socket:") {
				n++
			}
		}
	}
	return n
}

// resident returns the memory of the server's processes, each page that several of
// them share counted in parts, or 0 without a server.
func (r *run) resident() (bytes float64) {
	for _, pid := range r.below() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				kB, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				bytes += kB * 1024
			}
		}
	}
	return bytes
}

// below returns the server's processes and those that they have started.
func (r *run) below() (pids []int) {
	var add func(pid int)
	add = func(pid int) {
		pids = append(pids, pid)
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return
		}
		for _, task := range tasks {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
			if err != nil {
				continue
			}
			for _, child := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(child); err == nil {
					add(n)
				}
			}
		}
	}
	for _, pid := range r.store.Pids {
		add(pid)
	}
	return pids
}
