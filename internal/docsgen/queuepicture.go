package main

import (
	"fmt"
	"strings"
	"time"
)

// message is one message of the second drawing.
type message struct {
	at      time.Duration
	machine int    // 0 is A
	what    string // of a request: join or leave; of a message of the store: push
	queue   string // the queue after it
}

// queueScene is the second drawing: three machines want one lock, and the first one
// releases it. It ends before the first renewal.
var queueScene = []message{
	{0, 0, "join", "A"},
	{2 * time.Second, 1, "join", "A B"},
	{4 * time.Second, 2, "join", "A B C"},
	{6 * time.Second, 0, "leave", "B C"},
	{6 * time.Second, 1, "push", "B C"},
}

// Measures of the second drawing, in pixels.
const (
	queueHeight    = 270
	queueTop       = leaseHeight + 60 // of the store's bar
	queueRow       = 48
	queuePerSecond = 70
	queueEnd       = 9 * time.Second
	pushDelay      = 900 * time.Millisecond // drawn, so that the push can be told from the release
)

// machineTop returns the y of a machine's bar.
func machineTop(machine int) int { return queueTop + queueRow*(machine+1) }

// queueAt returns the x of a time of the second drawing.
func queueAt(d time.Duration) float64 { return left + queuePerSecond*d.Seconds() }

// queue draws the second scene: what is sent, and the queue that the store keeps.
func (d *drawing) queue() {
	d.line(`<text x="20" y="%d" font-size="14">Three machines want one lock: each change is one message, and one machine is woken</text>`, queueTop-30)
	d.line(`<text x="20" y="%d">the store</text>`, queueTop+17)
	shift := func(m message) float64 { // where a message is drawn
		if m.what == "push" {
			return queueAt(m.at + pushDelay)
		}
		return queueAt(m.at)
	}
	began := map[int]float64{}
	for i, m := range queueScene {
		if m.what == "join" {
			began[m.machine] = queueAt(m.at)
			d.line(`<text x="20" y="%d">machine %c</text>`, machineTop(m.machine)+17, 'A'+rune(m.machine))
		}
		if m.what == "push" {
			continue
		}
		end := queueAt(queueEnd)
		for _, next := range queueScene[i+1:] {
			if next.what != "push" {
				end = queueAt(next.at)
				break
			}
		}
		holder, waiters, _ := strings.Cut(m.queue, " ")
		text := holder + " holds"
		if waiters != "" {
			text += "; " + strings.ReplaceAll(waiters, " ", ", ") + " wait"
			if len(waiters) == 1 {
				text += "s"
			}
		}
		d.bar(queueTop, queueAt(m.at)+1, end-1, idleColor, text)
	}
	released, pushed := queueScene[len(queueScene)-2], queueScene[len(queueScene)-1]
	d.bar(machineTop(0), began[0], shift(released), holdsColor, "holds, and works")
	d.bar(machineTop(1), began[1], shift(pushed), waitsColor, "waits")
	d.bar(machineTop(1), shift(pushed), queueAt(queueEnd), holdsColor, "holds")
	d.bar(machineTop(2), began[2], queueAt(queueEnd), waitsColor, "waits, and hears nothing of it")
	for _, m := range queueScene {
		from, to := machineTop(m.machine), queueTop+thick
		tip := 6
		if m.what == "push" {
			from, to, tip = to, from, -6
		}
		x := shift(m)
		d.line(`<path d="M%.1f %dV%dM%.1f %dl-4 %dm4 %dl4 %d" stroke="#1f6feb" stroke-width="1.5" fill="none"/>`, x, from, to, x, to, tip, -tip, tip)
		d.line(`<text x="%.1f" y="%d" fill="#1f6feb">%s</text>`, x+6, queueTop+thick+16, m.label())
	}
}

// label returns the words of a message.
func (m message) label() string {
	return map[string]string{"join": "Lock", "leave": "Unlock", "push": ""}[m.what] + map[bool]string{true: fmt.Sprintf("push to %c", 'A'+rune(m.machine))}[m.what == "push"]
}
