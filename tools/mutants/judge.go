package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// memoryLimit is the address space of a test process in KiB. It stops a mutant that allocates without end.
const memoryLimit = 8 << 20

// A judge runs the tests of one package against mutants.
type judge struct {
	dir, bin string
	env      string // of the tests, in addition to the environment of the command; empty: none
	parallel int
	tests    []*test
}

func newJudge(dir, scratch string, parallel int) *judge {
	return &judge{dir: dir, bin: filepath.Join(scratch, filepath.Base(dir)+".test"), parallel: parallel}
}

// A test is a top-level test, the seeds of a fuzz target, or an example.
type test struct {
	name   string
	took   time.Duration
	covers map[*mutant]bool
}

// An outcome is the verdict of the tests about a mutant.
type outcome int

const (
	survived outcome = iota
	caught
	timedOut
	invalid // it would not compile: see exitNoReturn
)

// compile makes the test binary of a directory.
func (j *judge) compile(flags ...string) error {
	args := slices.Concat([]string{"test", "-c", "-vet=off", "-o", j.bin}, flags, []string{"./" + j.dir})
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// measure runs each test alone, and records its time and the mutants that it reaches. It leaves out tests that fail
// or take longer than slow, and returns their names.
func (j *judge) measure(p *pkg, mutants []*mutant, slow time.Duration, scratch string) (left []string, _ error) {
	if err := j.compile("-cover", "-covermode=set", "-coverpkg="+p.path); err != nil {
		return nil, err
	}
	names, err := j.command(context.Background(), 0, "-test.list=.").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", j.dir, err)
	}
	var lock sync.Mutex
	each(j.parallel, slices.Collect(bytes.Lines(names)), func(line []byte) {
		name := strings.TrimSpace(string(line))
		if strings.HasPrefix(name, "Benchmark") {
			return
		}
		profile := filepath.Join(scratch, "cover-"+name)
		defer os.Remove(profile)
		begin := time.Now()
		_, code := j.run([]string{name}, 0, slow, "-test.coverprofile="+profile)
		t := &test{name: name, took: time.Since(begin)}
		blocks, err := readProfile(profile)
		if err == nil {
			t.covers = covered(p, mutants, blocks)
		}
		lock.Lock()
		defer lock.Unlock()
		switch {
		case code != 0:
			left = append(left, name)
		case len(t.covers) > 0:
			j.tests = append(j.tests, t)
		}
	})
	slices.SortFunc(j.tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	return left, nil
}

// simulate chooses the tests whose names contain the text, and runs them without a mutant in the environment env. The
// tests may reach more mutants than in measure, so they try all mutants. The binary is the one of settle.
func (j *judge) simulate(text, env string, mutants []*mutant) error {
	j.env = env
	names, err := j.command(context.Background(), 0, "-test.list="+text).Output()
	if err != nil {
		return fmt.Errorf("list the tests of %s: %w", j.dir, err)
	}
	covers := map[*mutant]bool{}
	for _, m := range mutants {
		covers[m] = true
	}
	for line := range bytes.Lines(names) {
		j.tests = append(j.tests, &test{name: strings.TrimSpace(string(line)), covers: covers})
	}
	begin := time.Now()
	if out, code := j.run(namesOf(j.tests), 0, time.Hour); code != 0 {
		return fmt.Errorf("the tests of %s fail with %s although no mutant is active:\n%s", j.dir, env, out)
	}
	for _, t := range j.tests {
		t.took = time.Since(begin) / time.Duration(len(j.tests))
	}
	return nil
}

// settle compiles the tests with the mutants, and leaves out tests that fail although no mutant is active: a test that
// counts allocations, for example. It returns their names.
func (j *judge) settle(p *pkg, w *woven) (left []string, _ error) {
	if err := j.compile(w.flags(p.path)...); err != nil {
		return nil, err
	}
	for range 3 {
		out, code := j.run(namesOf(j.tests), 0, limit(j.tests))
		if code == 0 {
			return left, nil
		}
		failed := failures(out)
		if len(failed) == 0 {
			return nil, fmt.Errorf("the tests of %s crash although no mutant is active:\n%s", j.dir, out)
		}
		left = append(left, failed...)
		j.tests = slices.DeleteFunc(j.tests, func(t *test) bool { return slices.Contains(failed, t.name) })
	}
	return left, nil
}

// try runs the tests that reach a mutant, quick tests first, and returns the test that fails. A test must fail twice,
// the second time alone: one failure may come from a busy machine.
func (j *judge) try(m *mutant, number int) (outcome, string) {
	tests := slices.DeleteFunc(slices.Clone(j.tests), func(t *test) bool { return !t.covers[m] })
	for len(tests) > 0 {
		n, sum := 0, time.Duration(0)
		for n < len(tests) && (n == 0 || sum+tests[n].took < 2*time.Second) {
			sum += tests[n].took
			n++
		}
		if len(tests)-n < 3 || tests[0].took > time.Second {
			n = len(tests)
		}
		batch := tests[:n]
		tests = tests[n:]
		out, code := j.run(namesOf(batch), number, limit(batch), "-test.failfast")
		failed := failures(out)
		switch {
		case code == 0:
			continue
		case code == exitNoReturn:
			return invalid, ""
		case code < 0 || strings.Contains(out, "panic: test timed out"):
			return timedOut, ""
		case len(failed) == 0 || strings.Contains(out, "\npanic: ") || strings.Contains(out, "fatal error: "):
			return caught, "a crash"
		}
		if _, code := j.run(failed, number, limit(batch)); code != 0 {
			return caught, failed[0]
		}
		// A chance failure: run the others of the batch, which -test.failfast has left out.
		batch = slices.DeleteFunc(slices.Clone(batch), func(t *test) bool { return slices.Contains(failed, t.name) })
		tests = slices.Concat(batch, tests)
	}
	return survived, ""
}

// limit is the timeout of tests. It is generous, because a busy machine must not look like an endless loop.
func limit(tests []*test) time.Duration {
	sum := 10 * time.Second
	for _, t := range tests {
		sum += 5 * t.took
	}
	return sum
}

func namesOf(tests []*test) []string {
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	return names
}

// command runs the test binary in the directory of its package, as the go command does, with limited memory.
func (j *judge) command(ctx context.Context, number int, args ...string) *exec.Cmd {
	script := fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memoryLimit)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, j.bin, "-test.short"}, args...)...)
	cmd.Dir = j.dir
	cmd.Env = append(os.Environ(), variable+"="+strconv.Itoa(number))
	if j.env != "" {
		cmd.Env = append(cmd.Env, j.env)
	}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs tests with a mutant, and returns their output and the exit code, which is -1 if it had to kill them.
func (j *judge) run(names []string, number int, timeout time.Duration, args ...string) (string, int) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout+10*time.Second)
	defer cancel()
	args = append(args, "-test.run=^("+strings.Join(names, "|")+")$", "-test.timeout="+timeout.String())
	out, err := j.command(ctx, number, args...).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(out), 0
	case errors.As(err, &exit):
		return string(out), exit.ExitCode()
	}
	return err.Error() + "\n" + string(out), -1
}

var failLine = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// failures returns the top-level tests that failed.
func failures(out string) []string {
	names := map[string]bool{}
	for _, m := range failLine.FindAllStringSubmatch(out, -1) {
		names[m[1]] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// A block of a coverage profile.
type block struct {
	file                   string // import path and name of the file
	line, col, end, endCol int
	reached                bool
}

func (b *block) contains(line, col int) bool {
	return (line > b.line || line == b.line && col >= b.col) && (line < b.end || line == b.end && col < b.endCol)
}

var profileLine = regexp.MustCompile(`^(.+):(\d+)\.(\d+),(\d+)\.(\d+) \d+ (\d+)$`)

func readProfile(file string) ([]block, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var blocks []block
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := profileLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		var n [5]int
		for i := range n {
			n[i], _ = strconv.Atoi(m[i+2])
		}
		blocks = append(blocks, block{m[1], n[0], n[1], n[2], n[3], n[4] > 0})
	}
	return blocks, nil
}

// covered returns the mutants that a profile reaches. No block contains the conditions of cases: such a mutant counts as
// reached if its function is.
func covered(p *pkg, mutants []*mutant, blocks []block) map[*mutant]bool {
	reached := map[*mutant]bool{}
	byFile := map[string][]block{}
	for _, b := range blocks {
		byFile[b.file] = append(byFile[b.file], b)
	}
	for _, m := range mutants {
		inBlock, inFunction := false, false
		for _, b := range byFile[p.path+"/"+filepath.Base(m.file)] {
			if b.contains(m.at.Line, m.at.Column) {
				inBlock = true
				reached[m] = reached[m] || b.reached
			}
			inFunction = inFunction || b.reached && b.line >= m.in.from.Line && b.end <= m.in.to.Line
		}
		if !inBlock && inFunction {
			reached[m] = true
		}
	}
	maps.DeleteFunc(reached, func(_ *mutant, yes bool) bool { return !yes })
	return reached
}

// each calls f for all items, some at a time.
func each[T any](parallel int, items []T, f func(T)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(item)
		})
	}
	wg.Wait()
}
