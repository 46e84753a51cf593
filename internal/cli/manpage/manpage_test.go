//go:build unix

package manpage_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/internal/cli/manpage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var day = time.Date(2026, 11, 23, 23, 30, 0, 0, time.FixedZone("west", -7*3600))

// TestPagesCoverHelp looks for every verb and flag of the help in the pages.
func TestPagesCoverHelp(t *testing.T) {
	root := cli.New()
	pages := manpage.Pages(root, "0.1.0", day)
	find := func(name string) string {
		i := slices.IndexFunc(pages, func(p manpage.Page) bool { return p.Name == name })
		if i < 0 {
			t.Fatalf("there is no page %s", name)
		}
		return string(pages[i].Text)
	}
	for _, c := range append(root.Commands(), root) {
		if !c.IsAvailableCommand() && c != root || c.Name() == "help" {
			continue
		}
		text := find(strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1")
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if want := `\-\-` + strings.ReplaceAll(f.Name, "-", `\-`); !f.Hidden && !strings.Contains(text, want) {
				t.Errorf("the page of %s lacks --%s", c.CommandPath(), f.Name)
			}
		})
	}
	if text := find("holdfast.1"); !strings.HasPrefix(text, `.TH HOLDFAST 1 "2026-11-24" "holdfast 0.1.0"`) || !strings.Contains(text, `.BR holdfast\-run (1)`) {
		t.Errorf("the page of holdfast:\n%s", text)
	}
}

// TestPagesEscapeRequests has a help whose lines look like requests of the formatter.
func TestPagesEscapeRequests(t *testing.T) {
	root := &cobra.Command{Use: "x", Short: "X'y", Run: func(*cobra.Command, []string) {}, Long: `First.
.bad \n(.l 'quoted'

  .shown

    as it is
'after`}
	got := string(manpage.Pages(root, "1", day)[0].Text)
	want := `.SH DESCRIPTION
First.
\&.bad \en(.l \(aqquoted\(aq
.PP
.RS 4
.nf
\&.shown

  as it is
.fi
.RE
.PP
\(aqafter
`
	if !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant in it\n%s", got, want)
	}
}

var request = regexp.MustCompile(`^\.(TH|SH|PP|TP|B|BR|RS|RE|nf|fi)( |$)`)

// TestPagesWellFormed finds known requests alone in the pages of the command, a
// closing one for each that opens, and the same bytes each time.
func TestPagesWellFormed(t *testing.T) {
	again := manpage.Pages(cli.New(), "0.1.0", day)
	for i, p := range manpage.Pages(cli.New(), "0.1.0", day) {
		open := map[string]int{}
		for line := range strings.SplitSeq(string(p.Text), "\n") {
			if (strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'")) && !request.MatchString(line) {
				t.Errorf("%s: %q", p.Name, line)
			}
			open[strings.TrimPrefix(strings.Fields(line + " -")[0], ".")]++
		}
		if open["nf"] != open["fi"] || open["RS"] != open["RE"] {
			t.Errorf("%s: %d .nf, %d .fi, %d .RS, %d .RE", p.Name, open["nf"], open["fi"], open["RS"], open["RE"])
		}
		if !bytes.Equal(p.Text, again[i].Text) {
			t.Errorf("%s differs from one call to the next", p.Name)
		}
	}
}
