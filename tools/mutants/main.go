// Command mutants tests the tests. It makes small changes (mutants) in the code, one at a time, and
// reports the mutants that no test notices (survivors).
//
//	make mutants PKG=./store N=100 SEED=1   a random sample of the mutants of a package
//	make mutants DIFF=main                  mutants of the lines that changed since a revision
//	make faults                             the faults that the protocol core has had (faults.txt)
//
// The changes come from the syntax tree: a condition is negated or forced, the boundary of a comparison
// is moved, == becomes !=, + becomes -, a term of && or || is dropped, a zero or negated value is returned,
// a constant is changed, a statement or the body of a case is removed, break and continue are swapped.
//
// One test binary contains all mutants of a sample: each function begins with a switch on an environment
// variable that chooses a mutated copy of its body. Coverage profiles, one of each test, select the tests
// that reach a mutant. Tests run with -test.short. A mutant that does not compile does not count. A mutant
// that makes a test run into its timeout is caught. A mutant that no test reaches is a survivor. Values of
// package constants and variables are not changed.
//
// go-gremlins/gremlins is not used: it compiles the tests again for each mutant, removes no statements and
// cases, takes no sample, and cannot record that a survivor is equivalent to the code.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// dependents are other packages whose tests run on mutants that survive the tests of their own package.
var dependents = map[string][]string{
	"protocol":                 {"client"},
	"protocol/internal/client": {"client"},
	"protocol/internal/names":  {"protocol"},
	"protocol/internal/sent":   {"protocol"},
	"server":                   {"rest"},
	"store":                    {"lazy"},
	"xds":                      {"wire", "store"},
}

// simulations are tests of a package that play as many random worlds as their environment says. A mutant meets few
// worlds first. A survivor that is not known to be equivalent meets many.
var simulations = map[string]struct{ tests, few, many string }{
	"protocol":                 {"Simulation", "WORLDS=500", "WORLDS=5000"},
	"protocol/internal/client": {"Simulation", "WORLDS=500", "WORLDS=5000"},
}

// partsOfSession has the packages that only the session uses. Its tests and worlds also run on their mutants.
const partsOfSession = "protocol/internal"

func dependentsOf(dir string) []string {
	if session := simulatedIn(dir); session != dir {
		return append([]string{session}, dependents[session]...)
	}
	return dependents[dir]
}

// simulatedIn returns the package whose simulations try the mutants of a package.
func simulatedIn(dir string) string {
	if _, own := simulations[dir]; !own && filepath.Dir(dir) == partsOfSession {
		return "protocol"
	}
	return dir
}

// A pkg is a package with mutants.
type pkg struct {
	root      string // absolute path of the module
	dir, path string // relative to the module; import path
	name      string
	sources   map[string][]byte // by path relative to the module
}

// settings are the flags.
type settings struct {
	n, parallel int
	seed        uint64
	faults      string
	slow        time.Duration
	only        string
	verbose     bool
}

func main() {
	log.SetFlags(0)
	var s settings
	flag.IntVar(&s.n, "n", 100, "`number` of mutants of each package")
	flag.Uint64Var(&s.seed, "seed", 1, "`seed` of the sample")
	flag.IntVar(&s.parallel, "p", runtime.NumCPU(), "`number` of processes that run tests")
	flag.DurationVar(&s.slow, "slow", time.Minute, "leave out tests that take longer than this `duration` alone")
	flag.StringVar(&s.faults, "faults", "", "take the faults of this `file` in place of random mutants")
	flag.StringVar(&s.only, "only", "", "take only mutants whose file or key contains this `text`; the key is package, function, kind, code")
	flag.BoolVar(&s.verbose, "v", false, "print each mutant and the test that catches it")
	diff := flag.String("diff", "", "take only mutants of lines that changed since this `revision`; without packages, of all")
	list := flag.Bool("list", false, "list the mutants and run no test")
	report := flag.String("report", "", "write the result into this `file`")
	floor := flag.Float64("floor", 0, "fail if fewer `percent` of the mutants are caught")
	flag.Parse()
	if err := run(s, *diff, *report, *list, *floor, flag.Args()); err != nil {
		log.Fatal("mutants: ", err)
	}
}

func run(s settings, diff, report string, list bool, floor float64, dirs []string) error {
	root, module, err := moduleRoot()
	if err != nil {
		return err
	}
	err = os.Chdir(root)
	if err != nil {
		return err
	}
	known, err := readSurvivors(survivorsFile)
	if err != nil {
		return err
	}
	var changed map[string][]span
	if diff != "" {
		changed, err = changedLines(diff)
		if err != nil {
			return err
		}
		if len(dirs) == 0 {
			dirs = packagesOf(changed)
		}
	}
	if len(dirs) == 0 {
		return errors.New("no packages: write their directories, such as ./store, or -diff REVISION")
	}
	var pkgs []*pkg
	mutants := map[*pkg][]*mutant{}
	for _, dir := range dirs {
		p, all, err := load(root, module, filepath.Clean(strings.TrimPrefix(dir, "./")))
		if err != nil {
			return err
		}
		pkgs, mutants[p] = append(pkgs, p), all
	}
	if s.faults != "" {
		err := placeFaults(s.faults, pkgs, mutants)
		if err != nil {
			return err
		}
		pkgs = slices.DeleteFunc(pkgs, func(p *pkg) bool { return len(mutants[p]) == 0 })
	}
	var below []string
	for _, p := range pkgs {
		all := mutants[p]
		if s.faults != "" {
			s.n = len(all)
		} else {
			known.warnStale(p.dir, all)
		}
		sample := slices.DeleteFunc(all, func(m *mutant) bool {
			return diff != "" && !contains(changed[m.file], m.at.Line) || !strings.Contains(m.file+" "+m.key(), s.only)
		})
		if list {
			for _, m := range sample {
				fmt.Println(m.key())
			}
			continue
		}
		r, err := s.sample(p, sample, known)
		if err != nil {
			return err
		}
		r.print(os.Stdout, known)
		if report != "" {
			if err := r.update(report, known); err != nil {
				return err
			}
		}
		if percent := r.percent(known); percent < floor {
			below = append(below, fmt.Sprintf("%s: %.1f %% of the mutants are caught, fewer than %.1f %%", p.dir, percent, floor))
		}
	}
	if len(below) > 0 {
		return errors.New(strings.Join(below, "\n"))
	}
	return nil
}

func moduleRoot() (root, module string, err error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}\n{{.Path}}").Output()
	if err != nil {
		return "", "", fmt.Errorf("go list -m: %w", err)
	}
	root, module, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return root, module, nil
}

// load reads a package and returns all its mutants.
func load(root, module, dir string) (*pkg, []*mutant, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Name}}\n{{join .GoFiles \"\\n\"}}", "./"+dir).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list ./%s: %w", dir, err)
	}
	lines := strings.Fields(string(out))
	p := &pkg{root: root, dir: dir, path: module + "/" + filepath.ToSlash(dir), name: lines[0], sources: map[string][]byte{}}
	var all []*mutant
	for _, name := range lines[1:] {
		file := filepath.Join(dir, name)
		p.sources[file], err = os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		found, err := find(dir, file, p.sources[file])
		if err != nil {
			return nil, nil, err
		}
		all = append(all, found...)
	}
	return p, all, nil
}

// sample tries some of the mutants of a package.
func (s settings) sample(p *pkg, all []*mutant, known survivors) (*result, error) {
	begin := time.Now()
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	r := &result{pkg: p.dir, seed: s.seed, of: len(all), outcomes: map[*mutant]outcome{}, reached: map[*mutant]bool{}}
	chosen := shuffle(all, s.seed)
	chosen = chosen[:min(len(chosen), s.n+s.n/4)] // some do not compile
	w, err := weavePackage(p, chosen, scratch)
	if err != nil {
		return nil, err
	}
	r.mutants = w.mutants[:min(len(w.mutants), s.n)]
	log.Printf("%s: %d mutants compiled, of %d", p.dir, len(r.mutants), len(all))
	alive := r.mutants
	for _, dir := range append([]string{p.dir}, dependentsOf(p.dir)...) {
		if len(alive) == 0 {
			break
		}
		if err := s.judge(p, dir, w, alive, r, scratch); err != nil {
			return nil, err
		}
		alive = slices.DeleteFunc(slices.Clone(alive), func(m *mutant) bool { return r.outcomes[m] != survived })
	}
	alive = slices.DeleteFunc(alive, known.equivalent)
	dir := simulatedIn(p.dir)
	if more, ok := simulations[dir]; ok && len(alive) > 0 {
		j := newJudge(dir, scratch, s.parallel)
		if err := j.simulate(more.tests, more.many, alive); err != nil {
			return nil, err
		}
		s.tryAll(p, j, w, alive, r)
	}
	r.mutants = slices.DeleteFunc(r.mutants, func(m *mutant) bool { return r.outcomes[m] == invalid })
	slices.SortFunc(r.mutants, func(a, b *mutant) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.at.Offset, b.at.Offset), cmp.Compare(a.kind, b.kind))
	})
	r.took = time.Since(begin)
	return r, nil
}

// shuffle orders mutants by a hash of the seed and their keys. So a change of the package replaces few mutants
// of a sample.
func shuffle(mutants []*mutant, seed uint64) []*mutant {
	type hashed struct {
		*mutant
		hash [sha256.Size]byte
	}
	var list []hashed
	for _, m := range mutants {
		list = append(list, hashed{m, sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, m.key()))})
	}
	slices.SortFunc(list, func(a, b hashed) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	var shuffled []*mutant
	for _, l := range list {
		shuffled = append(shuffled, l.mutant)
	}
	return shuffled
}

// judge tries mutants by the tests of a directory.
func (s settings) judge(p *pkg, dir string, w *woven, alive []*mutant, r *result, scratch string) error {
	j := newJudge(dir, scratch, s.parallel)
	j.env = simulations[dir].few
	log.Printf("%s: measure the tests of %s", p.dir, dir)
	left, err := j.measure(p, alive, s.slow, scratch)
	if err != nil {
		return err
	}
	if len(j.tests) > 0 {
		more, err := j.settle(p, w)
		if err != nil {
			return err
		}
		left = append(left, more...)
	}
	if len(left) > 0 {
		log.Printf("%s: left out, they fail or are slow: %s", dir, strings.Join(left, ", "))
	}
	s.tryAll(p, j, w, alive, r)
	return nil
}

// tryAll tries mutants in parallel and records their outcomes.
func (s settings) tryAll(p *pkg, j *judge, w *woven, alive []*mutant, r *result) {
	var lock sync.Mutex
	var done, found atomic.Int64
	each(s.parallel, alive, func(m *mutant) {
		result, by := j.try(m, w.number[m])
		lock.Lock()
		defer lock.Unlock()
		r.outcomes[m] = result
		r.reached[m] = r.reached[m] || slices.ContainsFunc(j.tests, func(t *test) bool { return t.covers[m] })
		if result == caught || result == timedOut {
			found.Add(1)
		}
		if s.verbose {
			log.Printf("%v\n\t%s %s", m, result, by)
		}
		if n := done.Add(1); n%20 == 0 || int(n) == len(alive) {
			log.Printf("%s: %d of %d mutants tried by %s, %d caught", p.dir, n, len(alive), j.dir, found.Load())
		}
	})
}
