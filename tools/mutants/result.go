package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// survivorsFile lists known survivors: a line with the key of a mutant, and indented lines with the reason.
const survivorsFile = "tools/mutants/survivors.txt"

// survivors maps the key of each known survivor to its reason.
type survivors map[string]string

func readSurvivors(file string) (survivors, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	known, key := survivors{}, ""
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " ") && key != "":
			known[key] = strings.TrimSpace(known[key] + " " + strings.TrimSpace(line))
		case strings.Count(line, " | ") >= 2 && known[line] == "":
			key = strings.TrimSpace(line)
		default:
			return nil, fmt.Errorf("%s:%d: invalid line: write a key (PACKAGE FUNCTION | KIND | CODE) that is not yet in the file, or an indented sentence", file, i+1)
		}
	}
	return known, nil
}

// equivalent reports whether survivorsFile says that a mutant does the same as the code.
func (s survivors) equivalent(m *mutant) bool {
	return strings.HasPrefix(s[m.key()], "equivalent: ")
}

// warnStale prints the entries of a package whose mutant does not exist any more.
func (s survivors) warnStale(dir string, all []*mutant) {
	keys := map[string]bool{}
	for _, m := range all {
		keys[m.key()] = true
	}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if strings.HasPrefix(key, dir+" ") && !keys[key] {
			log.Printf("%s: entry without a mutant, remove it: %s", survivorsFile, key)
		}
	}
}

// A result has the outcomes of a sample of one package.
type result struct {
	pkg      string
	seed     uint64
	of       int // mutants before the sample was taken
	mutants  []*mutant
	outcomes map[*mutant]outcome
	reached  map[*mutant]bool // by any test
	took     time.Duration
}

func (o outcome) String() string {
	return [...]string{"survived", "caught by", "caught: tests do not end", "does not compile"}[o]
}

func (r *result) count(o outcome) int {
	n := 0
	for _, m := range r.mutants {
		if r.outcomes[m] == o {
			n++
		}
	}
	return n
}

// alive returns the survivors that are not equivalent, and the number of equivalent survivors.
func (r *result) alive(known survivors) (alive []*mutant, equivalent int) {
	for _, m := range r.mutants {
		switch {
		case r.outcomes[m] != survived:
		case known.equivalent(m):
			equivalent++
		default:
			alive = append(alive, m)
		}
	}
	return alive, equivalent
}

// percent returns the percentage of caught mutants. Equivalent mutants do not count.
func (r *result) percent(known survivors) float64 {
	alive, equivalent := r.alive(known)
	if len(r.mutants) == equivalent {
		return 100
	}
	return 100 - 100*float64(len(alive))/float64(len(r.mutants)-equivalent)
}

func (r *result) print(w io.Writer, known survivors) {
	alive, equivalent := r.alive(known)
	for _, m := range alive {
		fmt.Fprintf(w, "\n%v\n%s\n    %s\n", m, m.key(), r.why(m, known))
	}
	fmt.Fprintf(w, "\n%s: %d mutants of %d, seed %d: %d caught, %d of them because the tests did not end; %d survived, %d equivalent: %.1f %% caught in %s\n",
		r.pkg, len(r.mutants), r.of, r.seed, r.count(caught)+r.count(timedOut), r.count(timedOut), len(alive), equivalent,
		r.percent(known), r.took.Round(time.Second))
}

// why returns the reason of a survivor.
func (r *result) why(m *mutant, known survivors) string {
	switch {
	case known[m.key()] != "":
		return known[m.key()]
	case !r.reached[m]:
		return "not covered: no test reaches it"
	}
	return "no reason is known"
}

const reportHead = "# Report of the last samples of mutants\n\nWritten by `make mutants`; [CONTRIBUTING.md](../../CONTRIBUTING.md) describes it. " +
	"Equivalent mutants do\nthe same as the code and do not count.\n\n" +
	"| package | seed | mutants | caught | by timeout | survived | equivalent | share caught |\n|---|---|---|---|---|---|---|---|\n"

// update replaces the section and the row of the package in the report.
func (r *result) update(file string, known survivors) error {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	rows, sections := map[string]string{}, map[string]string{}
	for i, part := range bytes.Split(text, []byte("\n## ")) {
		if i == 0 {
			for line := range strings.Lines(string(part)) {
				if name := strings.Split(line, "`"); strings.HasPrefix(line, "| `") {
					rows[name[1]] = line
				}
			}
			continue
		}
		name, body, _ := strings.Cut(string(part), "\n")
		sections[name] = strings.Trim(body, "\n")
	}
	alive, equivalent := r.alive(known)
	rows[r.pkg] = fmt.Sprintf("| `%s` | %d | %d of %d | %d | %d | %d | %d | %.1f %% |\n", r.pkg, r.seed, len(r.mutants), r.of,
		r.count(caught)+r.count(timedOut), r.count(timedOut), len(alive), equivalent, r.percent(known))
	var b strings.Builder
	fmt.Fprintf(&b, "    make mutants PKG=./%s N=%d SEED=%d\n", r.pkg, len(r.mutants), r.seed)
	for _, m := range r.mutants {
		if r.outcomes[m] == survived {
			fmt.Fprintf(&b, "\n- `%s`, %s in `%s`: `%s`", path.Base(m.file), m.kind, m.fn, strings.ReplaceAll(m.before, "`", "'"))
			if m.after != "" {
				fmt.Fprintf(&b, " becomes `%s`", strings.ReplaceAll(m.after, "`", "'"))
			}
			fmt.Fprintf(&b, "\n  %s", r.why(m, known))
		}
	}
	sections[r.pkg] = b.String()
	out := bytes.NewBufferString(reportHead)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		out.WriteString(rows[name])
	}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		fmt.Fprintf(out, "\n## %s\n\n%s\n", name, sections[name])
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// A span is a range of lines.
type span struct{ from, to int }

func contains(spans []span, line int) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.from <= line && line <= s.to })
}

var (
	diffFile = regexp.MustCompile(`^\+\+\+ b/(.+\.go)$`)
	diffHunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)
)

// changedLines returns the lines of Go files that differ from a revision, without tests.
func changedLines(revision string) (map[string][]span, error) {
	out, err := exec.Command("git", "diff", "--unified=0", "--no-color", "--no-ext-diff", revision, "--", "*.go").Output()
	if err != nil {
		return nil, fmt.Errorf("git diff %s: %w", revision, err)
	}
	return parseDiff(string(out)), nil
}

func parseDiff(text string) map[string][]span {
	changed, file := map[string][]span{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "+++ ") {
			file = ""
			if m := diffFile.FindStringSubmatch(line); m != nil && !strings.HasSuffix(m[1], "_test.go") {
				file = m[1]
			}
		}
		if m := diffHunk.FindStringSubmatch(line); m != nil && file != "" {
			from, _ := strconv.Atoi(m[1])
			n := 1
			if m[2] != "" {
				n, _ = strconv.Atoi(m[2])
			}
			if n > 0 {
				changed[file] = append(changed[file], span{from, from + n - 1})
			}
		}
	}
	return changed
}

// packagesOf returns the directories of changed files. It leaves out other modules in subdirectories.
func packagesOf(changed map[string][]span) []string {
	dirs := map[string]bool{}
	for file := range changed {
		dir := filepath.Dir(file)
		if exec.Command("go", "list", "./"+dir).Run() == nil {
			dirs[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}
