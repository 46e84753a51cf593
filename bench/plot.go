package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
)

// plot is a figure of several scenarios, a line for each implementation.
type plot struct {
	file, title, x string
	store          string
	scenarios      []string // along x
	labels         []string // of them
	figure         string
	floor          float64 // lowest value shown; the scale is logarithmic
}

var plots = []plot{
	{"redis-requests.svg", "Redis: commands per acquisition, lock held for 1 ms", "clients, in 4 processes", "redis",
		[]string{"clients-2-1ms", "clients-8-1ms", "clients-64-1ms"}, []string{"2", "8", "64"}, "requests", 1},
	{"redis-handoff.svg", "Redis: Unlock called → next holder's Lock returned, p50 in µs, lock held for 1 ms", "clients, in 4 processes", "redis",
		[]string{"clients-2-1ms", "clients-8-1ms", "clients-64-1ms"}, []string{"2", "8", "64"}, "handoff_p50_us", 50},
	{"redis-wait.svg", "Redis: longest wait in ms, lock held for 1 ms", "clients, in 4 processes", "redis",
		[]string{"clients-2-1ms", "clients-8-1ms", "clients-64-1ms"}, []string{"2", "8", "64"}, "wait_max_ms", 1},
	{"redis-process.svg", "Redis: acquisitions a second of one lock in one process", "goroutines", "redis",
		[]string{"process-2", "process-16", "process-100", "process-1000"}, []string{"2", "16", "100", "1000"}, "per_s", 10},
	{"etcd-rate.svg", "etcd: acquisitions a second of one lock", "clients, in up to 4 processes", "etcd",
		[]string{"clients-2", "clients-8", "clients-64"}, []string{"2", "8", "64"}, "per_s", 10},
	{"zookeeper-rate.svg", "ZooKeeper: acquisitions a second of one lock", "clients, in up to 4 processes", "zookeeper",
		[]string{"clients-2", "clients-8", "clients-64"}, []string{"2", "8", "64"}, "per_s", 10},
}

// colours of the lines: one has the same in every plot, and no other has it.
var colours = map[string]string{
	bench.Holdfast:  "#1f6feb",
	"redsync, 5 ms": "#d1242f", "redsync, defaults": "#8250df", "redislock, 5 ms": "#9a6700", "redislock, 100 ms": "#bf3989",
	"rueidislock, 1 key, NOLOOP": "#1a7f37", "rueidislock, defaults": "#57606a",
	etcdMutex: "#d1242f", "zk.Lock": "#d1242f",
	leastOfAll: "#0a7ea4", "limit: BLPOP": "#7d4e00", "limit: PUBLISH in a ring": "#24292f",
}

func colourOf(name string) string {
	if c := colours[name]; c != "" {
		return c
	}
	return "#24292f"
}

const (
	plotWidth, plotHeight = 860, 340
	left, right           = 70.0, 560.0 // of the lines
	top, bottom           = 50.0, 280.0
)

// line is one implementation in a plot; points of scenarios it was not in are
// NaN.
type line struct {
	name, role string
	points     []bench.Spread
}

// draw makes the picture.
func (p plot) draw(all results) ([]byte, error) {
	lines, err := p.lines(all)
	if err != nil {
		return nil, err
	}
	low, high := math.Inf(1), p.floor*10
	for _, l := range lines {
		for _, s := range l.points {
			if s.Median > 0 {
				low, high = min(low, max(s.Min, p.floor)), max(high, s.Max)
			}
		}
	}
	from, to := math.Floor(math.Log10(min(low, high))), math.Ceil(math.Log10(high))
	y := func(v float64) float64 {
		at := (math.Log10(max(v, math.Pow(10, from))) - from) / (to - from)
		return bottom - at*(bottom-top)
	}
	x := func(i int) float64 {
		return left + (right-left)*(float64(i)+0.5)/float64(len(p.scenarios))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#333">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<text x="20" y="30" font-size="13">%s</text>`+"\n", html.EscapeString(p.title))
	for d := from; d <= to; d++ {
		at := y(math.Pow(10, d))
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, at, right, left-6, at+4, decade(d))
	}
	for i, label := range p.labels {
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", x(i), bottom+18, label)
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">%s</text>`+"\n", (left+right)/2, bottom+38, p.x)
	for n, l := range lines {
		colour, dash, width := colourOf(l.name), "", 1.5
		switch l.role {
		case bench.RoleLimit:
			dash = ` stroke-dasharray="4 3"`
		case bench.RoleHoldfast:
			width = 3
		}
		var path string
		move := "M"
		for i, s := range l.points {
			if !(s.Median > 0) {
				move = "M"
				continue
			}
			path += fmt.Sprintf("%s%.1f %.1f", move, x(i), y(s.Median))
			move = "L"
			fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="%s" stroke-opacity=".4" stroke-width="5"/>`+"\n", x(i), y(s.Min), y(s.Max), colour)
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(i), y(s.Median), colour)
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="%g"%s/>`+"\n", path, colour, width, dash)
		at := top + 10 + float64(n)*18
		fmt.Fprintf(&b, `<path d="M%g %.1fh20" stroke="%s" stroke-width="2"%s/><text x="%g" y="%.1f">%s</text>`+"\n",
			right+20, at, colour, dash, right+46, at+4, html.EscapeString(l.name))
	}
	b.WriteString("</svg>\n")
	return b.Bytes(), nil
}

func decade(d float64) string {
	if d >= 3 && d < 6 {
		return fmt.Sprintf("%.0f k", math.Pow(10, d-3))
	}
	if d >= 6 {
		return fmt.Sprintf("%.0f M", math.Pow(10, d-6))
	}
	return fmt.Sprintf("%g", math.Pow(10, d))
}

// lines collects the points, Holdfast's first.
func (p plot) lines(all results) ([]line, error) {
	var ls []line
	for i, s := range p.scenarios {
		r := all[p.store+" "+s]
		if r == nil {
			return nil, fmt.Errorf("there are no results of %s, %s", p.store, s)
		}
		for _, row := range r.Rows {
			f, ok := row.Figures[p.figure]
			if !ok {
				continue
			}
			at := slices.IndexFunc(ls, func(l line) bool { return l.name == row.Implementation })
			if at < 0 {
				at = len(ls)
				ls = append(ls, line{row.Implementation, row.Role, make([]bench.Spread, len(p.scenarios))})
			}
			ls[at].points[i] = f
		}
	}
	slices.SortStableFunc(ls, func(a, b line) int { return rank(a.role) - rank(b.role) })
	return ls, nil
}
