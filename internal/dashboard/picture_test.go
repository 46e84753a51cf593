package dashboard

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

var draw = flag.Bool("draw", false, "write the series of the panels, and their picture, anew")

// The files of the picture: the series of the panels as a scene had them, and the
// drawing of these.
const (
	seriesFile  = "testdata/series.json"
	pictureFile = "../../docs/plots/dashboard.svg"
)

// curve is a series of a panel, with a value for each step of the scene. A nil is no
// sample.
type curve struct {
	Name   string
	Values []*float64
}

// step is the time between two values of a curve.
const step = 2 * interval

// TestPicture checks that the picture has the panels of the dashboard, and the series
// of a scene. With -draw it plays the scene anew and writes both.
func TestPicture(t *testing.T) {
	b := readBoard(t)
	if *draw {
		writeSeries(t, b)
	}
	data, err := os.ReadFile(seriesFile)
	if err != nil {
		t.Fatal(err)
	}
	var curves map[string][]curve
	if err := json.Unmarshal(data, &curves); err != nil {
		t.Fatal(err)
	}
	want := picture(b, curves)
	if *draw {
		if err := os.WriteFile(pictureFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(pictureFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is not the picture of %s: run go test -run TestPicture -draw", pictureFile, seriesFile)
	}
	for _, p := range b.Panels {
		if len(curves[p.Title]) == 0 {
			t.Errorf("%s has no series of panel %q", seriesFile, p.Title)
		}
	}
	if len(curves) != len(b.Panels) {
		t.Errorf("%s has %d panels, the dashboard %d", seriesFile, len(curves), len(b.Panels))
	}
}

// panelCurves returns the series of a panel, by their names.
func panelCurves(t *testing.T, p panel) (curves []curve) {
	t.Helper()
	d := scene(t)
	for _, target := range p.Targets {
		from := len(curves)
		for _, series := range d.evaluate(t, of(t, grafana.Replace(target.Expr), jobs[0])) {
			c := curve{Name: legend(target.LegendFormat, series.Metric), Values: make([]*float64, int(lasts/step))}
			for _, point := range series.Floats {
				at := time.Duration(point.T-d.first.UnixMilli()) * time.Millisecond
				if at%step == 0 {
					rounded, _ := strconv.ParseFloat(strconv.FormatFloat(point.F, 'g', 3, 64), 64)
					c.Values[at/step] = &rounded
				}
			}
			curves = append(curves, c)
		}
		slices.SortFunc(curves[from:], func(a, b curve) int { return strings.Compare(a.Name, b.Name) })
	}
	return curves
}

var placeholder = regexp.MustCompile(`{{(\w+)}}`)

// legend fills the labels of a series into a legend.
func legend(format string, l labels.Labels) string {
	return strings.TrimSpace(placeholder.ReplaceAllStringFunc(format, func(s string) string {
		return l.Get(placeholder.FindStringSubmatch(s)[1])
	}))
}

func writeSeries(t *testing.T, b board) {
	t.Helper()
	var text bytes.Buffer
	text.WriteString("{")
	for i, p := range b.Panels {
		for j, c := range panelCurves(t, p) {
			line, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case j > 0:
				text.WriteString(",\n")
			case i > 0:
				fmt.Fprintf(&text, "],\n%q: [\n", p.Title)
			default:
				fmt.Fprintf(&text, "\n%q: [\n", p.Title)
			}
			text.Write(line)
		}
	}
	text.WriteString("]\n}\n")
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(seriesFile, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// colours of the series of a panel.
var colours = []string{"#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#0a7ea4", "#bf3989", "#57606a"}

// Measures of the picture, in pixels.
const (
	panelWidth, panelHeight = 440, 230
	plotLeft, plotTop       = 52, 34
	plotWidth, plotHeight   = 360, 120
	legendTop, legendColumn = 192, 140
)

// picture draws the panels at their places in the dashboard.
func picture(b board, curves map[string][]curve) []byte {
	var out bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	rows := (len(b.Panels) + 1) / 2
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" fill="#24292f">`, 2*panelWidth, rows*panelHeight)
	p(`<title>The panels of docs/grafana/holdfast.json, over %d minutes with every fault</title>`, int(lasts.Minutes()))
	p(`<rect width="%d" height="%d" fill="#f6f8fa"/>`, 2*panelWidth, rows*panelHeight)
	for _, panel := range b.Panels {
		p(`<g transform="translate(%d %d)">`, panel.GridPos.X/12*panelWidth, panel.GridPos.Y/panel.GridPos.H*panelHeight)
		p(`<rect x="4" y="4" width="%d" height="%d" rx="3" fill="#fff" stroke="#d0d7de"/>`, panelWidth-8, panelHeight-8)
		p(`<text x="14" y="22" font-size="12" font-weight="bold">%s</text>`, html.EscapeString(panel.Title))
		drawPanel(p, panel, curves[panel.Title])
		p(`</g>`)
	}
	p(`</svg>`)
	return out.Bytes()
}

func drawPanel(p func(string, ...any), panel panel, curves []curve) {
	top := 0.0
	for _, c := range curves {
		for _, v := range c.Values {
			if v != nil {
				top = max(top, *v)
			}
		}
	}
	top = above(top)
	p(`<g text-anchor="end">`)
	x := func(i int) float64 { return plotLeft + plotWidth*float64(i)*step.Minutes()/lasts.Minutes() }
	y := func(v float64) float64 { return plotTop + plotHeight*(1-v/top) }
	grid := func(v float64, unit string) {
		p(`<path d="M%d %.1fh%d" stroke="#eaeef2"/><text x="%d" y="%.1f">%.4g%s</text>`, plotLeft, y(v), plotWidth, plotLeft-4, y(v)+4, v, unit)
	}
	if panel.FieldConfig.Defaults.Unit == "s" { // a logarithmic scale, from 1 ms to 1000 s
		y = func(v float64) float64 { return plotTop + plotHeight*(3-math.Log10(max(v, .001)))/6 }
		for _, v := range []float64{.001, .01, .1, 1, 10, 100, 1000} {
			grid(v, " s")
		}
	} else {
		unit := map[string]string{"ops": " /s"}[panel.FieldConfig.Defaults.Unit]
		for i := range 5 {
			grid(top*float64(i)/4, unit)
		}
	}
	p(`</g>`)
	for minutes := 0; minutes <= int(lasts.Minutes()); minutes += 15 {
		p(`<text x="%.1f" y="%d" text-anchor="middle">%d min</text>`, x(0)+plotWidth*float64(minutes)/lasts.Minutes(), plotTop+plotHeight+16, minutes)
	}
	for n, c := range curves {
		var path strings.Builder
		move := "M"
		for i, v := range c.Values {
			if v == nil {
				move = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", move, x(i), y(*v))
			move = "L"
		}
		colour := colours[n%len(colours)]
		p(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, path.String(), colour)
		left, line := 14+legendColumn*(n%3), legendTop+14*(n/3)
		p(`<path d="M%d %dh12" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>`, left, line-4, colour, left+16, line, html.EscapeString(c.Name))
	}
}

// above returns a round number that is not less than v.
func above(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 4, 6, 8} {
		if v <= n*unit {
			return n * unit
		}
	}
	return 10 * unit
}
