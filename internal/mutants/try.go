package main

import (
	"encoding/json"
	"errors"
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
	stage  int      // whose tests they are of, the first being 0
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

// test runs tests by the go command, with what an overlay puts into the tree.
func test(tests []string, overlay string) (output string, err error) {
	cmd := exec.Command("go", append([]string{"test", "-count=1", "-timeout", "5m"}, tests...)...)
	cmd.Env = environ(overlay)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = errFailed
	}
	return string(out), err
}

// timedOut stands for a test that did not end.
const timedOut = "test timed out"

// What names who noticed. A goroutine that was left over, or a process that
// died, fails a package without the name of a test.
var (
	failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)|^panic: (test timed out)|^(panic): |^(fatal error): |^(goleak): `)
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

// try tries a mutant, from the batch if it is in there.
func (b *batch) try(number int, m mutant) (v verdict) {
	v.mutant = m
	start := time.Now()
	defer func() { v.took = time.Since(start) }()
	run := func(tests []string) (string, error) { return b.test(number, tests) }
	if !b.has[number] {
		overlay, remove, err := m.alone()
		if err != nil {
			v.err = err
			return v
		}
		defer remove()
		run = func(tests []string) (string, error) { return test(tests, overlay) }
	}
	for i, tests := range m.stages {
		out, err := run(tests)
		if err == nil {
			continue
		}
		v.stage, v.err = i, err
		if errors.Is(err, errFailed) {
			v.failed, v.err = noticed(out)
		}
		return v
	}
	return v
}

// alone makes an overlay file with one mutant.
func (m mutant) alone() (overlay string, remove func(), err error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", nil, err
	}
	broken, err := m.apply(string(source))
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	if overlay, err = replace(dir, m.file, broken); err != nil {
		remove()
		return "", nil, err
	}
	return overlay, remove, nil
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
