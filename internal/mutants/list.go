package main

import (
	"fmt"
	"strings"
)

// A mutant is one change to one file that breaks a rule.
type mutant struct {
	name string // what it does wrong
	rule string // the requirement it breaks
	file string
	old  string // stands once in the file
	new  string
	note string // why it survives, if it does
}

// parse reads a list of mutants: blocks, separated by empty lines, of
//
//	RULE name
//	? why nobody can notice (optional)
//	path/of/file.go
//	 context
//	-old line
//	+new line
//
// Lines that start with # are comments.
func parse(text string) ([]mutant, error) {
	var all []mutant
	for block := range strings.SplitSeq(text, "\n\n") {
		var m mutant
		for line := range strings.Lines(strings.TrimRight(block, "\n") + "\n") {
			rest := line[1:]
			switch {
			case line[0] == '#' || line[0] == '\n':
			case m.name == "":
				m.rule, m.name, _ = strings.Cut(strings.TrimSpace(line), " ")
			case line[0] == '?':
				m.note += rest
			case m.file == "":
				m.file = strings.TrimSpace(line)
			case line[0] == ' ':
				m.old, m.new = m.old+rest, m.new+rest
			case line[0] == '-':
				m.old += rest
			case line[0] == '+':
				m.new += rest
			default:
				return nil, fmt.Errorf("%s: what is %q?", m.name, line)
			}
		}
		if m.name == "" {
			continue
		}
		if m.old == "" || m.old == m.new {
			return nil, fmt.Errorf("%s: changes nothing", m.name)
		}
		m.note = strings.Join(strings.Fields(m.note), " ")
		all = append(all, m)
	}
	return all, nil
}

// apply returns the source with the mutant in it.
func (m mutant) apply(source string) (string, error) {
	if n := strings.Count(source, m.old); n != 1 {
		return "", fmt.Errorf("%s has the text %d times, not once:\n%s", m.file, n, m.old)
	}
	return strings.Replace(source, m.old, m.new, 1), nil
}
