package layering

import (
	"path"
	"regexp"
	"strings"
)

// sentence is a sentence of a comment or a page, without quotations.
type sentence struct {
	text string
	line int // of its paragraph
	asks bool
}

var (
	quoted   = regexp.MustCompile("`[^`]*`|\"[^\"\n]*\"|“[^”]*”|<!--.*?-->")
	mdLink   = regexp.MustCompile(`\]\([^)]*\)`)
	sentEnd  = regexp.MustCompile(`[.!?]["')*_]*(?:\s+|$)`)
	listItem = regexp.MustCompile(`^(?:[-*+]|[0-9]+[.)])\s+`)
)

// sentences cuts paragraphs into sentences. A quotation, in code or in words,
// becomes the letter q, because its words are not the author's.
func sentences(paragraphs []paragraph) (all []sentence) {
	for _, p := range paragraphs {
		text := quoted.ReplaceAllString(p.text, "q")
		text = strings.Join(strings.Fields(mdLink.ReplaceAllString(text, "]")), " ")
		for text != "" {
			end := len(text)
			if loc := sentEnd.FindStringIndex(text); loc != nil {
				end = loc[1]
			}
			s := strings.TrimSpace(text[:end])
			text = text[end:]
			asks := strings.HasSuffix(strings.TrimRight(s, `"')*_`), "?")
			if s = strings.TrimLeft(s, `"'(*_[ `); s != "" {
				all = append(all, sentence{s, p.line, asks})
			}
		}
	}
	return all
}

// paragraph is a run of lines that belong together.
type paragraph struct {
	text string
	line int // the first one's number, from 1
}

// ofComment returns the paragraphs of a comment's text. Indented lines are code
// or quoted output, unless they begin an item of a list.
func ofComment(text string, first int) (all []paragraph) {
	var p paragraph
	end := func() {
		if p.text != "" {
			all = append(all, p)
		}
		p = paragraph{}
	}
	item := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		indented := trimmed != "" && (line[0] == '\t' || line[0] == ' ')
		switch {
		case trimmed == "":
			end()
			item = false
		case listItem.MatchString(trimmed):
			end()
			item = true
			p = paragraph{listItem.ReplaceAllString(trimmed, ""), first + i}
		case indented && !item:
			end()
		case p.text == "":
			p = paragraph{trimmed, first + i}
		default:
			p.text += " " + trimmed
		}
	}
	end()
	return all
}

// ofPage returns the paragraphs of a Markdown page: without fenced blocks and
// headings, and with each cell of a table for itself.
func ofPage(text string) (all []paragraph) {
	var p paragraph
	end := func() {
		if p.text != "" {
			all = append(all, p)
		}
		p = paragraph{}
	}
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), ">"))
		switch {
		case strings.HasPrefix(trimmed, "```"):
			end()
			fenced = !fenced
		case fenced:
		case trimmed == "", strings.HasPrefix(trimmed, "#"), strings.Trim(trimmed, "|-: ") == "":
			end()
		case strings.HasPrefix(trimmed, "|"):
			end()
			for cell := range strings.SplitSeq(strings.Trim(trimmed, "|"), "|") {
				if cell = strings.TrimSpace(cell); cell != "" {
					all = append(all, paragraph{cell, i + 1})
				}
			}
		case listItem.MatchString(trimmed):
			end()
			p = paragraph{listItem.ReplaceAllString(trimmed, ""), i + 1}
		case strings.HasPrefix(line, "    ") && p.text == "":
		case p.text == "":
			p = paragraph{trimmed, i + 1}
		default:
			p.text += " " + trimmed
		}
	}
	end()
	return all
}

// prose yields the sentences of the tree's comments and pages, each with the
// folder that it counts for and the file that it is in.
func (t *Tree) prose(yield func(folder, file string, s sentence)) {
	for _, p := range t.Packages {
		for _, f := range p.Files {
			for _, group := range f.AST.Comments {
				first := t.fset.Position(group.Pos()).Line
				for _, s := range sentences(ofComment(group.Text(), first)) {
					yield(p.Path, f.Path, s)
				}
			}
		}
	}
	for _, text := range t.Texts {
		if path.Ext(text.Path) != ".md" || text.Path == glossaryFile || text.Path == "CHANGELOG.md" || strings.Contains(text.Path, "testdata/") {
			continue
		}
		folder := path.Dir(text.Path) + "/*.md"
		for _, s := range sentences(ofPage(string(text.Data))) {
			yield(folder, text.Path, s)
		}
	}
}
