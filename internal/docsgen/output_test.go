//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// fenceLine is the first or last line of a block.
	fenceLine = regexp.MustCompile("(?m)^ *```(.*)$")
	// indentedPrompt is a command of a session that is no fenced block.
	indentedPrompt = regexp.MustCompile(`(?m)^(?: {4}|\t)\$ `)
	htmlComment    = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// notOutput are the languages of blocks that a reader writes, and draws.
var notOutput = []string{"diagram", "go", "ini", "json", "sh", "sql", "yaml"}

// otherOutput precedes a block whose output no test can print. Its words are in the
// page's text as well:
//
//	<!-- output of: Terraform 1.11.4 -->
var otherOutput = regexp.MustCompile(`<!-- output of: ([^\n]+) -->\n+$`)

// unprovedBlocks returns what is wrong with the blocks of a page: each is of a language
// that has no output, or a session that is run, or says what printed it.
func unprovedBlocks(text string) (bad []string) {
	prose := oneLine(htmlComment.ReplaceAllString(text, ""))
	fences := fenceLine.FindAllStringSubmatchIndex(text, -1)
	for i := 0; i+1 < len(fences); i += 2 {
		at, language := fences[i][0], text[fences[i][2]:fences[i][3]]
		line := 1 + strings.Count(text[:at], "\n")
		if from := otherOutput.FindStringSubmatch(text[:at]); from != nil {
			if !strings.Contains(prose, from[1]) {
				bad = append(bad, fmt.Sprintf("line %d: no reader is told that the output is of %s", line, from[1]))
			}
		} else if language == "console" {
			if !consoleEnds(text[:fences[i+1][1]]) {
				bad = append(bad, fmt.Sprintf("line %d: a session that no test runs: a comment <!-- console: COMMANDS --> is missing above it", line))
			}
		} else if !slices.Contains(notOutput, language) {
			bad = append(bad, fmt.Sprintf("line %d: a block of %q: is it output? Then make it a console session", line, language))
		}
	}
	for _, at := range indentedPrompt.FindAllStringIndex(text, -1) {
		bad = append(bad, fmt.Sprintf("line %d: a session that is indented: make it a block of the language console", 1+strings.Count(text[:at[0]], "\n")))
	}
	return bad
}

// consoleEnds reports whether a text ends with a session that is run.
func consoleEnds(text string) bool {
	all := consoleBlock.FindAllStringIndex(text, -1)
	return len(all) > 0 && all[len(all)-1][1] == len(text)
}

// TestEveryOutputOfPagesWasPrinted checks that each output in the pages is a session that
// the next test runs, or says where it is from. cli.md is made of the command's help.
func TestEveryOutputOfPagesWasPrinted(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(page) == "cli.md" {
			continue
		}
		for _, bad := range unprovedBlocks(string(text)) {
			t.Errorf("%s: %s", strings.TrimPrefix(page, "../../"), bad)
		}
	}
}

// TestUnprovedBlocksAreFound checks that the test above can fail.
func TestUnprovedBlocksAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"```sh\nls\n```\n": 0,
		"<!-- console: : -->\n\n```console\n$ ls\n```\n":                          0,
		"```console\n$ ls\n```\n":                                                 1,
		"<!-- console: : -->\n\nText.\n\n```console\n$ ls\n```\n":                 1,
		"<!-- console: : -->\n\n```console\n$ ls\n```\n\n```console\n$ ls\n```\n": 1,
		"Text:\n\n    $ ls\n    file\n":                                           1,
		"```\nprinted\n```\n":                                                     1,
		"```text\nprinted\n```\n":                                                 1,
		"By a tool 1.0:\n\n<!-- output of: a tool 1.0 -->\n\n```text\nyes\n```\n": 0,
		"By a tool:\n\n<!-- output of: a tool 1.0 -->\n\n```text\nyes\n```\n":     1,
	} {
		if bad := unprovedBlocks(text); len(bad) != want {
			t.Errorf("%q: %q, want %d", text, bad, want)
		}
	}
}
