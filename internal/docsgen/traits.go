package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// store is a column of the table: the name that readers use, and the store's
// Traits.
type store struct {
	name   string
	traits driver.Traits
}

// promises are the rows of the table, in the order in which a reader chooses.
var promises = []struct {
	title string
	cell  func(driver.Traits) string
}{
	{"URL", func(t driver.Traits) string { return "`" + t.Scheme + ":`" }},
	{"fencing tokens", func(t driver.Traits) string { return yes(t.Fencing) }},
	{"read/write locks, semaphores", func(t driver.Traits) string { return yes(t.Shared) }},
	{"named owners across processes", func(t driver.Traits) string { return yes(t.Owner) }},
	{"strictly first in, first out", func(t driver.Traits) string { return yes(t.Fair) }},
	{"a release wakes the next waiter", func(t driver.Traits) string {
		if t.PushLocal {
			return "same machine"
		}
		return yes(t.Push)
	}},
	{"`Once`: once for each slot of time", func(t driver.Traits) string { return yes(t.Marks) }},
	{"holds survive a restart of the store", func(t driver.Traits) string { return promised(t.SurvivesRestart) }},
	{"holds survive the loss of a server", func(t driver.Traits) string { return promised(t.SurvivesFailover) }},
	{"shortest TTL", func(t driver.Traits) string { return span(t.MinTTL) }},
	{"longest TTL", func(t driver.Traits) string { return span(t.MaxTTL) }},
	{"expiry is late by at most", func(t driver.Traits) string { return span(t.Granularity) }},
}

// traitsTable returns a table with a column for each store and a row for each
// promise.
func traitsTable(stores []store) string {
	var b strings.Builder
	b.WriteString("|  |")
	for _, s := range stores {
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(stores)) + "\n")
	for _, p := range promises {
		fmt.Fprintf(&b, "| %s |", p.title)
		for _, s := range stores {
			fmt.Fprintf(&b, " %s |", p.cell(s.traits))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// promised returns the cell of a trait that also depends on the configuration
// of the store: without a promise, the trait may still hold.
func promised(b bool) string {
	if b {
		return "yes"
	}
	return "not promised"
}

// span formats a duration for people: in whole years, days, hours or minutes,
// or else in seconds, milliseconds or microseconds, with decimals.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	for _, u := range []struct {
		unit      time.Duration
		one, many string
	}{
		{365 * day, "year", "years"}, {day, "day", "days"}, {time.Hour, "h", "h"}, {time.Minute, "min", "min"},
	} {
		switch {
		case d < u.unit || d%u.unit != 0:
		case d == u.unit:
			return "1 " + u.one
		default:
			return fmt.Sprintf("%d %s", d/u.unit, u.many)
		}
	}
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= u.unit {
			return strconv.FormatFloat(float64(d)/float64(u.unit), 'f', -1, 64) + " " + u.name
		}
	}
	return strconv.Itoa(int(d))
}
