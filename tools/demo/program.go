package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// built is where make and the demo put the program.
const built = "bin/chancery"

// program returns the Chancery to show, and says which it is: the one that CHANCERY names,
// one that was built of these files, one that is installed, or else one that it compiles.
func program(ctx context.Context, compileAlways bool) (string, error) {
	if named := os.Getenv("CHANCERY"); named != "" {
		return shown(ctx, named, "named by CHANCERY")
	}
	if !compileAlways {
		if current(built, ".") {
			return shown(ctx, built, "built already")
		}
		if installed, err := exec.LookPath("chancery"); err == nil {
			return shown(ctx, installed, "installed; DEMO=--compile takes these files instead")
		}
	}
	if err := compile(ctx); err != nil {
		return "", err
	}
	return filepath.Abs(built)
}

// shown says which program it is.
func shown(ctx context.Context, path, how string) (string, error) {
	version, err := exec.CommandContext(ctx, path, "version").Output() //nolint:gosec // who runs the demo says which program
	if err != nil {
		return "", fmt.Errorf("%s version: %w", path, err)
	}
	say("Chancery is %s (%s):\n    %s", path, how, strings.TrimSpace(string(version)))
	return filepath.Abs(path)
}

// current reports whether a program is newer than all that it is made of below root.
func current(program, root string) bool {
	of, err := os.Stat(program)
	if err != nil {
		return false
	}
	newer := false
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch name := e.Name(); {
		case err != nil:
			return err
		case e.IsDir() && path != root && (strings.HasPrefix(name, ".") || path == filepath.Dir(program) || name == "testdata" || name == "docs" || name == "e2e" || name == "bench" || name == "examples" || name == "demo"):
			return filepath.SkipDir
		case e.IsDir() || strings.HasSuffix(name, "_test.go") || filepath.Ext(name) == ".md":
			return nil
		}
		i, err := e.Info()
		if err == nil && i.ModTime().After(of.ModTime()) {
			newer = true
			return filepath.SkipAll
		}
		return err
	})
	return err == nil && !newer
}

// compile makes the program, and says how far it is: from nothing that takes a while.
func compile(ctx context.Context) error {
	deps, err := exec.CommandContext(ctx, "go", "list", "-deps", "./cmd/chancery").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	all := bytes.Count(deps, []byte("\n"))
	say("Chancery is compiled: %d packages at most, half a minute on two cores the first time, and some seconds later on.", all)
	start := time.Now()
	c := exec.CommandContext(ctx, "go", "build", "-v", "-o", built, "./cmd/chancery")
	out, err := c.StderrPipe() // a line for each package that is compiled
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	told := progress{start: start, last: start, all: all}
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		told.compiled(time.Now())
	}
	if err := c.Wait(); err != nil {
		return fmt.Errorf("go build: %w\n%s", cmp.Or(ctx.Err(), err), strings.Join(said, "\n"))
	}
	fmt.Printf("    done in %.1f s: %s\n", time.Since(start).Seconds(), built)
	return nil
}

// A progress is how far compiling is.
type progress struct {
	start, last time.Time
	n, all      int
}

// compiled counts a package, and prints the count every few seconds.
func (p *progress) compiled(now time.Time) {
	p.n++
	if now.Sub(p.last) < 2*time.Second {
		return
	}
	p.last = now
	fmt.Printf("    %d of %d packages, %.0f s\n", p.n, p.all, now.Sub(p.start).Seconds())
}
