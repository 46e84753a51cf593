// Package handover records how a lock goes from a process that was killed to the
// next one in line, and draws the record.
//
// [Scene.Play] runs the command in two terminals and kills the first one's holder.
// The [Recording] has what both printed, and when. [Recording.Picture] draws it.
// internal/docsgen keeps both: docs/handover.json and docs/handover.svg.
package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Recording has the events of a scene. Its times are since the first command was
// typed.
type Recording struct {
	Recorded  string     `json:"recorded"` // the day
	Version   string     `json:"version"`  // of the command
	Store     string     `json:"store"`    // with its version
	TTL       Duration   `json:"ttl"`
	Killed    Duration   `json:"killed"`
	Kill      string     `json:"kill"` // the command that killed the holder
	Terminals []Terminal `json:"terminals"`
}

// Terminal has the command typed in one terminal, and the output.
type Terminal struct {
	Began  Duration `json:"began"`
	Typed  string   `json:"typed"`
	Output []Chunk  `json:"output"`
	Status int      `json:"status"` // of the command, by its shell
}

// Chunk is a piece of output, with its control characters.
type Chunk struct {
	At   Duration `json:"at"`
	Text string   `json:"text"`
}

// Duration is a time.Duration whose JSON is its text.
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler], in milliseconds.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).Round(time.Millisecond).String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Seconds returns d in seconds.
func (d Duration) Seconds() float64 { return time.Duration(d).Seconds() }

// Parse reads a recording from JSON. It refuses one in which the next in line did
// not follow a killed holder.
func Parse(data []byte) (*Recording, error) {
	r := new(Recording)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	_, err := r.facts()
	return r, err
}

// JSON returns the recording as a file.
func (r *Recording) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "\t")
	return append(data, '\n'), err
}

// Line is one line of a terminal. A line that was overwritten in place is kept with
// the last text that it had, and Until is then the time when it was erased.
type Line struct {
	At    Duration // of its first character
	Until Duration // zero for a line that stays
	Text  string
}

// last returns the time of the last output.
func (t *Terminal) last() Duration { return t.Output[len(t.Output)-1].At }

// Screen returns the lines that a terminal showed.
func (t *Terminal) Screen() []Line {
	var lines []Line
	var line Line
	var text []rune // of the line
	column := 0
	for _, c := range t.Output {
		for rest := c.Text; rest != ""; {
			if after, ok := strings.CutPrefix(rest, eraseLine); ok {
				rest = after
				text = text[:min(column, len(text))]
				if len(text) == 0 && line.Text != "" {
					line.Until = c.At
					lines, line = append(lines, line), Line{}
				}
				continue
			}
			char := []rune(rest)[0]
			rest = rest[len(string(char)):]
			switch char {
			case '\r':
				column = 0
				continue
			case '\n':
				lines, line, text, column = append(lines, line), Line{}, nil, 0
				continue
			}
			if len(text) == 0 {
				line.At = c.At
			}
			text = append(text[:min(column, len(text))], append([]rune{char}, text[min(column+1, len(text)):]...)...)
			column++
			line.Text = string(text)
		}
	}
	if line.Text != "" {
		lines = append(lines, line)
	}
	return lines
}

// eraseLine is the sequence that erases a line from the cursor on.
const eraseLine = "\x1b[K"

var (
	started  = regexp.MustCompile(`^backup: started, token (\d+)$`)
	waiting  = regexp.MustCompile(`^holdfast: waiting for \S+ for (\d+)s, held by (?:\S+ )*?pid (\d+) on `)
	finished = regexp.MustCompile(`^backup: done$`)
	killed   = regexp.MustCompile(`\bKilled\b`) // by the shell
	guarded  = regexp.MustCompile(`^holdfast: holdfast itself has ended`)
)

// facts are the times of a recording that its picture shows.
type facts struct {
	held    Duration // by the first terminal, from then on
	waited  Duration // by the second, from then on
	granted Duration // to the second
	tokens  [2]uint64
}

// facts finds them, and checks that a killed holder was followed by the next one.
func (r *Recording) facts() (facts, error) {
	var f facts
	if len(r.Terminals) != 2 {
		return f, fmt.Errorf("%d terminals, want 2", len(r.Terminals))
	}
	var pid string
	ends := 0
	for i := range r.Terminals {
		for _, l := range r.Terminals[i].Screen() {
			if m := started.FindStringSubmatch(l.Text); m != nil {
				*[]*Duration{&f.held, &f.granted}[i] = l.At
				f.tokens[i], _ = strconv.ParseUint(m[1], 10, 64)
			}
			if m := waiting.FindStringSubmatch(l.Text); m != nil && i == 1 {
				f.waited, pid = l.At, m[2]
			}
			if finished.MatchString(l.Text) {
				ends += i + 1
			}
		}
	}
	latest := r.Killed + r.TTL + r.TTL/20
	switch {
	case f.held == 0 || f.waited < f.held || r.Killed < f.waited || f.granted < r.Killed:
		return f, fmt.Errorf("held at %v, waited at %v, killed at %v, granted at %v: out of order",
			time.Duration(f.held), time.Duration(f.waited), time.Duration(r.Killed), time.Duration(f.granted))
	case f.tokens[1] <= f.tokens[0]:
		return f, fmt.Errorf("token %d after %d", f.tokens[1], f.tokens[0])
	case r.Kill != "kill -9 "+pid:
		return f, fmt.Errorf("%q, and pid %s held the lock", r.Kill, pid)
	case ends != 2:
		return f, errors.New("the work was not finished by the second terminal alone")
	case f.granted > latest:
		return f, fmt.Errorf("granted at %v, later than a lease and 5 %% after the kill", time.Duration(f.granted))
	}
	return f, nil
}
