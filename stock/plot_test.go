package stock

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// A panel is one of the two plots side by side.
type panel struct {
	title string
	of    func(*way) spreading
}

// plot draws the results. The left panel shows one machine, shared by servers
// and sellers; the right one shows the busiest server as if it had a processor
// of its own. Each line is a number of servers and goes through the best
// rounds; the bars below reach the middle rounds.
func plot(ways []*way) []byte {
	var out bytes.Buffer
	fmt.Fprintln(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 340" font-family="sans-serif" font-size="12" fill="#333">`)
	fmt.Fprintln(&out, `<rect width="860" height="340" fill="#fff"/>`)
	for i, p := range []panel{
		{"sales per second, servers and sellers on two shared cores", func(w *way) spreading { return spread(w.rates) }},
		{"sales per second of processor of the busiest server", func(w *way) spreading {
			c := spread(w.costs)
			return spreading{1e6 / c.most, 1e6 / c.mid, 1e6 / c.least}
		}},
	} {
		p.draw(&out, float64(60+430*i), ways)
	}
	fmt.Fprintln(&out, `</svg>`)
	return out.Bytes()
}

const (
	plotTop, plotHeight, plotWidth = 50.0, 220.0, 330.0
)

func (p panel) draw(out *bytes.Buffer, left float64, ways []*way) {
	top := 0.0
	for _, w := range ways {
		top = max(top, p.of(w).most)
	}
	step := math.Pow(10, math.Floor(math.Log10(top)))
	for top/step < 4 {
		step /= 2
	}
	top = math.Ceil(top/step) * step
	y := func(v float64) float64 { return plotTop + plotHeight*(1-v/top) }
	fmt.Fprintf(out, "<text x=\"%.0f\" y=\"30\" font-size=\"13\">%s</text>\n", left-40, p.title)
	for v := 0.0; v <= top; v += step {
		fmt.Fprintf(out, "<path d=\"M%.0f %.1fh%.0f\" stroke=\"#ddd\"/><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%.0f k</text>\n",
			left, y(v), plotWidth, left-6, y(v)+4, v/1000)
	}
	shards := []int{1, 2, 5, 16}
	x := func(n int) float64 {
		return left + 30 + float64(slices.Index(shards, n))*(plotWidth-60)/float64(len(shards)-1)
	}
	for _, n := range shards {
		fmt.Fprintf(out, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%d</text>\n", x(n), plotTop+plotHeight+18, n)
	}
	fmt.Fprintf(out, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">shards</text>\n", left+plotWidth/2, plotTop+plotHeight+36)
	key := left
	for _, line := range []struct {
		name, colour string
		servers      int
	}{{"1 server", "#1f6feb", 1}, {"3 servers", "#d1580d", 3}} {
		path := "M"
		for _, w := range slices.SortedFunc(slices.Values(ways), byShards) {
			if w.servers != line.servers || w.shards == 0 {
				continue
			}
			s := p.of(w)
			path += fmt.Sprintf("%.1f %.1f ", x(w.shards), y(s.most))
			fmt.Fprintf(out, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\" stroke-opacity=\".5\" stroke-width=\"5\"/>\n", x(w.shards), y(s.mid), y(s.most), line.colour)
		}
		fmt.Fprintf(out, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", path, line.colour)
		key = legend(out, key, line.name, line.colour, "")
	}
	for _, w := range ways {
		colour := map[string]string{"lock": "#8250df", "decrement": "#57606a"}[w.name]
		if w.shards != 0 {
			continue
		}
		fmt.Fprintf(out, "<path d=\"M%.0f %.1fh%.0f\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"5 4\"/>\n", left, y(p.of(w).most), plotWidth, colour)
		key = legend(out, key, map[string]string{"lock": "lock", "decrement": "one key, script"}[w.name], colour, ` stroke-dasharray="5 4"`)
	}
}

func legend(out *bytes.Buffer, x float64, name, colour, more string) float64 {
	fmt.Fprintf(out, "<path d=\"M%.0f 322h18\" stroke=\"%s\" stroke-width=\"2\"%s/><text x=\"%.0f\" y=\"326\">%s</text>\n", x, colour, more, x+22, name)
	return x + 40 + 6.5*float64(len(name))
}
