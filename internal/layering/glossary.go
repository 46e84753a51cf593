package layering

import (
	"regexp"
	"strings"
	"unicode"
)

// glossaryFile has the terms, and the words that they replace.
const glossaryFile = "docs/glossary.md"

// replaced is a word of the glossary's third column.
type replaced struct {
	word  string
	term  string // to write instead
	prose bool   // in comments and pages, too
}

var (
	glossaryRow  = regexp.MustCompile(`(?m)^\| \*\*([^*]+)\*\* \|[^|\n]*\|([^|\n]*)\|$`)
	glossaryWord = regexp.MustCompile("`([^`]+)`(†?)")
)

// glossary returns the terms of the page and the words that they replace.
func (t *Tree) glossary() (terms []string, words []replaced) {
	for _, text := range t.Texts {
		if text.Path != glossaryFile {
			continue
		}
		for _, row := range glossaryRow.FindAllStringSubmatch(string(text.Data), -1) {
			terms = append(terms, row[1])
			for _, w := range glossaryWord.FindAllStringSubmatch(row[2], -1) {
				words = append(words, replaced{w[1], row[1], w[2] != ""})
			}
		}
	}
	return terms, words
}

// in reports whether the word is an identifier, or one of the words of an
// identifier. A word with a capital has to be the whole identifier.
func (r replaced) in(identifier string) bool {
	if unicode.IsUpper(rune(r.word[0])) {
		return identifier == r.word
	}
	return hasWord(wordsOf(identifier), r.word)
}

// hasWord reports whether words contain a word, several that are joined by
// hyphens, or its plural.
func hasWord(words []string, word string) bool {
	all := "-" + strings.Join(words, "-") + "-"
	return strings.Contains(all, "-"+word+"-") || strings.Contains(all, "-"+word+"s-")
}

var camel = regexp.MustCompile(`[A-Z]+(?:[a-z0-9]*)|[a-z0-9]+`)

// wordsOf cuts an identifier or the name of a file into words in lower case.
func wordsOf(identifier string) []string {
	words := camel.FindAllString(identifier, -1)
	for i, w := range words {
		words[i] = strings.ToLower(w)
	}
	return words
}
