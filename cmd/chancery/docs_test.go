package main

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/chancery-xds/chancery/internal/source/dir"
)

// The examples of docs/files.md are good files, together too.
func TestDocumentedFiles(t *testing.T) {
	doc, err := os.ReadFile("../../docs/files.md")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	examples := regexp.MustCompile("(?s)`file: ([^`]+)`\n```[a-z]+\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	for _, e := range examples {
		write(t, root, e[1], e[2])
	}
	c := dir.Check(root, dir.Options{})
	for _, p := range append(c.Errors, c.Warnings...) {
		t.Error(p.Text())
	}
	if c.Files != len(examples) || c.Files < 6 {
		t.Errorf("%d files of %d examples", c.Files, len(examples))
	}
}

// What the documents tell users to type exists.
func TestDocumentedFlags(t *testing.T) {
	var help []byte
	for _, args := range [][]string{{"serve", "--help"}, {"check", "--help"}, {"export", "--help"}, {"bootstrap", "envoy", "--help"}} {
		out, err := exec.Command(binary, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		help = append(help, out...)
	}
	for _, path := range []string{"../../docs/operations.md", "../../docs/files.md", "../../docs/clients.md"} {
		doc, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range regexp.MustCompile(`[ \x60(]--[a-z][a-z0-9-]+`).FindAll(doc, -1) {
			if !regexp.MustCompile(string(flag[1:]) + `\b`).Match(help) {
				t.Errorf("%s: %s is no flag", path, flag[1:])
			}
		}
	}
}
