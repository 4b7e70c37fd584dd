package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/clients-tested.md names the test of each known behaviour of clients. The tests, transcripts and
// requirements that it names exist; a row without a name gives the reason.
func TestClientsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/clients-tested.md")
	if err != nil {
		t.Fatal(err)
	}
	requirements, err := os.ReadFile("../docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t, "..")
	names := regexp.MustCompile("`([a-z0-9_-]+\\.txt)`|`(Test\\w+)`|\\b([A-Z]+-\\d+)\\b|`(--[a-z-]+)`|package `(\\w+)`")
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.HasPrefix(cells[1], "---") || cells[1] == " behaviour " {
			continue
		}
		rows++
		where := cells[2]
		found := names.FindAllStringSubmatch(where, -1)
		if len(found) == 0 && !strings.Contains(where, "—") {
			t.Errorf("no test, and no reason why there is none: %s", line)
		}
		for _, m := range found {
			switch transcript, test, id := m[1], m[2], m[3]; {
			case transcript != "":
				if _, err := os.Stat(filepath.Join("../protocol/testdata", transcript)); err != nil {
					t.Errorf("%v, of which it says: %s", err, line)
				}
			case test != "":
				if !slices.Contains(tests, test) {
					t.Errorf("there is no %s, of which it says: %s", test, line)
				}
			case id != "":
				if !strings.Contains(string(requirements), "\n- "+id+" ") {
					t.Errorf("there is no requirement %s, of which it says: %s", id, line)
				}
			}
		}
	}
	if rows < 80 {
		t.Errorf("%d lines were found", rows)
	}
}

// testsOf are the names of the test functions below a directory.
func testsOf(t *testing.T, root string) (names []string) {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(b, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
