// Package manpage writes the manual pages of a command from its own help.
package manpage

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page is one manual page of section 1.
type Page struct {
	Name string // of the file, such as "holdfast-run.1"
	Text []byte // in the macros of man(7)
}

// Pages returns a page for root and one for each verb below it that the help
// shows, ordered by name. The pages show version and date; date is rendered in
// UTC. The same arguments give the same bytes.
func Pages(root *cobra.Command, version string, date time.Time) []Page {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	all := verbs(root)
	var pages []Page
	for _, c := range all {
		p := page{head: fmt.Sprintf("%s 1 \"%s\" \"%s %s\" \"User Commands\"",
			strings.ToUpper(escape(fileName(c))), date.UTC().Format(time.DateOnly), escape(root.Name()), escape(version))}
		p.write(c, seeAlso(root, all, c))
		pages = append(pages, Page{Name: fileName(c) + ".1", Text: p.Bytes()})
	}
	slices.SortFunc(pages, func(a, b Page) int { return strings.Compare(a.Name, b.Name) })
	return pages
}

// verbs returns root and the verbs directly below it.
func verbs(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			all = append(all, c)
		}
	}
	return all
}

func fileName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// seeAlso returns the references of c's page: all verbs on the page of root, and
// root on theirs.
func seeAlso(root *cobra.Command, all []*cobra.Command, c *cobra.Command) []string {
	if c != root {
		return []string{fileName(root)}
	}
	var names []string
	for _, verb := range all[1:] {
		names = append(names, fileName(verb))
	}
	slices.Sort(names)
	return names
}

// page is a page that is being written.
type page struct {
	bytes.Buffer
	head string
}

func (p *page) write(c *cobra.Command, seeAlso []string) {
	p.WriteString(".TH " + p.head + "\n")
	p.section("NAME")
	p.WriteString(escape(fileName(c)) + ` \- ` + escape(lowerFirst(c.Short)) + "\n")
	p.section("SYNOPSIS")
	p.WriteString(".nf\n")
	if c.Runnable() {
		p.line(c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		p.line(c.CommandPath() + " " + strings.ToUpper(subject(c)) + " [flags]")
	}
	p.WriteString(".fi\n")
	p.section("DESCRIPTION")
	p.prose(c.Long)
	p.subcommands(c)
	p.options("OPTIONS", c.LocalNonPersistentFlags())
	p.options("OPTIONS OF EVERY COMMAND", globalFlags(c))
	if c.Example != "" {
		p.section("EXAMPLES")
		p.shown(dedent(c.Example))
	}
	p.section("SEE ALSO")
	for i, name := range seeAlso {
		end := ","
		if i == len(seeAlso)-1 {
			end = ""
		}
		p.WriteString(".BR " + escape(name) + " (1)" + end + "\n")
	}
}

// subject returns the word for what stands below c.
func subject(c *cobra.Command) string {
	if c.Name() == "completion" {
		return "shell"
	}
	return "command"
}

// globalFlags returns the flags that c shares with all commands.
func globalFlags(c *cobra.Command) *pflag.FlagSet {
	if c.HasParent() {
		return c.InheritedFlags()
	}
	return c.PersistentFlags()
}

// subcommands lists what stands below c, with its one-line help.
func (p *page) subcommands(c *cobra.Command) {
	if !c.HasAvailableSubCommands() {
		return
	}
	p.section(strings.ToUpper(subject(c)) + "S")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			p.WriteString(".TP\n.B " + escape(sub.Name()) + "\n")
			p.line(sub.Short)
		}
	}
}

func (p *page) options(title string, set *pflag.FlagSet) {
	if !set.HasAvailableFlags() {
		return
	}
	p.section(title)
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		names := `\fB\-\-` + escape(f.Name) + `\fR`
		if f.Shorthand != "" {
			names = `\fB\-` + escape(f.Shorthand) + `\fR, ` + names
		}
		if value != "" {
			names += ` \fI` + escape(value) + `\fR`
		}
		p.WriteString(".TP\n" + names + "\n")
		if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
			usage += " (default " + f.DefValue + ")"
		}
		// A list without spaces may be broken behind its commas.
		p.WriteString(strings.ReplaceAll(guarded(escape(usage)), ",", `,\:`) + "\n")
	})
}

func (p *page) section(title string) { p.WriteString(".SH " + title + "\n") }

// line writes a line of text that the formatter may fill.
func (p *page) line(text string) { p.WriteString(guarded(escape(text)) + "\n") }

// prose writes the text of a help: paragraphs are filled, and indented lines are
// shown as they are.
func (p *page) prose(text string) {
	const (
		start = iota
		paragraph
		indented
	)
	var block []string
	at, gap := start, false
	flush := func() {
		if len(block) > 0 {
			p.shown(dedent(strings.Trim(strings.Join(block, "\n"), "\n")))
		}
		block = nil
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		switch {
		case line == "":
			gap = true
			if at == indented {
				block = append(block, "")
			}
		case line[0] == ' ' || line[0] == '\t':
			if at != indented && at != start {
				p.WriteString(".PP\n")
			}
			at, gap = indented, false
			block = append(block, line)
		default:
			if at == indented || at == paragraph && gap {
				flush()
				p.WriteString(".PP\n")
			}
			at, gap = paragraph, false
			p.line(line)
		}
	}
	flush()
}

// shown writes lines as they are, indented.
func (p *page) shown(text string) {
	p.WriteString(".RS 4\n.nf\n")
	for line := range strings.SplitSeq(text, "\n") {
		p.line(line)
	}
	p.WriteString(".fi\n.RE\n")
}

// roff has the characters that the formatter would take for its own, or for
// their typographic kin.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

func escape(text string) string { return roff.Replace(text) }

// guarded keeps a line from being taken for a request.
func guarded(line string) string {
	if strings.HasPrefix(line, ".") {
		return `\&` + line
	}
	return line
}

func lowerFirst(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToLower(text[:1]) + text[1:]
}

// dedent removes the indentation that all lines share.
func dedent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	shared := -1
	for _, line := range lines {
		n := len(line) - len(strings.TrimLeft(line, " "))
		if line != "" && (shared < 0 || n < shared) {
			shared = n
		}
	}
	for i, line := range lines {
		lines[i] = line[min(max(shared, 0), len(line)):]
	}
	return strings.Join(lines, "\n")
}
