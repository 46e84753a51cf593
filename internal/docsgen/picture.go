package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// picture is the file of the drawing of a lease that ends after its holder died.
const picture = "docs/expiry.svg"

// The scene of the drawing, on a lock with the default lease.
const (
	lease   = 30 * time.Second
	renewed = lease / 3        // the only renewal
	joined  = 3 * time.Second  // the second machine asks for the lock
	died    = 14 * time.Second // the first machine's end
	claim   = renewed + lease - lease/100 - 20*time.Millisecond
)

// granted returns when the store grants the lock to the second machine.
func granted() time.Duration { return renewed + driver.Keep(lease) }

// Measures of the drawing, in pixels.
const (
	left, perSecond   = 120, 14
	first, second     = 70, 150 // top of each machine's bar
	thick, shownUntil = 26, 46 * time.Second
)

// at returns the x of a time.
func at(d time.Duration) float64 { return left + perSecond*d.Seconds() }

// expiryPicture draws the scene: who holds, who waits, and which limits end a lease.
func expiryPicture() []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	bar := func(y int, from, to time.Duration, fill, text string) {
		p(`<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="3" fill="%s"/>`, at(from), y, at(to)-at(from), thick, fill)
		p(`<text x="%.1f" y="%d">%s</text>`, at(from)+8, y+17, text)
	}
	mark := func(d time.Duration, top, bottom int, color string) {
		p(`<path d="M%.1f %dV%d" stroke="%s" stroke-width="2"/>`, at(d), top, bottom, color)
	}
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 790 260" font-family="sans-serif" font-size="12" fill="#24292f">`)
	p(`<title>A holder dies, and the next in line holds when its lease has ended</title>`)
	p(`<rect width="790" height="260" fill="#fff"/>`)
	p(`<text x="20" y="30" font-size="14">Machine A dies while it holds a lock with a lease of %v; machine B is next in line</text>`, lease)
	p(`<text x="20" y="%d">machine A</text><text x="20" y="%d">machine B</text>`, first+17, second+17)
	bar(first, 0, died, "#9ed3a5", "holds, and works")
	bar(first, died, granted(), "#eaeef2", "dead; the store keeps its lease")
	bar(second, joined, granted(), "#f6e3a1", "waits in the queue")
	bar(second, granted(), shownUntil, "#9ed3a5", "holds")
	mark(renewed, first-8, first+thick+8, "#1f6feb")
	p(`<text x="%.1f" y="%d" text-anchor="middle" fill="#1f6feb">renewal</text>`, at(renewed), first-12)
	mark(died, first-8, first+thick+8, "#cf222e")
	p(`<text x="%.1f" y="%d" fill="#cf222e">kill -9</text>`, at(died)+4, first-12)
	mark(claim, first-8, second+thick+8, "#8250df")
	p(`<text x="%.1f" y="%d" text-anchor="end" fill="#8250df">a living A that cannot renew stops by %.1f s</text>`, at(claim)-6, second-20, claim.Seconds())
	mark(granted(), first-8, second+thick+8, "#24292f")
	p(`<text x="%.1f" y="%d">%.1f s</text>`, at(granted())+4, second-20, granted().Seconds())
	for s := time.Duration(0); s <= shownUntil; s += 10 * time.Second {
		p(`<path d="M%.1f 205v6" stroke="#57606a"/><text x="%.1f" y="228" text-anchor="middle">%d s</text>`, at(s), at(s), int(s.Seconds()))
	}
	p(`<path d="M%.1f 208H%.1f" stroke="#57606a"/>`, at(0), at(shownUntil))
	p(`</svg>`)
	return b.Bytes()
}
