package main

import (
	"context"
	"encoding/json"
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

// A batch is a tree with many mutants in it, built once. Each run of its tests
// says by the environment variable MUTANT which of them is in force, by number;
// none is in force if it says nothing. The programs that tests build have the
// same mutants and learn the number the same way.
type batch struct {
	dir     string             // what is built
	sources map[string]*source // by file
	has     map[int]bool       // who is in it

	mu       sync.Mutex
	binaries map[string]*binary // by package
}

// A binary is the test binary of a package.
type binary struct {
	built func() (path string, err error)
	mu    sync.Mutex
	took  map[string]time.Duration // without a mutant, by flags
}

// newBatch compiles those mutants that can stand beside each other. Number 1 is
// the first of all.
func newBatch(mutants []mutant) (b *batch, err error) {
	b = &batch{sources: map[string]*source{}, has: map[int]bool{}, binaries: map[string]*binary{}}
	if b.dir, err = os.MkdirTemp("", "mutants-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	for i, m := range mutants {
		if err := b.add(i+1, m); err != nil {
			return nil, err
		}
	}
	return b, b.build()
}

func (b *batch) close() { os.RemoveAll(b.dir) }

// add adds a mutant if it can stand beside others and its tests can be run from
// a binary. Who does not fit the code is told so when it is tried on its own.
func (b *batch) add(number int, m mutant) error {
	for _, s := range m.stages {
		if _, _, ok := split(s); !ok {
			return nil
		}
	}
	s := b.sources[m.file]
	if s == nil {
		text, err := os.ReadFile(m.file)
		if err != nil {
			return err
		}
		f, err := parseFile(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", m.file, err)
		}
		s = &source{file: f}
		b.sources[m.file] = s
	}
	if broken, err := m.apply(s.text); err == nil {
		if vs := s.with(number, broken); vs != nil {
			s.add(vs)
			b.has[number] = true
		}
	}
	return nil
}

// overlay is the file that tells the go command what stands for what.
func (b *batch) overlay() string { return filepath.Join(b.dir, "overlay.json") }

// write writes the sources, and the overlay that puts them in their place.
func (b *batch) write() error {
	stands := map[string]string{}
	put := func(path, text string) error {
		path, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		stands[path] = filepath.Join(b.dir, fmt.Sprint(len(stands), "_", filepath.Base(path)))
		return os.WriteFile(stands[path], []byte(text), 0o600)
	}
	for _, path := range slices.Sorted(maps.Keys(b.sources)) {
		s := b.sources[path]
		err := put(path, s.String())
		if err == nil {
			err = put(filepath.Join(filepath.Dir(path), "mutant_in_force.go"), s.inForce())
		}
		if err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": stands})
	if err != nil {
		return err
	}
	return os.WriteFile(b.overlay(), overlay, 0o600)
}

// culprit finds in what a compiler says the numbers of mutants it objects to.
var culprit = regexp.MustCompile(`\bmutant(\d+)\.go:`)

// build compiles what has mutants. Those the compiler objects to are left out:
// they are built on their own, and judged by what the compiler says then.
func (b *batch) build() error {
	dirs := map[string]bool{}
	for path := range b.sources {
		dirs["./"+filepath.Dir(path)] = true
	}
	for {
		if err := b.write(); err != nil || len(dirs) == 0 {
			return err
		}
		args := append([]string{"build", "-o", os.DevNull, "-overlay", b.overlay()}, slices.Sorted(maps.Keys(dirs))...)
		out, err := exec.Command("go", args...).CombinedOutput()
		if err == nil {
			return nil
		}
		all := culprit.FindAllSubmatch(out, -1)
		if all == nil {
			return fmt.Errorf("the mutants do not compile together:\n%s", out)
		}
		for _, c := range all {
			number, _ := strconv.Atoi(string(c[1]))
			delete(b.has, number)
			for _, s := range b.sources {
				s.drop(number)
			}
		}
	}
}

// split cuts arguments of go test into packages and flags of a test binary, if
// that is all they are.
func split(args []string) (packages, flags []string, ok bool) {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case strings.HasPrefix(a, "./"):
			packages = append(packages, a)
		case a == "-short":
			flags = append(flags, "-test.short")
		case (a == "-run" || a == "-skip") && i+1 < len(args):
			i++
			flags = append(flags, "-test."+a[1:]+"="+args[i])
		default:
			return nil, nil, false
		}
	}
	return packages, flags, len(packages) > 0
}

// of returns the test binary of a package, which is built when it is needed.
func (b *batch) of(pkg string) *binary {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.binaries[pkg] == nil {
		path := filepath.Join(b.dir, fmt.Sprint(len(b.binaries), ".test"))
		b.binaries[pkg] = &binary{took: map[string]time.Duration{}, built: sync.OnceValues(func() (string, error) {
			out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", b.overlay(), "-o", path, pkg).CombinedOutput()
			if err != nil {
				return "", fmt.Errorf("the tests of %s do not compile:\n%s", pkg, out)
			}
			return path, nil
		})}
	}
	return b.binaries[pkg]
}

// healthy returns an error if tests fail that no mutant disturbs.
func (b *batch) healthy(args []string) error {
	packages, flags, ok := split(args)
	if !ok {
		if out, err := test(args, ""); err != nil {
			return fmt.Errorf("the tests fail without a mutant:\n%s", out)
		}
	}
	for _, pkg := range packages {
		if _, _, err := b.patience(pkg, flags); err != nil {
			return err
		}
	}
	return nil
}

// errFailed says that tests failed, not that they could not be run.
var errFailed = errors.New("tests failed")

// test runs tests with a mutant in force, package by package, and stops at the
// first that notices.
func (b *batch) test(number int, args []string) (output string, err error) {
	packages, flags, _ := split(args)
	for _, pkg := range packages {
		if out, err := b.testPackage(number, pkg, flags); err != nil {
			return out, err
		}
	}
	return "", nil
}

func (b *batch) testPackage(number int, pkg string, flags []string) (string, error) {
	path, limit, err := b.patience(pkg, flags)
	if err != nil {
		return "", err
	}
	return b.start(path, number, pkg, flags, limit)
}

// patience returns how long the tests of a package, a binary, may run with a
// mutant, by how long they run without: they are run so first.
func (b *batch) patience(pkg string, flags []string) (path string, limit time.Duration, err error) {
	bin := b.of(pkg)
	if path, err = bin.built(); err != nil {
		return "", 0, err
	}
	bin.mu.Lock()
	defer bin.mu.Unlock()
	by := strings.Join(flags, " ")
	if bin.took[by] == 0 {
		start := time.Now()
		if out, err := b.start(path, 0, pkg, flags, 10*time.Minute); err != nil {
			return "", 0, fmt.Errorf("%s fails without a mutant:\n%s", pkg, out)
		}
		bin.took[by] = time.Since(start)
	}
	return path, 20*time.Second + 5*bin.took[by], nil
}

// start runs a test binary, as go test does.
func (b *batch) start(path string, number int, pkg string, flags []string, limit time.Duration) (string, error) {
	// The binary itself says best what it was at when its time was over. It may
	// have been left unable to.
	ctx, cancel := context.WithTimeout(context.Background(), limit+10*time.Second)
	defer cancel()
	// What a mutant makes grow without end shall not take the machine with it.
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 8388608; exec "$0" "$@"`, path, "-test.timeout", limit.String()}, flags...)...)
	cmd.Dir, cmd.WaitDelay = pkg, time.Second
	cmd.Env = append(environ(b.overlay()), fmt.Sprint("MUTANT=", number))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return string(out) + "\npanic: " + timedOut + "\n", errFailed
	case errors.As(err, &exit):
		return string(out) + "\nFAIL\t" + pkg + "\n", errFailed
	}
	return string(out), err
}

// environ is what tests find around them. An overlay also reaches the programs
// that they build.
func environ(overlay string) []string {
	env := append(os.Environ(), fmt.Sprint("WORLDS=", *worlds))
	if overlay != "" {
		env = append(env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	return env
}
