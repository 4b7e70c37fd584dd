// Mutants asks whether the protocol's tests would notice: it breaks one rule
// after the other, each in a copy that replaces the file for one run of the
// tests (go test -overlay), and writes who noticed into docs/mutants.md.
//
//	go run ./internal/mutants [-only WORD] [-worlds N] [-o FILE]
//
// The working tree is not touched. The exit status is 1 if fewer than 95 of a
// hundred mutants are caught, or if one no longer fits the code.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	list   = flag.String("list", "internal/mutants/mutants.txt", "file with the mutants")
	only   = flag.String("only", "", "run only mutants whose name or rule has this word, and write no file")
	worlds = flag.Int("worlds", 5000, "worlds that each simulation tries")
	output = flag.String("o", "docs/mutants.md", "file to write")
	jobs   = flag.Int("j", 2, "mutants at a time")
)

// A verdict is what the tests said about a mutant.
type verdict struct {
	mutant
	failed []string // top-level tests that failed; empty: it survived
	err    error    // the mutant could not be tried
	took   time.Duration
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	text, err := os.ReadFile(*list)
	if err != nil {
		return err
	}
	mutants, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", *list, err)
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool {
		return !strings.Contains(m.name+" "+m.rule, *only)
	})
	if out, err := test(); err != nil {
		return fmt.Errorf("the tests fail without a mutant:\n%s", out)
	}
	verdicts := make([]verdict, len(mutants))
	slots := make(chan struct{}, *jobs)
	var wg sync.WaitGroup
	for i, m := range mutants {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			v := try(m)
			verdicts[i] = v
			fmt.Printf("%-8s %-40s %4.0f s  %s\n", v.word(), m.name, v.took.Seconds(), strings.Join(v.failed, " "))
		})
	}
	wg.Wait()
	report, caught := summarize(verdicts)
	if *only == "" {
		if err := os.WriteFile(*output, []byte(report), 0o644); err != nil {
			return err
		}
	}
	for _, v := range verdicts {
		if v.err != nil {
			return fmt.Errorf("%s: %w", v.name, v.err)
		}
	}
	if caught*100 < len(verdicts)*95 {
		return fmt.Errorf("only %d of %d caught", caught, len(verdicts))
	}
	return nil
}

// test runs what a mutant has to survive.
func test(more ...string) (output string, err error) {
	args := append([]string{"test", "-timeout", "5m", "-skip", "Memory"}, more...)
	cmd := exec.Command("go", append(args, "./protocol")...)
	cmd.Env = append(os.Environ(), fmt.Sprint("WORLDS=", *worlds))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)|^(panic: test timed out)|^(panic: )`)

func try(m mutant) (v verdict) {
	v.mutant = m
	start := time.Now()
	defer func() { v.took = time.Since(start) }()
	source, err := os.ReadFile(m.file)
	if err != nil {
		v.err = err
		return v
	}
	broken, err := m.apply(string(source))
	if err != nil {
		v.err = err
		return v
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		v.err = err
		return v
	}
	defer os.RemoveAll(dir)
	overlay, err := replace(dir, m.file, broken)
	if err != nil {
		v.err = err
		return v
	}
	out, err := test("-overlay", overlay)
	if err == nil {
		return v
	}
	for _, f := range failure.FindAllStringSubmatch(out, -1) {
		name := strings.TrimPrefix(strings.TrimSuffix(f[1]+f[2]+f[3], ": "), "panic: ")
		if !slices.Contains(v.failed, name) {
			v.failed = append(v.failed, name)
		}
	}
	if len(v.failed) == 0 {
		v.err = fmt.Errorf("does not build:\n%s", out)
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
