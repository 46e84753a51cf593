package handover

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"time"
)

// Measures of the picture, in pixels.
const (
	width       = 860
	margin      = 16
	gutter      = 92 // of a terminal, for the times of its lines
	lineHeight  = 20
	titleHeight = 30
	barHeight   = 22
)

// Picture draws the recording: both terminals with the time of each line, and one bar
// for each terminal along the same time.
func (r *Recording) Picture() ([]byte, error) {
	f, err := r.facts()
	if err != nil {
		return nil, err
	}
	p := &drawing{end: r.Terminals[1].last().Seconds()}
	p.text(margin, 26, `font-size="15" font-weight="600"`, "kill -9 the holder: the next in line holds when the lease has ended")
	y := 42
	first, second := &r.Terminals[0], &r.Terminals[1]
	y = p.terminal(y, "terminal 1", first, Line{At: r.Killed, Text: r.Kill + ", from a third terminal"})
	y = p.terminal(y+12, "terminal 2", second, Line{})
	y += 46
	top := y
	p.bar(y, f.held, r.Killed, "#9ed3a5", "holds")
	p.bar(y, r.Killed, f.granted, "#eaeef2", "dead; its lease runs out")
	p.name(y, "terminal 1")
	y += barHeight + 10
	p.bar(y, f.waited, f.granted, "#f6e3a1", "waits in the queue")
	p.bar(y, f.granted, second.last(), "#9ed3a5", "holds")
	p.name(y, "terminal 2")
	y += barHeight
	p.mark(r.Killed, top, top+barHeight, "#cf222e", fmt.Sprintf("kill -9 at %s", seconds(r.Killed)))
	p.mark(f.granted, top, y, "#1a7f37", fmt.Sprintf("granted at %s", seconds(f.granted)))
	y = p.axis(y + 14)
	p.text(margin, y+42, `fill="#57606a" font-size="12"`, fmt.Sprintf("Recorded on %s on %s (%s); docs/handover.json has all that was printed.",
		r.Recorded, r.Store, strings.TrimPrefix(r.Version, "holdfast (devel), ")))
	return p.file(y + 56), nil
}

func seconds(d Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// span returns a time, or from when to when.
func span(from, until Duration) string {
	if until == 0 {
		return seconds(from)
	}
	return fmt.Sprintf("%.1f–%s", from.Seconds(), seconds(until))
}

// drawing is a picture in SVG that grows.
type drawing struct {
	b   bytes.Buffer
	end float64 // of the time axis, in seconds
}

func (p *drawing) add(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// text adds a text, with the attributes of its element.
func (p *drawing) text(x float64, y int, attributes, text string) {
	var escaped bytes.Buffer
	_ = xml.EscapeText(&escaped, []byte(text)) // to memory
	p.add(`<text x="%.1f" y="%d" xml:space="preserve" %s>%s</text>`, x, y, attributes, &escaped)
}

// terminal draws a window, and returns its lower edge. The kill is shown among its
// lines where it has a time.
func (p *drawing) terminal(y int, title string, t *Terminal, kill Line) int {
	lines := t.Screen()
	height := titleHeight + (len(lines)+1)*lineHeight + 14
	if kill.At > 0 {
		height += lineHeight
	}
	p.add(`<rect x="%d" y="%d" width="%d" height="%d" rx="8" fill="#0d1117"/>`, margin, y, width-2*margin, height)
	p.add(`<path d="M%d %dh%d" stroke="#30363d"/>`, margin, y+titleHeight, width-2*margin)
	for i, color := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		p.add(`<circle cx="%d" cy="%d" r="5" fill="%s"/>`, margin+18+16*i, y+titleHeight/2, color)
	}
	p.text(width/2, y+20, `fill="#8b949e" font-size="12" text-anchor="middle"`, title)
	at := y + titleHeight + lineHeight
	row := func(when, until Duration, color, text string) {
		p.text(margin+gutter-8, at, `class="t" fill="#6e7681" text-anchor="end"`, span(when, until))
		p.text(margin+gutter+8, at, fmt.Sprintf(`class="m" fill="%s"`, color), text)
		at += lineHeight
	}
	row(t.Began, 0, "#e6edf3", "$ "+t.Typed)
	for _, l := range lines {
		if kill.At > 0 && l.At >= kill.At {
			row(kill.At, 0, "#ff7b72", "# "+kill.Text)
			kill.At = 0
		}
		color := "#e6edf3"
		switch {
		case l.Until > 0:
			color = "#e3b341"
		case strings.HasPrefix(l.Text, "backup: "):
			color = "#7ee787"
		}
		row(l.At, l.Until, color, l.Text)
	}
	return y + height
}

// left and right are the ends of the time axis.
const (
	left  = 110
	right = width - margin - 14
)

// x returns the place of a time.
func (p *drawing) x(d Duration) float64 { return left + (right-left)*d.Seconds()/p.end }

func (p *drawing) name(y int, text string) { p.text(margin, y+16, `font-size="13"`, text) }

func (p *drawing) bar(y int, from, to Duration, fill, text string) {
	p.add(`<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="3" fill="%s"/>`, p.x(from), y, p.x(to)-p.x(from), barHeight, fill)
	p.text(p.x(from)+8, y+16, `font-size="12"`, text)
}

// mark draws a line across the bars, with a text above them.
func (p *drawing) mark(d Duration, top, bottom int, color, text string) {
	p.add(`<path d="M%.1f %dV%d" stroke="%s" stroke-width="2"/>`, p.x(d), top-8, bottom+6, color)
	p.text(p.x(d), top-14, fmt.Sprintf(`font-size="12" font-weight="600" text-anchor="middle" fill="%s"`, color), text)
}

// axis draws the axis of time, and returns its y.
func (p *drawing) axis(y int) int {
	p.add(`<path d="M%d %dh%d" stroke="#57606a"/>`, left, y, right-left)
	for s := 0; float64(s) <= p.end; s += 5 {
		at := p.x(Duration(time.Duration(s) * time.Second))
		p.add(`<path d="M%.1f %dv5" stroke="#57606a"/>`, at, y)
		p.text(at, y+19, `fill="#57606a" font-size="11" text-anchor="middle"`, fmt.Sprintf("%d s", s))
	}
	return y
}

// file returns the picture, with a background of its own for pages that are dark.
func (p *drawing) file(height int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" fill="#24292f">
<title>Two terminals: the holder of a lock is killed, and the next in line holds when the lease has ended</title>
<style>.m{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:13px}.t{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:11px}</style>
<rect width="%d" height="%d" rx="6" fill="#fff"/>
`, width, height, width, height)
	b.Write(p.b.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}
