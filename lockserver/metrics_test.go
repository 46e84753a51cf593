package lockserver

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

var sample = regexp.MustCompile(`^([a-z_]+)(?:\{((?:[a-z_]+="[^"\\]*",?)+)\})? ([0-9.e+-]+)$`)

// samples returns the series of a page in the text format. Each belongs to the family
// before it, and comes once; buckets grow up to the count.
func samples(t *testing.T, page string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	family, kind, below := "", "", ""
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			family, kind, _ = strings.Cut(rest, " ")
			continue
		}
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("line %q", line)
		}
		suffix, own := strings.CutPrefix(m[1], family)
		switch {
		case !own, suffix != "" && (kind != "histogram" || !slices.Contains([]string{"_bucket", "_sum", "_count"}, suffix)):
			t.Errorf("%q stands in family %s", line, family)
		case suffix == "_count" && m[3] != below:
			t.Errorf("%q, and the last bucket has %s", line, below)
		}
		if suffix == "_bucket" {
			below = m[3]
		}
		key := m[1] + "{" + m[2] + "}"
		if _, twice := all[key]; twice {
			t.Errorf("%s comes twice", key)
		}
		all[key] = m[3]
	}
	return all
}

// TestMetricsCountRequestsAndLocks checks the series after requests of each kind, and
// that no label has anything that a client has sent.
func TestMetricsCountRequestsAndLocks(t *testing.T) {
	bubble(t, func(w *world) {
		m := NewMetrics()
		ops := Principal{Name: "ops-secret", Grants: []Grant{{May: []Right{RightRead, RightLock, RightBreak, RightMetrics}}}}
		m.Counter("program_total", "A counter of the program.", func() uint64 { return 7 })
		s := w.serverWith(w.client(holdfast.WithObserver(m.Observer())), Options{Auth: byHeader(ops), Metrics: m, Version: "v9"})
		a := as(s, "ops-secret")
		w.acquire(a, 1, "secret/a")
		w.want("wait", w.acquire(a, 2, "secret/a", "wait_ms", "10"), 202)
		w.want("try", w.acquire(a, 3, "secret/a", "try", "true"), 409)
		w.acquire(a, 4, "secret/b", "kind", "write")
		w.release(a, 4, "secret/b")
		for i := range 100 {
			w.get(a, fmt.Sprintf("/secret-%d", i))
		}
		w.get(s, "/v1/server")
		r := w.get(a, "/metrics")
		if r.status != http.StatusOK || r.header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
			t.Fatalf("%d %v", r.status, r.header)
		}
		for _, bad := range []string{"secret", id(1), "0123456789abcdef", "127.0.0.1"} {
			if strings.Contains(r.raw, bad) {
				t.Errorf("the metrics have %q", bad)
			}
		}
		got := samples(t, r.raw)
		for series, want := range map[string]string{
			`holdfast_server_info{version="v9"}`: "1",
			`holdfast_server_holds{}`:            "2",
			`holdfast_server_waits{}`:            "1",
			`holdfast_server_draining{}`:         "0",
			`holdfast_server_viewers{}`:          "0",
			`holdfast_server_requests_total{endpoint="POST /v1/acquire",status="202",code=""}`:                                                                     "1",
			`holdfast_server_requests_total{endpoint="POST /v1/acquire",status="409",code="held"}`:                                                                 "1",
			`holdfast_server_requests_total{endpoint="other",status="404",code="bad_request"}`:                                                                     "100",
			`holdfast_server_request_duration_seconds_count{endpoint="POST /v1/acquire"}`:                                                                          "4",
			`holdfast_server_holds_total{event="grant",reason=""}`:                                                                                                 "2",
			`holdfast_server_holds_total{event="release",reason=""}`:                                                                                               "1",
			`holdfast_server_denied_total{code="unauthenticated"}`:                                                                                                 "1",
			`holdfast_lock_count{holdfast_store_scheme="memory",holdfast_lock_kind="mutex",holdfast_lock_state="held"}`:                                            "1",
			`holdfast_lock_count{holdfast_store_scheme="memory",holdfast_lock_kind="mutex",holdfast_lock_state="waiting"}`:                                         "1",
			`holdfast_lock_wait_duration_seconds_count{holdfast_store_scheme="memory",holdfast_lock_kind="mutex",holdfast_lock_outcome="held",error_type=""}`:      "1",
			`holdfast_lock_hold_duration_seconds_count{holdfast_store_scheme="memory",holdfast_lock_kind="writer",holdfast_lock_outcome="released",error_type=""}`: "1",
			`program_total{}`: "7",
		} {
			if got[series] != want {
				t.Errorf("%s is %q, want %s", series, got[series], want)
			}
		}
		if t.Failed() {
			t.Log(r.raw)
		}
	})
}

// TestMetricsNeedTheRight checks who may see the metrics: everybody of a server without
// Auth, and principals with the right to metrics of all names.
func TestMetricsNeedTheRight(t *testing.T) {
	bubble(t, func(w *world) {
		w.want("local", w.get(w.server(), "/metrics"), 200)
		denied := 0
		s := w.serverWith(w.client(), Options{
			Auth: byHeader(
				Principal{Name: "all", Grants: []Grant{{May: []Right{RightRead, RightLock, RightBreak}}}},
				Principal{Name: "part", Grants: []Grant{{Prefix: "a/", May: []Right{RightMetrics}}}},
				Principal{Name: "prometheus", Grants: []Grant{{May: []Right{RightMetrics}}}}),
			Events: Events{Denied: func(DeniedInfo) { denied++ }},
		})
		w.want("none", w.get(s, "/metrics"), 401, "code", "unauthenticated")
		w.want("all", w.get(as(s, "all"), "/metrics"), 403, "code", "forbidden")
		w.want("part", w.get(as(s, "part"), "/metrics"), 403, "code", "forbidden")
		w.want("prometheus", w.get(as(s, "prometheus"), "/metrics"), 200)
		w.want("its locks", w.get(as(s, "prometheus"), "/v1/lock?name=a"), 403, "code", "forbidden")
		if denied != 4 {
			t.Errorf("%d refusals in the events, want 4", denied)
		}
	})
}

// TestMetricsBelongToOneServer checks that New refuses metrics that are in use: gauges
// of two servers would be one's.
func TestMetricsBelongToOneServer(t *testing.T) {
	bubble(t, func(w *world) {
		m := NewMetrics()
		w.serverWith(w.client(), Options{Metrics: m})
		if s, err := New(w.client(), Options{Metrics: m}); err == nil || s != nil {
			t.Errorf("a second server: %v, %v", s, err)
		}
	})
}
