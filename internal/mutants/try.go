package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A verdict is what the tests said about a mutant.
type verdict struct {
	mutant
	failed []string // top-level tests that failed; empty: it survived
	err    error    // the mutant could not be tried
	took   time.Duration
	kept   bool // it was caught before, and not tried again
}

func (v verdict) word() string {
	switch {
	case v.err != nil:
		return "ERROR"
	case len(v.failed) == 0:
		return "SURVIVED"
	}
	return "caught"
}

// test runs tests. The overlay, if there is one, also reaches the programs that
// the tests build.
func test(tests []string, overlay string) (output string, err error) {
	cmd := exec.Command("go", append([]string{"test", "-count=1", "-timeout", "5m"}, tests...)...)
	cmd.Env = append(os.Environ(), fmt.Sprint("WORLDS=", *worlds))
	if overlay != "" {
		cmd.Env = append(cmd.Env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// What names who noticed. A goroutine that was left over, or a process that
// died, fails a package without the name of a test.
var (
	failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)|^panic: (test timed out)|^(panic): |^(goleak): `)
	died    = regexp.MustCompile(`(?m)^FAIL\t(\S+)`)
)

// noticed returns who noticed, by the output of tests that failed.
func noticed(out string) (by []string, err error) {
	if strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]") {
		return nil, fmt.Errorf("does not build:\n%s", out)
	}
	all := failure.FindAllStringSubmatch(out, -1)
	if all == nil {
		all = died.FindAllStringSubmatch(out, -1)
	}
	for _, f := range all {
		if name := strings.Join(f[1:], ""); !slices.Contains(by, name) {
			by = append(by, name)
		}
	}
	if by == nil {
		return nil, fmt.Errorf("could not be tested:\n%s", out)
	}
	return by, nil
}

func try(m mutant) (v verdict) {
	v.mutant = m
	start := time.Now()
	defer func() { v.took = time.Since(start) }()
	var source []byte
	if source, v.err = os.ReadFile(m.file); v.err != nil {
		return v
	}
	var broken, dir, overlay string
	if broken, v.err = m.apply(string(source)); v.err != nil {
		return v
	}
	if dir, v.err = os.MkdirTemp("", "mutant-"); v.err != nil {
		return v
	}
	defer os.RemoveAll(dir)
	if overlay, v.err = replace(dir, m.file, broken); v.err != nil {
		return v
	}
	if out, err := test(m.tests, overlay); err != nil {
		v.failed, v.err = noticed(out)
	}
	return v
}

// replace makes an overlay file in which the text stands for the file.
func replace(dir, file, text string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	broken := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: broken}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, overlay, 0o600)
}
