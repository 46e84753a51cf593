package handover

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestScreenKeepsLinesThatWereErased checks the lines of a terminal, also of one
// that was overwritten in place.
func TestScreenKeepsLinesThatWereErased(t *testing.T) {
	at := func(s int) Duration { return Duration(time.Duration(s) * time.Second) }
	term := Terminal{Output: []Chunk{
		{at(1), "a\r\n\rwait 9s" + eraseLine},
		{at(2), "\rwait 10s" + eraseLine},
		{at(3), "\r" + eraseLine + "b\r\nc"},
		{at(4), "d\rX"},
	}}
	want := []Line{{at(1), 0, "a"}, {at(1), at(3), "wait 10s"}, {at(3), 0, "b"}, {at(3), 0, "Xd"}}
	if got := term.Screen(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// played returns a recording of a scene that went as it should.
func played() *Recording {
	ms := func(n int) Duration { return Duration(time.Duration(n) * time.Millisecond) }
	return &Recording{TTL: ms(10000), Kill: "kill -9 7", Killed: ms(5000), Terminals: []Terminal{
		{Typed: "holdfast", Output: []Chunk{{ms(100), "backup: started, token 1\r\n"}}},
		{Typed: "holdfast", Output: []Chunk{
			{ms(2000), "\rholdfast: waiting for nightly for 1s, held by pid 7 on vm (backup)" + eraseLine},
			{ms(12000), "\r" + eraseLine + "backup: started, token 2\r\n"},
			{ms(20000), "backup: done\r\n"},
		}},
	}}
}

// TestParseRefusesOtherScenes checks that a recording in which the next in line did
// not follow a killed holder is refused.
func TestParseRefusesOtherScenes(t *testing.T) {
	for want, change := range map[string]func(r *Recording){
		"":               func(*Recording) {},
		"1 terminals":    func(r *Recording) { r.Terminals = r.Terminals[:1] },
		"out of order":   func(r *Recording) { r.Killed = Duration(13 * time.Second) },
		"token 1":        func(r *Recording) { r.Terminals[1].Output[1].Text = "\r" + eraseLine + "backup: started, token 1\r\n" },
		"pid 7":          func(r *Recording) { r.Kill = "kill -9 8" },
		"not finished":   func(r *Recording) { r.Terminals[0].Output[0].Text += "backup: done\r\n" },
		"later than":     func(r *Recording) { r.TTL = Duration(5 * time.Second) },
		"held at 0s":     func(r *Recording) { r.Terminals[0].Output = nil },
		"waited at 0s":   func(r *Recording) { r.Terminals[1].Output = r.Terminals[1].Output[1:] },
		"granted at 0s,": func(r *Recording) { r.Terminals[1].Output = r.Terminals[1].Output[:1] },
	} {
		r := played()
		change(r)
		data, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(data)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), strings.TrimSuffix(want, ",")) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestPictureHasWhatWasPrinted checks that the picture of the record is XML, and shows
// each line, the kill and both times.
func TestPictureHasWhatWasPrinted(t *testing.T) {
	data, err := os.ReadFile("../../../docs/handover.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := r.Picture()
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			shown = append(shown, string(text))
		}
	}
	f, err := r.facts()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"# " + r.Kill + ", from a third terminal", "kill -9 at " + seconds(r.Killed), "granted at " + seconds(f.granted)}
	for i := range r.Terminals {
		want = append(want, "$ "+r.Terminals[i].Typed)
		for _, l := range r.Terminals[i].Screen() {
			want = append(want, l.Text)
		}
	}
	for _, w := range want {
		if !slices.Contains(shown, w) {
			t.Errorf("the picture lacks %q; it has %q", w, shown)
		}
	}
}
