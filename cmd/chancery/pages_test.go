package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Links of the pages lead to existing files and headings, and each page is in the index.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		if name := filepath.Base(path); name != "README.md" && !strings.Contains(string(index), "("+name+")") {
			t.Errorf("docs/README.md does not lead to %s", name)
		}
	}
	decisions, err := filepath.Glob("../../docs/adr/*.md")
	if err != nil || len(decisions) == 0 {
		t.Fatal(decisions, err)
	}
	others := []string{"../../README.md", "../../CONTRIBUTING.md", "../../examples/README.md", "../../e2e/README.md", "../../bench/README.md", "../../packaging/README.md"}
	for _, path := range slices.Concat(pages, decisions, others) {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`).FindAllStringSubmatch(string(page), -1) {
			to, heading := m[1], strings.TrimPrefix(m[2], "#")
			if strings.Contains(to, "://") {
				continue
			}
			file := path
			if to != "" {
				file = filepath.Join(filepath.Dir(path), to)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			} else if heading != "" && !info.IsDir() && !headings(t, file)[heading] {
				t.Errorf("%s: %s has no heading #%s", path, file, heading)
			}
		}
	}
}

// headings returns the anchors of a page.
func headings(t *testing.T, path string) map[string]bool {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllSubmatch(page, -1) {
		anchor := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(string(m[1])), "")
		found[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return found
}

// The code in docs/from-go-control-plane.md is the code of the programs that compile.
func TestPageOfGoControlPlane(t *testing.T) {
	page, err := os.ReadFile("../../docs/from-go-control-plane.md")
	if err != nil {
		t.Fatal(err)
	}
	flat := func(b []byte) string { return strings.Join(strings.Fields(string(b)), " ") }
	programs := ""
	for _, name := range []string{"before", "after"} {
		b, err := os.ReadFile("../../examples/from-go-control-plane/" + name + "/main.go")
		if err != nil {
			t.Fatal(err)
		}
		programs += flat(b)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	for _, m := range blocks {
		if !strings.Contains(programs, flat(m[1])) {
			t.Errorf("in no program:\n%s", m[1])
		}
	}
	if len(blocks) < 4 {
		t.Errorf("%d blocks", len(blocks))
	}
}
