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

// built is the path of the program that make and the demo compile.
const built = "bin/chancery"

// program returns the path of the Chancery to show, and prints it. The order of choice is: the
// program that CHANCERY names, an up-to-date build of this repository, an installed program, a
// new build.
func program(ctx context.Context, compileAlways bool) (string, error) {
	if named := os.Getenv("CHANCERY"); named != "" {
		return shown(ctx, named, "named by CHANCERY")
	}
	if !compileAlways {
		if current(built, ".") {
			return shown(ctx, built, "an up-to-date build")
		}
		if installed, err := exec.LookPath("chancery"); err == nil {
			return shown(ctx, installed, "installed; DEMO=--compile compiles this repository instead")
		}
	}
	if err := compile(ctx); err != nil {
		return "", err
	}
	return filepath.Abs(built)
}

// shown prints the path and version of a program.
func shown(ctx context.Context, path, how string) (string, error) {
	version, err := exec.CommandContext(ctx, path, "version").Output() //nolint:gosec // the user of the demo chooses the program
	if err != nil {
		return "", fmt.Errorf("%s version: %w", path, err)
	}
	say("Chancery is %s (%s):\n    %s", path, how, strings.TrimSpace(string(version)))
	return filepath.Abs(path)
}

// current reports whether a program is newer than its sources below root.
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

// compile compiles the program, and prints its progress: a first build takes a while.
func compile(ctx context.Context) error {
	deps, err := exec.CommandContext(ctx, "go", "list", "-deps", "./cmd/chancery").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	all := bytes.Count(deps, []byte("\n"))
	say("Compiling Chancery: at most %d packages. The first time takes half a minute on two cores, later builds some seconds.", all)
	start := time.Now()
	c := exec.CommandContext(ctx, "go", "build", "-v", "-o", built, "./cmd/chancery")
	out, err := c.StderrPipe() // one line for each compiled package
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

// A progress counts the compiled packages.
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
