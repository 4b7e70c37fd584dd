package envoybinary

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/source/dir"
)

const envoyPath = "../../../.cache/envoy/envoy-1.40.0"

// needEnvoy skips a test if no Envoy is installed. In CI it fails the test instead.
func needEnvoy(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(envoyPath); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("e2e/install.sh envoy installs one")
	}
}

// check returns the findings of chancery check for a file, and the file's resources.
func check(t *testing.T, data []byte) (codes []string, all []Resource, output string) {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.yaml"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	c := dir.Check(root, dir.Options{})
	for _, p := range c.Errors {
		codes = append(codes, string(p.Code))
		output += p.Text() + "\n"
		if p.Pos.Line == 0 {
			t.Errorf("no position: %v", p)
		}
	}
	for _, l := range c.Loaded {
		all = append(all, Resource{Type: l.Type, Name: l.Name, Body: l.Body})
	}
	return codes, all, output
}

// Chancery's check finds a mistake exactly where Envoy rejects the file.
func TestAgreesWithEnvoy(t *testing.T) {
	needEnvoy(t)
	cases, err := txtar.ParseFile("testdata/cases.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range cases.Files {
		want, name, _ := strings.Cut(strings.TrimSuffix(f.Name, ".yaml"), " ")
		t.Run(want+" "+name, func(t *testing.T) {
			t.Parallel()
			codes, all, output := check(t, f.Data)
			answer, err := Ask(t.Context(), envoyPath, envoy.Envoy(), all)
			if err != nil {
				t.Fatal(err)
			}
			if len(answer.Skipped) > 0 {
				t.Errorf("Envoy did not validate %v", answer.Skipped)
			}
			if want == "good" {
				if len(codes) > 0 || len(answer.Rejected) > 0 {
					t.Errorf("Envoy rejects %v, and check reports\n%s", answer.Rejected, output)
				}
				return
			}
			if len(codes) != 1 || codes[0] != want {
				t.Errorf("check reports %v\n%s", codes, output)
			}
			if len(answer.Rejected) == 0 {
				t.Errorf("Envoy accepts it, and check reports\n%s", output)
			}
			t.Log(output, answer.Rejected)
		})
	}
}
