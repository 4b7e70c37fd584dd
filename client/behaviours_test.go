package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// behaviours is how many behaviours the tests of gRPC's client check.
const behaviours = 56

// Each row of docs/client-behaviours.md names a test that exists and has a subtest with the row's
// number, or gives the reason why there is none.
func TestBehaviours(t *testing.T) {
	page, err := os.ReadFile("../docs/client-behaviours.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := textsOfTests(t, ".", "csds", "file", "metrics", "rest", "tree", "../protocol/internal/client")
	named, row := regexp.MustCompile("`(Test\\w+)`"), 0
	listed := map[string]string{} // "behaviour 7" by its tests
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.Contains(line, "---") || strings.TrimSpace(cells[len(cells)-2]) == "test" {
			continue
		}
		where, texts := cells[len(cells)-2], ""
		for _, m := range named.FindAllStringSubmatch(where, -1) {
			if tests[m[1]] == nil {
				t.Errorf("the test %s of this row does not exist: %s", m[1], line)
			}
			texts += strings.Join(tests[m[1]], "\n") + "\n"
		}
		if texts == "" && !strings.Contains(where, "—") {
			t.Errorf("neither a test nor a reason for its absence: %s", line)
		}
		if len(cells) == 4 {
			continue // gRPC has no number for this behaviour
		}
		row++
		if n := strings.TrimSpace(cells[1]); n != strconv.Itoa(row) {
			t.Errorf("row %d has the number %q", row, n)
		}
		listed["behaviour "+strconv.Itoa(row)] = where
		if texts != "" && !has(texts, row) {
			t.Errorf("no subtest of %shas the number: %s", where, line)
		}
	}
	if row != behaviours {
		t.Errorf("%d behaviours, not %d", row, behaviours)
	}
	for test, texts := range tests {
		for _, m := range regexp.MustCompile(`behaviour \d+`).FindAllString(strings.Join(texts, "\n"), -1) {
			if !strings.Contains(listed[m], "`"+test+"`") {
				t.Errorf("%s has a subtest of %s, but the row does not name the test", test, m)
			}
		}
	}
}

// has reports whether one of the names of subtests has the number of a behaviour.
func has(texts string, number int) bool {
	return regexp.MustCompile(`behaviour ` + strconv.Itoa(number) + `\b`).MatchString(texts)
}

// textsOfTests are the texts in the test functions of packages.
func textsOfTests(t *testing.T, dirs ...string) map[string][]string {
	t.Helper()
	tests := map[string][]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, path := range files {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				f, is := d.(*ast.FuncDecl)
				if !is || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
					continue
				}
				texts := tests[f.Name.Name]
				if texts == nil {
					texts = []string{""}
				}
				ast.Inspect(f, func(n ast.Node) bool {
					if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
						texts = append(texts, l.Value)
					}
					return true
				})
				tests[f.Name.Name] = texts
			}
		}
	}
	return tests
}
