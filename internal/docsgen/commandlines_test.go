//go:build unix

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/cli"
)

// commandLine is a call of the command: a line of a shell, of a unit, of a crontab or of a
// session, or code in a sentence.
var commandLine = regexp.MustCompile("(?m)(?:^(?:\\$ )?|^ExecStart=/usr/local/|^[0-9*][^a-z\n]*/usr/local/|`)((?:bin/)?holdfast [^`\n]*)")

// shellWord is a word of a command line, or what ends the command.
var shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[|&#<>;]|[^\s'"|&#<>;]+`)

// wrongCommand returns why the command does not take a line: an unknown verb or flag, or a
// value that a flag does not take.
func wrongCommand(line string) error {
	var words []string
	for _, word := range shellWord.FindAllString(line, -1)[1:] {
		if word == "--" || strings.ContainsAny(word, "|&#<>;") {
			break
		}
		if !strings.HasPrefix(word, "[") && !strings.HasPrefix(word, "...") { // of a synopsis
			words = append(words, strings.Trim(word, `'"`))
		}
	}
	root := cli.New()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	command, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if verbs := command.Commands(); len(verbs) > 0 && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("%s has no verb %s", command.CommandPath(), rest[0])
	}
	command.InitDefaultHelpFlag()
	command.InitDefaultVersionFlag()
	// In prose, a flag may stand without its value.
	if last := len(rest) - 1; last >= 0 && strings.HasPrefix(rest[last], "--") {
		if flag := command.Flag(strings.TrimLeft(rest[last], "-")); flag == nil {
			return fmt.Errorf("%s has no flag %s", command.CommandPath(), rest[last])
		}
		rest = rest[:last]
	}
	return command.ParseFlags(rest)
}

// TestCommandLinesOfPagesParse checks the verbs and flags of every call of the command in
// the pages.
func TestCommandLinesOfPagesParse(t *testing.T) {
	lines := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range commandLine.FindAllStringSubmatch(string(text), -1) {
			lines++
			if err := wrongCommand(m[1]); err != nil {
				t.Errorf("%s: %s: %v", strings.TrimPrefix(page, "../../"), m[1], err)
			}
		}
	}
	if lines < 100 {
		t.Errorf("only %d command lines were found", lines)
	}
}

// TestWrongCommandLinesAreFound checks that the test above can fail.
func TestWrongCommandLinesAreFound(t *testing.T) {
	for line, wrong := range map[string]bool{
		"holdfast run nightly -- ./work --all":               false,
		"holdfast --store sqlite: ls --json | grep x":        false,
		"holdfast run --ttl":                                 false,
		"holdfast run --ttl soon nightly -- ./work":          true,
		"holdfast run --time 5s nightly -- ./work":           true,
		"holdfast run --time":                                true,
		"holdfast lock nightly":                              true,
		"holdfast --storefile x run nightly -- ./work":       true,
		"holdfast serve --store redis://localhost --drain 1": true,
	} {
		if err := wrongCommand(line); (err != nil) != wrong {
			t.Errorf("%s: %v", line, err)
		}
	}
}
