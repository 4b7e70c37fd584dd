// Mutants asks whether the tests would notice: it breaks one rule after the
// other, runs the tests on each, and writes who noticed into docs/mutants.md.
//
//	go run ./internal/mutants [-only WORD] [-again] [-worlds N] [-j N] [-o FILE] [LIST...]
//
// Each LIST is a file of this directory, without .txt: all of them if none is
// named. What the report says of other lists stays. With -again, so does what it
// says of mutants that were caught and have not changed: those that are new, or
// survived, are tried. The working tree is not touched.
//
// The mutants of a list are compiled together, each function once for every
// mutant that changes it, and a test binary is run once for each (batch.go). What
// cannot be compiled so, as the change of a type, is built on its own by go test
// -overlay. The exit status is 1 if fewer than 97 of a hundred mutants of a list
// are caught, if a survivor has no sentence that says why, if a mutant does not
// compile, or if it no longer fits the code. README.md says how a list is
// written.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

var (
	only   = flag.String("only", "", "run only mutants whose name, rule or file has this word, and write no file")
	again  = flag.Bool("again", false, "try only mutants that the report does not say were caught")
	worlds = flag.Int("worlds", 5000, "worlds that the simulation tries")
	output = flag.String("o", "docs/mutants.md", "file to write")
	jobs   = flag.Int("j", 2, "mutants at a time")
)

const lists = "internal/mutants"

// wanted is how many of a hundred mutants must be caught.
const wanted = 97

func main() {
	flag.Usage = usage
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprint(flag.CommandLine.Output(), `Breaks one rule after the other, and says which tests noticed.

	go run ./internal/mutants [flags] [LIST...]

Without a LIST all are tried: the files internal/mutants/*.txt. Its mutants are
compiled together; each is then judged by the tests that the list names for its
directory, the quick ones first: the next are for what survives. Tests that do
not end have caught it. internal/mutants/README.md says more.

`)
	flag.PrintDefaults()
}

func run(names []string) error {
	if len(names) == 0 {
		files, err := filepath.Glob(filepath.Join(lists, "*.txt"))
		if err != nil {
			return err
		}
		for _, f := range files {
			names = append(names, strings.TrimSuffix(filepath.Base(f), ".txt"))
		}
	}
	at, err := commit()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		l, err := read(filepath.Join(lists, name+".txt"))
		if err != nil {
			return err
		}
		l.mutants = slices.DeleteFunc(l.mutants, func(m mutant) bool {
			return !strings.Contains(m.name+" "+m.rule+" "+m.file, *only)
		})
		old, err := readReport(*output)
		if err != nil {
			return err
		}
		known := map[string][]string{}
		if *again {
			known = caughtBefore(old[l.name])
		}
		verdicts, err := l.run(known)
		if err != nil {
			return err
		}
		errs = append(errs, l.judge(verdicts))
		if *only == "" {
			if err := rewrite(*output, l.name, section(l, verdicts, at, old[l.name])); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// run tries the mutants of a list, save those that are known to be caught.
func (l list) run(known map[string][]string) ([]verdict, error) {
	b, err := newBatch(l.mutants)
	if err != nil {
		return nil, err
	}
	defer b.close()
	tried := map[string]bool{}
	for _, m := range l.mutants {
		if first := strings.Join(m.stages[0], " "); !tried[first] && known[m.id()] == nil {
			tried[first] = true
			if err := b.healthy(m.stages[0]); err != nil {
				return nil, err
			}
		}
	}
	fmt.Printf("%s: %d of %d mutants compiled together\n", l.name, len(b.has), len(l.mutants))
	verdicts := make([]verdict, len(l.mutants))
	slots := make(chan struct{}, *jobs)
	var wg sync.WaitGroup
	for i, m := range l.mutants {
		if by := known[m.id()]; by != nil {
			verdicts[i] = verdict{mutant: m, failed: by, kept: true}
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			v := b.try(i+1, m)
			verdicts[i] = v
			fmt.Printf("%-8s %-60s %4.0f s  %s\n", v.word(), m.name, v.took.Seconds(), strings.Join(v.failed, " "))
			if v.err != nil {
				fmt.Println(v.err)
			}
		})
	}
	wg.Wait()
	return verdicts, nil
}

// judge returns what is wrong with the list, or with the tests.
func (l list) judge(verdicts []verdict) error {
	var errs []error
	caught := 0
	for _, v := range verdicts {
		switch {
		case v.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", v.name, v.err))
		case v.failed != nil:
			caught++
		case v.note == "":
			errs = append(errs, fmt.Errorf("%s: survived, and nothing says why", v.name))
		}
	}
	if caught*100 < len(verdicts)*wanted {
		errs = append(errs, fmt.Errorf("%s: only %d of %d caught", l.name, caught, len(verdicts)))
	}
	return errors.Join(errs...)
}

// commit says which state of the tree is judged.
func commit() (string, error) {
	id, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("git rev-parse: %w", err)
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--", ".", ":!docs").Output()
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	at := "commit " + strings.TrimSpace(string(id))
	if len(changed) > 0 {
		at += " and what was not committed then"
	}
	return at, nil
}
