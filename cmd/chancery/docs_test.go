package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/source/dir"
)

// The examples of docs/files.md are valid files, also together.
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
	c := dir.CheckAll([]string{root}, nil, dir.Options{}, findings.Unused) // each example shows one thing
	for _, p := range append(c.Errors, c.Warnings...) {
		t.Error(p.Text())
	}
	if c.Files != len(examples) || c.Files < 6 {
		t.Errorf("%d files of %d examples", c.Files, len(examples))
	}
}

// The commands and flags in the pages exist.
func TestDocumentedFlags(t *testing.T) {
	var help []byte
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"help", "limits"}, {"health", "--help"}, {"check", "--help"}, {"reload", "--help"}, {"resync", "--help"}, {"disconnect", "--help"}, {"status", "--help"}, {"get", "--help"}, {"watch", "--help"}, {"wait", "--help"}, {"graph", "--help"}, {"fetch", "--help"}, {"diff", "--help"}, {"bugreport", "--help"}, {"preview", "--help"}, {"export", "--help"}, {"import", "--help"}, {"apply", "--help"}, {"history", "--help"}, {"rollback", "--help"}, {"freeze", "--help"}, {"rollout", "start", "--help"}, {"blame", "--help"}, {"bootstrap", "envoy", "--help"}, {"endpoints", "follow", "--help"}, {"state", "rm", "--help"}} {
		out, err := exec.Command(binary, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		help = append(help, out...)
	}
	for _, path := range []string{"../../docs/operations.md", "../../docs/security.md", "../../docs/limits.md", "../../docs/quarantine.md", "../../docs/rest.md", "../../docs/metrics.md", "../../docs/log-reference.md", "../../docs/files.md", "../../docs/check.md", "../../docs/export.md", "../../docs/clients.md", "../../docs/import.md", "../../docs/commands.md", "../../docs/commands-reference.md"} {
		doc, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range regexp.MustCompile(`[ \x60(]--[a-z][a-z0-9_-]+`).FindAll(doc, -1) {
			if bytes.HasPrefix(flag[1:], []byte("--health-")) {
				continue // of docker and podman
			}
			if !regexp.MustCompile(string(flag[1:]) + `\b`).Match(help) {
				t.Errorf("%s: %s is no flag", path, flag[1:])
			}
		}
	}
}

// docs/log-reference.md lists every log line that an operator may see.
func TestDocumentedLogLines(t *testing.T) {
	doc, err := os.ReadFile("../../docs/log-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	logs := regexp.MustCompile(`(?:(?i:log)\.(?:Info|Warn|Error)\(|og\.Log(?:Attrs)?\(context\.Background\(\), (?:l|slog\.L)evel(?:Info|Warn|Error)?, |s\.(?:server\.)?(?:warn|complain)\(.*, |s\.inform\()"([^"]+)"`)
	found := 0
	for _, pattern := range []string{"../../server/*.go", "../../rest/*.go", "../../internal/*/*.go", "../../internal/*/*/*.go", "../../source/dir/*.go",
		"../../client/disk.go", "../../client/hear.go", "../../client/tell.go", "../../client/upstream.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "/demo/") {
				continue
			}
			code, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range logs.FindAllSubmatch(code, -1) {
				found++
				line, _, _ := bytes.Cut(m[1], []byte(": "))
				if !bytes.Contains(doc, append([]byte("\n| `"), line...)) && !bytes.Contains(doc, append([]byte("`, `"), line...)) {
					t.Errorf("%s: %q is not in the table", file, m[1])
				}
			}
		}
	}
	if found < 25 {
		t.Errorf("%d lines found: the expression does not fit the code any more", found)
	}
}

// JSON fields for programs are named like the fields of Envoy's API. Only apiVersion has its common form.
func TestNamesOfJSONFields(t *testing.T) {
	n := 0
	for _, glob := range []string{"../../internal/cli/*.go", "../../internal/cli/*/*.go", "../../internal/daemon/*.go", "../../internal/admin/api/*.go", "../../internal/envoy/diff/*.go", "../../internal/listen/reloadsocket/*.go", "../../endpoints/*.go"} {
		files, err := filepath.Glob(glob)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`json:"([^",]+)`).FindAllSubmatch(b, -1) {
				n++
				if name := string(m[1]); name != strings.ToLower(name) && name != "apiVersion" {
					t.Errorf("%s: %s: write it as sub_zone is", path, name)
				}
			}
		}
	}
	if n < 300 {
		t.Errorf("only %d names", n)
	}
}
