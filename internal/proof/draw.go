package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"
)

// Sizes of a picture, in pixels.
const (
	stepWidth = 190
	laneWidth = 150
	rowHeight = 40
	headRow   = 30
	lineSpace = 14
	lineChars = 24 // that fit a lane
)

// draw returns the picture of a counterexample: a row for each state, a column for
// each client and server. A client that holds has a bar; what a step has changed is
// in bold type.
func draw(s *Story) []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	width := stepWidth + laneWidth*len(s.Lanes)
	height := headRow + rowHeight*len(s.Steps) + 4
	p(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, width, height, width, height)
	p(`<title>%s</title>`, html.EscapeString(fmt.Sprintf("Counterexample to %s in %s", s.Property, s.Config)))
	p(`<rect width="%d" height="%d" fill="#ffffff"/>`, width, height)
	for n, lane := range s.Lanes {
		x := stepWidth + laneWidth*n
		p(`<text x="%d" y="20" text-anchor="middle" font-weight="bold">%s</text>`, x+laneWidth/2, html.EscapeString(lane))
		p(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#bbbbbb"/>`, x, headRow, x, height-4)
	}
	for i, step := range s.Steps {
		y := headRow + rowHeight*i
		p(`<line x1="0" y1="%d" x2="%d" y2="%d" stroke="#dddddd"/>`, y, width, y)
		text(&b, 8, y, fmt.Sprintf("%d  %s", i, s.phrase(i)), "start", i == len(s.Steps)-1, stepWidth/7)
		for n, shows := range step.Shows {
			x := stepWidth + laneWidth*n
			if colour := barOf(s, i, n); colour != "" {
				p(`<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`, x+6, y, laneWidth-12, rowHeight, colour)
			}
			changed := i > 0 && s.Steps[i-1].Shows[n] != shows
			text(&b, x+laneWidth/2, y, shows, "middle", changed, lineChars)
		}
	}
	p(`</svg>`)
	return b.Bytes()
}

// barOf returns the colour of the bar of lane n in state i: of a client that holds,
// and another one where two do.
func barOf(s *Story, i, n int) string {
	if !holds(s, i, n) {
		return ""
	}
	for other := range s.Lanes {
		if other != n && holds(s, i, other) {
			return "#f4b6a6"
		}
	}
	return "#bfe0c4"
}

func holds(s *Story, i, n int) bool {
	return strings.HasPrefix(s.Lanes[n], "client") && strings.Contains(s.Steps[i].Shows[n]+" ", "holds")
}

// text writes the lines of shows, each of at most so many characters, into a row.
func text(b *bytes.Buffer, x, y int, shows, anchor string, bold bool, chars int) {
	if shows == "-" {
		return
	}
	weight := ""
	if bold {
		weight = ` font-weight="bold"`
	}
	lines := wrap(shows, chars)
	top := y + rowHeight/2 + 4 - lineSpace*(len(lines)-1)/2
	for i, line := range lines {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s"%s>%s</text>`+"\n", x, top+lineSpace*i, anchor, weight, html.EscapeString(line))
	}
}

// wrap cuts a text at each "|", and at spaces into lines of at most so many characters.
func wrap(s string, chars int) (lines []string) {
	for _, part := range strings.Split(s, "|") {
		line := ""
		for _, word := range strings.Fields(part) {
			if line != "" && len(line)+1+len(word) > chars {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		lines = append(lines, line)
	}
	return lines
}
