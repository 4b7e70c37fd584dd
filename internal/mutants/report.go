package main

import (
	"fmt"
	"strings"
)

func (v verdict) word() string {
	switch {
	case v.err != nil:
		return "ERROR"
	case len(v.failed) == 0:
		return "SURVIVED"
	}
	return "caught"
}

// summarize returns the text of docs/mutants.md and how many were caught.
func summarize(verdicts []verdict) (text string, caught int) {
	var table, survivors strings.Builder
	for _, v := range verdicts {
		by := strings.Join(v.failed, ", ")
		if v.failed != nil {
			caught++
		} else {
			by = "**nobody**"
			fmt.Fprintf(&survivors, "- %s %s: %s\n", v.rule, v.name, v.note)
		}
		fmt.Fprintf(&table, "| %s | %s | `%s` | %s |\n", v.rule, v.name, v.file, by)
	}
	if survivors.Len() == 0 {
		survivors.WriteString("None.\n")
	}
	return fmt.Sprintf(`# Would the tests notice?

Written by %[1]s, which breaks one rule of the protocol after the other and runs the tests of package protocol
on each: the transcripts, the unit tests, and every simulation with %[2]d worlds. The changes stand in
[mutants.txt](../internal/mutants/mutants.txt).

**%[3]d of %[4]d caught.**

| rule | what is wrong | file | tests that failed |
|---|---|---|---|
%[5]s
## Survivors

%[6]s`, "`make mutants`", *worlds, caught, len(verdicts), table.String(), survivors.String()), caught
}
