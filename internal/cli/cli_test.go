//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// TestUsageErrorsNameTheMistake: one line that names the mistake, and where to read on.
func TestUsageErrorsNameTheMistake(t *testing.T) {
	for line, want := range map[string]string{
		"rnu":                                          `there is no command "rnu"; did you mean run? (see 'holdfast --help')`,
		"--bogus":                                      "unknown flag: --bogus (see 'holdfast --help')",
		"ls --bogus":                                   "unknown flag: --bogus (see 'holdfast ls --help')",
		"run":                                          "NAME and COMMAND are missing (see 'holdfast run --help')",
		"run a":                                        "the command is given after --, as in: holdfast run a -- COMMAND",
		"run a true":                                   "given after --",
		"run a --":                                     "COMMAND is missing after --",
		"run a b -- true":                              "one NAME is wanted before --, not 2",
		"run -- true":                                  "one NAME is wanted before --, not 0",
		"run --ttl 0s a -- true":                       "--ttl 0s is not positive",
		"run --ttl soon a -- true":                     "--ttl soon is not a duration, such as ",
		"run --wait -1s a -- true":                     "--wait -1s is negative",
		"run --wait 1s --no-wait a -- true":            "--wait and --no-wait cannot be given together",
		"run --slots 0 a -- true":                      "--slots 0",
		"run --slots -2 a -- true":                     "--slots -2",
		"run --slots 2 --shared a -- true":             "--shared and --slots cannot be given together",
		"run --shared --exclusive a -- true":           "--shared and --exclusive cannot be given together",
		"run --slots 2 --owner o a -- true":            "--slots and --owner cannot be given together",
		"run --max-hold -1s a -- true":                 "--max-hold -1s is below 1s",
		"run --lead --max-hold 1ns a -- true":          "--max-hold 1ns is below 1s",
		"run --max-hold 999ms a -- true":               "--max-hold 999ms is below 1s",
		"ls \xff/":                                     "the prefix of the names is not valid UTF-8",
		"watch a\xc3":                                  "the prefix of the names is not valid UTF-8",
		"run --grace 20s a -- true":                    "--grace 20s is not between 0 and half of the TTL, 15s",
		"run --ttl 1ns a -- true":                      "below this store's minimum",
		"run --note \x01 a -- true":                    "note contains a control character",
		"run --owner \x01 a -- true":                   "owner contains a control character",
		"run --ttl 5 a -- true":                        "--ttl 5 has no unit: write 5s for seconds, or 5m for minutes",
		"run --wait 1,5s a -- true":                    "--wait 1,5s is not a duration, such as 500ms",
		"run --slots many a -- true":                   "--slots many is not a number",
		"run --shared --slots 2 --exclusive a -- true": "--shared, --exclusive and --slots cannot be given together",
		"run --ttl 4s --grace 3s a -- true":            "--grace 3s is not between 0 and half of the TTL, 2s",
		"watch --interval 2":                           "--interval 2 has no unit",
		"torture --processes x":                        "--processes x is not a number",
		"show a b":                                     "one NAME is wanted, not 2 arguments",
	} {
		t.Run(line, func(t *testing.T) {
			r := holdfastHere(append([]string{"--store", "memory:"}, strings.Fields(line)...)...)
			r.want(t, exitUsage, "", want)
			if r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "holdfast: ") || !strings.Contains(r.err, "--help')\n") {
				t.Errorf("output %q, errors %q", r.out, r.err)
			}
			checkText(t, r.err)
			r = holdfastHere(append([]string{"--json", "--store", "memory:"}, strings.Fields(line)...)...)
			o := objects(t, r.err)
			if len(o) != 1 || o[0]["status"] != 64.0 || o[0]["by"] != "holdfast" || o[0]["reason"] != "usage" || r.out != "" {
				t.Errorf("as JSON: %+v", r)
			}
		})
	}
}

// TestHelpHasAllParts: every verb has all of its parts.
func TestHelpHasAllParts(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help"}} {
		holdfastHere(args...).want(t, exitOK, "holdfast run NAME -- COMMAND", "")
	}
	for _, c := range New().Commands() {
		if c.Hidden {
			continue
		}
		if c.Long == "" || c.Example == "" || c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s lacks a text", c.Name())
		}
		for text := range strings.Lines(c.Long + "\n" + c.Example) {
			if len(strings.TrimSuffix(text, "\n")) > 88 {
				t.Errorf("%s: the line %q is too wide", c.Name(), text)
			}
		}
		holdfastHere(c.Name(), "--help").want(t, exitOK, "Examples:", "")
	}
}

// TestFlagsOfExamplesExist: the flags in the examples exist.
func TestFlagsOfExamplesExist(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			for word := range strings.FieldsSeq(strings.Split(line, " -- ")[0]) {
				name, ok := strings.CutPrefix(word, "--")
				if ok && strings.Contains(line, "holdfast") && c.Flags().Lookup(name) == nil && c.Root().PersistentFlags().Lookup(name) == nil {
					t.Errorf("%s: %q uses --%s, which is not there", c.Name(), strings.TrimSpace(line), name)
				}
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(New())
}

func TestStatusOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{fmt.Errorf("wrapped: %w", usage("x")), 64},
		{&holdfast.StoreError{Op: "acquire", Err: driver.Errorf(driver.Refused, "x")}, 69},
		{&holdfast.LostError{}, 74},
		{&holdfast.HeldError{}, 75},
		{&holdfast.WaitError{Cause: context.DeadlineExceeded}, 75},
		{&holdfast.WaitError{Cause: &signalError{15}}, 143},
		{fmt.Errorf("x: %w", holdfast.ErrKindMismatch), 78},
		{fmt.Errorf("x: %w", holdfast.ErrUpgrade), 78},
		{fmt.Errorf("x: %w", holdfast.ErrNoTicket), 1},
		{fmt.Errorf("x: %w", holdfast.ErrClosed), 70},
		{errors.New("holdfast: TTL -1s is not positive"), 64},
		{io.ErrClosedPipe, 64},
	} {
		if got := statusOf(tt.err); got != tt.want {
			t.Errorf("%v: status %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestMessage(t *testing.T) {
	for text, want := range map[string]string{
		"holdfast: a":              "a",
		"anylock: b":               "b",
		"two\nlines\x1b":           "two; lines?",
		"open holdfast: something": "open holdfast: something",
	} {
		if got := message(errors.New(text)); got != want {
			t.Errorf("message(%q) = %q, want %q", text, got, want)
		}
	}
}
