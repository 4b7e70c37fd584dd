package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const head = `# Would the tests notice?

Written by ` + "`make mutants`" + `, which breaks one rule after the other and runs on each the tests that are named here. The
changes stand in the lists of [internal/mutants](../internal/mutants). A test fails when a list is not the one that was
run: then it is time to run it again. When the code has moved on says the commit.
`

// section returns what the report says of a list that was run at a commit; old
// is what it said before.
func section(l list, verdicts []verdict, at, old string) string {
	var judges, table, survivors strings.Builder
	stage := map[string]int{}
	for _, j := range l.judges {
		args := slices.Clone(j.args)
		for i, a := range args {
			if strings.Contains(a, "|") {
				args[i] = "'" + a + "'"
			}
		}
		after := ""
		if stage[j.dir] > 0 {
			after = "what survives that in "
		}
		fmt.Fprintf(&judges, "- %s`%s` is judged by `go test %s`%s\n", after, j.dir, strings.Join(args, " "), caughtBy(verdicts, j.dir, stage[j.dir]))
		stage[j.dir]++
	}
	caught, kept, endless := 0, 0, 0
	for _, v := range verdicts {
		by := strings.Join(v.failed, ", ")
		switch {
		case v.err != nil:
			by = untold + "not tried**"
		case v.failed == nil:
			by = untold + "nobody**"
			fmt.Fprintf(&survivors, "- %s %s: %s\n", v.rule, v.name, v.note)
		default:
			caught++
			if slices.Contains(v.failed, timedOut) {
				endless++
			}
		}
		if v.kept {
			kept++
		}
		fmt.Fprintf(&table, "| %s | %s | `%s` | %s | %s |\n", v.rule, v.name, v.file, by, v.id())
	}
	if survivors.Len() == 0 {
		survivors.WriteString("None.\n")
	}
	was := since.FindStringSubmatch(old)
	if was == nil {
		was = ranAt.FindStringSubmatch(old)
	}
	if kept > 0 && was != nil {
		at += fmt.Sprintf("; %d were caught before, at %s or later", kept, was[1])
	}
	how := ""
	if endless > 0 {
		how += fmt.Sprintf(" With %d the tests did not end.", endless)
	}
	return fmt.Sprintf(`## %[1]s

**%[2]d of %[3]d caught.**%[10]s Run at %[4]s.

The list is [%[1]s.txt](../internal/mutants/%[1]s.txt) %[5]s; a simulation tries %[6]d worlds.

%[7]s
| rule | what is wrong | file | tests that failed | id |
|---|---|---|---|---|
%[8]s
Survivors of %[1]s:

%[9]s`, l.name, caught, len(verdicts), at, l.sum, *worlds, judges.String(), table.String(), survivors.String(), how)
}

// caughtBy says how many mutants in a directory the tests of a stage caught,
// which nobody knows of those that were caught before.
func caughtBy(verdicts []verdict, dir string, stage int) string {
	n := 0
	for _, v := range verdicts {
		if v.kept {
			return ""
		}
		if v.failed != nil && v.stage == stage && filepath.Dir(v.file) == dir {
			n++
		}
	}
	return fmt.Sprintf(", which caught %d", n)
}

// untold begins what stands in the place of tests that failed.
const untold = "**"

var (
	since = regexp.MustCompile(`before, at (.+) or later`)
	ranAt = regexp.MustCompile(`Run at ([^;.]+)[;.]`)
	row   = regexp.MustCompile(`(?m)^\| .* \| ([^|]+) \| ([0-9a-f]{8}) \|$`)
	ids   = regexp.MustCompile(`commit ([0-9a-f]{12})\b`)
	sumOf = regexp.MustCompile(`\.txt\) ([0-9a-f]{16})\b`)
)

// caughtBefore returns by what tests the mutants were caught that a section says
// were, by id.
func caughtBefore(section string) map[string][]string {
	all := map[string][]string{}
	for _, r := range row.FindAllStringSubmatch(section, -1) {
		if !strings.HasPrefix(r[1], untold) {
			all[r[2]] = strings.Split(r[1], ", ")
		}
	}
	return all
}

// sections cuts a report into its sections, by list.
func sections(report string) map[string]string {
	all := map[string]string{}
	for _, s := range strings.Split("\n"+report, "\n## ")[1:] {
		name, _, _ := strings.Cut(s, "\n")
		all[name] = strings.TrimRight("## "+s, "\n") + "\n"
	}
	return all
}

// rewrite puts the section of a list into a report, and keeps those of others.
func rewrite(path, list, text string) error {
	all, err := readReport(path)
	if err != nil {
		return err
	}
	all[list] = text
	report := []string{head}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		report = append(report, all[name])
	}
	return os.WriteFile(path, []byte(strings.Join(report, "\n")), 0o644)
}

// readReport returns the sections of a report, none if there is no report.
func readReport(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return sections(string(text)), nil
}

// commitsOf returns the commits at which a section says that mutants were run.
func commitsOf(section string) (all []string) {
	for _, m := range ids.FindAllStringSubmatch(section, -1) {
		all = append(all, m[1])
	}
	return all
}

// reported returns the sum of the list that a section is of, or nothing.
func reported(section string) string {
	if m := sumOf.FindStringSubmatch(section); m != nil {
		return m[1]
	}
	return ""
}
