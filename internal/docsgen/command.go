package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandReference returns the help of every command as one page, in the order
// of the help.
func commandReference(root *cobra.Command) []byte {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var b bytes.Buffer
	b.WriteString("<!-- Written by make docs out of the command's own help. Do not edit. -->\n\n")
	section(&b, root, 1)
	text := blankLines.ReplaceAll(b.Bytes(), []byte("\n\n"))
	return append(bytes.TrimRight(text, "\n"), '\n')
}

var blankLines = regexp.MustCompile(`\n{3,}`)

func section(b *bytes.Buffer, c *cobra.Command, level int) {
	fmt.Fprintf(b, "%s %s\n\n", strings.Repeat("#", level), c.CommandPath())
	text := c.Long
	if text == "" {
		text = c.Short
	}
	prose(b, text)
	if c.Name() == "completion" { // for shells, each of which has a page of help
		var all []string
		for _, shell := range c.Commands() {
			all = append(all, shell.CommandPath())
		}
		fence(b, strings.Join(all, "\n"))
		return
	}
	if c.Runnable() {
		fence(b, c.UseLine())
	}
	if c.Example != "" {
		b.WriteString("Examples:\n\n")
		fence(b, dedent(c.Example))
	}
	flags(b, "Flags:", c.LocalNonPersistentFlags())
	flags(b, "Flags of this and every command below:", c.PersistentFlags())
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			section(b, sub, min(level+1, 3))
		}
	}
}

func flags(b *bytes.Buffer, title string, set *pflag.FlagSet) {
	if set.HasAvailableFlags() {
		b.WriteString(title + "\n\n")
		fence(b, set.FlagUsages())
	}
}

// prose writes the text of a help; indented lines are shown as they are.
func prose(b *bytes.Buffer, text string) {
	var shown []string
	flush := func() {
		if shown != nil {
			b.WriteString("\n")
			fence(b, dedent(strings.Join(shown, "\n")))
			shown = nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		switch {
		case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
			shown = append(shown, line)
		case shown != nil && line == "":
			// fence ends with an empty line
		default:
			flush()
			b.WriteString(markup.Replace(line) + "\n")
		}
	}
	flush()
	b.WriteString("\n")
}

// markup escapes the characters of help texts that have a meaning in Markdown.
var markup = strings.NewReplacer("*", `\*`, "<", `\<`, "`", "\\`", "#", `\#`)

func fence(b *bytes.Buffer, text string) {
	b.WriteString("```\n" + strings.Trim(text, "\n") + "\n```\n\n")
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
		lines[i] = line[min(shared, len(line)):]
	}
	return strings.Join(lines, "\n")
}
