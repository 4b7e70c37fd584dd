package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The commands in docs/commands.md and docs/commands-reference.md print what the pages show, by the script "documented".
func TestConsoleBlocksOfCommandsPages(t *testing.T) {
	var pages []byte
	for _, name := range []string{"commands.md", "commands-reference.md"} {
		page, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, page...)
	}
	script, err := os.ReadFile("testdata/script/documented.txtar")
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(script), "\n-- ")
	prints := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^exits \d+ (chancery .*)\ncmp std\w+ (\S+)$`).FindAllStringSubmatch(head, -1) {
		_, after, _ := strings.Cut(string(script), "\n-- "+m[2]+" --\n")
		after, _, _ = strings.Cut(after, "\n-- ")
		prints[strings.ReplaceAll(m[1], "$XDS", "xds://127.0.0.1:18000")] = strings.TrimRight(after, "\n")
	}
	found := 0
	for _, block := range regexp.MustCompile("(?s)```text\n(.*?)\n```").FindAllStringSubmatch(string(pages), -1) {
		for typed := range strings.SplitSeq("\n"+block[1], "\n$ ") {
			line, shown, _ := strings.Cut(typed, "\n")
			if line == "" {
				continue
			}
			found++
			if want, ok := prints[line]; !ok || strings.TrimRight(shown, "\n") != want {
				t.Errorf("$ %s\n%s\nprints\n%s", line, shown, want)
			}
		}
	}
	if found < 8 {
		t.Errorf("%d commands found", found)
	}
}
