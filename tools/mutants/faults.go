package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// A fault is a block of a file of faults: a sentence, and, indented, the name of a function, its code and the faulty
// code.
type fault struct {
	sentence, fn, code, faulty string
	placed                     bool // a package has the code
}

// readFaults reads a file of faults.
func readFaults(file string) ([]*fault, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var faults []*fault
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
		faults = append(faults, &fault{sentence: lines[0], fn: lines[1], code: lines[2][1:], faulty: lines[3][1:]})
	}
	return faults, nil
}

// placeFaults replaces the mutants of packages by faults. An error lists the faults whose code no package has.
func placeFaults(file string, pkgs []*pkg, mutants map[*pkg][]*mutant) error {
	faults, err := readFaults(file)
	if err != nil {
		return err
	}
	for _, p := range pkgs {
		var found []*mutant
		for _, f := range faults {
			if m := f.place(p, mutants[p]); m != nil {
				found = append(found, m)
			}
		}
		mutants[p] = found
	}
	var stale []string
	for _, f := range faults {
		if !f.placed {
			stale = append(stale, fmt.Sprintf("%s\n\t%s has no, or several: %s", f.sentence, f.fn, f.code))
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("%s: the code has changed:\n%s", file, strings.Join(stale, "\n"))
	}
	return nil
}

// place finds the function of a fault by its other mutants, and returns the fault as a mutant if the function has the
// code once. The first of several packages with such a function counts.
func (f *fault) place(p *pkg, all []*mutant) *mutant {
	for _, o := range all {
		if o.fn != f.fn || f.placed {
			continue
		}
		body := p.sources[o.file][o.in.from.Offset:o.in.to.Offset]
		if bytes.Count(body, []byte(f.code)) != 1 {
			continue
		}
		f.placed = true
		at := o.in.from.Offset + bytes.Index(body, []byte(f.code))
		return &mutant{pkg: p.dir, fn: f.fn, kind: "fault", before: f.sentence, after: f.faulty, file: o.file, at: o.at, in: o.in, edits: []edit{{at, at + len(f.code), f.faulty}}}
	}
	return nil
}
