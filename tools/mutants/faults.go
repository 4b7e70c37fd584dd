package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// readFaults returns the faults of a file as mutants of a package: blocks of a sentence, and, indented, the name of a
// function, its code and the faulty code. An error lists the blocks whose code the package does not have.
func readFaults(file string, p *pkg, all []*mutant) ([]*mutant, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var faults []*mutant
	var stale []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		if strings.HasPrefix(block, "#") {
			continue
		}
		lines := strings.Split(block, "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		if len(lines) != 4 || !strings.HasPrefix(lines[2], "-") || !strings.HasPrefix(lines[3], "+") {
			return nil, fmt.Errorf("%s: want a sentence, a function, -code and +code: %q", file, block)
		}
		m := &mutant{pkg: p.dir, fn: lines[1], kind: "fault", before: lines[0], after: lines[3][1:]}
		if !m.place(p, all, lines[2][1:]) {
			stale = append(stale, fmt.Sprintf("%s\n\t%s has no, or several: %s", lines[0], lines[1], lines[2][1:]))
			continue
		}
		faults = append(faults, m)
	}
	if len(stale) > 0 {
		return nil, fmt.Errorf("%s: the code has changed:\n%s", file, strings.Join(stale, "\n"))
	}
	return faults, nil
}

// place finds the function of a fault by its other mutants, and its code, and reports whether the code is there once.
func (m *mutant) place(p *pkg, all []*mutant, code string) bool {
	for _, o := range all {
		if o.fn != m.fn {
			continue
		}
		body := p.sources[o.file][o.in.from.Offset:o.in.to.Offset]
		at := o.in.from.Offset + bytes.Index(body, []byte(code))
		m.file, m.at, m.in, m.edits = o.file, o.at, o.in, []edit{{at, at + len(code), m.after}}
		return bytes.Count(body, []byte(code)) == 1
	}
	return false
}
