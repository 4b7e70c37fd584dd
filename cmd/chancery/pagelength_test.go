package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxPageWords  = 2500
	maxLineLength = 120 // in characters
)

// referencePages are lists in which a reader searches for one entry, so they may be longer.
var referencePages = []string{"commands-reference.md", "findings.md", "log-reference.md", "renamed.md", "requirements.md"}

// A page for reading has at most 2,500 words, and its lines wrap at 120 characters.
func TestPageLength(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"docs/*.md", "docs/adr/*.md", "*/README.md", "README.md", "CONTRIBUTING.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		pages = append(pages, found...)
	}
	for _, path := range pages {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(strings.Fields(string(page))); n > maxPageWords && !slices.Contains(referencePages, filepath.Base(path)) {
			t.Errorf("%s: %d words, more than %d: split it by the reader's task", path, n, maxPageWords)
		}
		for _, n := range longLines(string(page)) {
			t.Errorf("%s:%d: wrap the line at %d characters", path, n, maxLineLength)
		}
	}
}

var (
	fence = regexp.MustCompile("^\\s*```")
	// A line of one word or one link, such as an item of a list, cannot wrap.
	unwrappable = regexp.MustCompile(`^\s*(?:[-*] |\d+\. )?(?:\S*|\[[^\]]*\]\(\S*\)\S*)$`)
)

// longLines returns the numbers of lines that are too long, outside tables, code and links.
func longLines(page string) (long []int) {
	inFence := false
	n := 0
	for line := range strings.SplitSeq(page, "\n") {
		n++
		if fence.MatchString(line) {
			inFence = !inFence
			continue
		}
		isCode := inFence || strings.HasPrefix(line, "    ")
		isTable := strings.HasPrefix(line, "|")
		if !isCode && !isTable && utf8.RuneCountInString(line) > maxLineLength && !unwrappable.MatchString(line) {
			long = append(long, n)
		}
	}
	return long
}

func TestLongLines(t *testing.T) {
	words := strings.Repeat("word ", 30)
	for _, c := range []struct {
		name, page string
		long       int
	}{
		{"prose", words, 1},
		{"a list", "- " + words, 1},
		{"a table", "| " + words + " |", 0},
		{"indented code", "    " + words, 0},
		{"fenced code", "```\n" + words + "\n```", 0},
		{"after code", "```\n```\n" + words, 1},
		{"prose before a link", words + "[text](https://example.com)", 1},
		{"a link", "- [text](https://example.com/" + strings.Repeat("x", 120) + ")", 0},
	} {
		if got := longLines(c.page); len(got) != c.long {
			t.Errorf("%s: %d long lines, want %d", c.name, len(got), c.long)
		}
	}
}
