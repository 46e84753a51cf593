package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// picture is the file of two drawings: a lease that ends after its holder died, and a
// queue of three with one hand-off.
const picture = "docs/timeline.svg"

// The scene of the first drawing, on a lock with the default lease.
const (
	lease   = 30 * time.Second
	renewed = lease / 3        // the only renewal
	joined  = 3 * time.Second  // the second machine asks for the lock
	died    = 14 * time.Second // the first machine's end
	claim   = renewed + lease - lease/100 - 20*time.Millisecond
)

// granted returns when the store grants the lock to the second machine.
func granted() time.Duration { return renewed + driver.Keep(lease) }

// Measures of both drawings, in pixels.
const (
	left, perSecond   = 120, 14
	first, second     = 70, 150 // top of each machine's bar
	thick, shownUntil = 26, 46 * time.Second
	leaseHeight       = 260
)

// at returns the x of a time.
func at(d time.Duration) float64 { return left + perSecond*d.Seconds() }

// drawing is the text of a drawing.
type drawing struct{ bytes.Buffer }

// line writes one element.
func (d *drawing) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// bar draws a bar with a text in it.
func (d *drawing) bar(y int, from, to float64, fill, text string) {
	d.line(`<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="3" fill="%s"/>`, from, y, to-from, thick, fill)
	d.line(`<text x="%.1f" y="%d">%s</text>`, from+8, y+17, text)
}

// The colors of bars.
const (
	holdsColor, waitsColor, idleColor = "#9ed3a5", "#f6e3a1", "#eaeef2"
)

// timelinePicture draws both scenes.
func timelinePicture() []byte {
	var d drawing
	d.line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 790 %d" font-family="sans-serif" font-size="12" fill="#24292f">`, leaseHeight+queueHeight)
	d.line(`<title>A lease that ends after its holder died, and a queue of three machines with one hand-off</title>`)
	d.line(`<rect width="790" height="%d" fill="#fff"/>`, leaseHeight+queueHeight)
	d.lease()
	d.queue()
	d.line(`</svg>`)
	return d.Bytes()
}

// lease draws the first scene: who holds, who waits, and which limits end a lease.
func (d *drawing) lease() {
	mark := func(at float64, top, bottom int, color string) {
		d.line(`<path d="M%.1f %dV%d" stroke="%s" stroke-width="2"/>`, at, top, bottom, color)
	}
	d.line(`<text x="20" y="30" font-size="14">Machine A dies while it holds a lock with a TTL of %v; machine B is next in line</text>`, lease)
	d.line(`<text x="20" y="%d">machine A</text><text x="20" y="%d">machine B</text>`, first+17, second+17)
	d.bar(first, at(0), at(died), holdsColor, "holds, and works")
	d.bar(first, at(died), at(granted()), idleColor, fmt.Sprintf("dead; the store keeps its lease for %v + 4 %%", lease))
	d.bar(second, at(joined), at(granted()), waitsColor, "waits in the queue")
	d.bar(second, at(granted()), at(shownUntil), holdsColor, "holds")
	mark(at(renewed), first-8, first+thick+8, "#1f6feb")
	d.line(`<text x="%.1f" y="%d" text-anchor="middle" fill="#1f6feb">renewal</text>`, at(renewed), first-12)
	mark(at(died), first-8, first+thick+8, "#cf222e")
	d.line(`<text x="%.1f" y="%d" fill="#cf222e">kill -9</text>`, at(died)+4, first-12)
	mark(at(claim), first-8, second+thick+8, "#8250df")
	d.line(`<text x="%.1f" y="%d" text-anchor="end" fill="#8250df">the claim ends 1 %% and 20 ms early: a living A that cannot renew stops by %.1f s</text>`,
		at(claim)-6, second-20, claim.Seconds())
	mark(at(granted()), first-8, second+thick+8, "#24292f")
	d.line(`<text x="%.1f" y="%d">%.1f s</text>`, at(granted())+4, second-20, granted().Seconds())
	for s := time.Duration(0); s <= shownUntil; s += 10 * time.Second {
		d.line(`<path d="M%.1f 205v6" stroke="#57606a"/><text x="%.1f" y="228" text-anchor="middle">%d s</text>`, at(s), at(s), int(s.Seconds()))
	}
	d.line(`<path d="M%.1f 208H%.1f" stroke="#57606a"/>`, at(0), at(shownUntil))
}
