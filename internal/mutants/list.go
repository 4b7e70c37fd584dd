package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A list is a file of mutants of one part of the tree, and of how they are
// judged.
type list struct {
	name    string // of the file, without its extension
	sum     string // of its content
	judges  []judge
	mutants []mutant
}

// A judge says which tests a mutant in a directory has to survive. One that
// survives them goes before the next judge of the directory, if there is one.
type judge struct {
	dir  string
	args []string // of go test
}

// A mutant is one change to one file that breaks a rule.
type mutant struct {
	name   string     // what it does wrong
	rule   string     // the requirement it breaks, or the package's name
	file   string     //
	stages [][]string // arguments of go test; the next are for what survives these
	old    string     // stands once in the file
	new    string     //
	note   string     // why it survives, if it does
}

// read reads a list of mutants.
func read(path string) (list, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return list{}, err
	}
	l, err := parse(string(text))
	if err != nil {
		return list{}, fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.Sum256(text)
	l.name, l.sum = strings.TrimSuffix(filepath.Base(path), ".txt"), hex.EncodeToString(sum[:8])
	return l, nil
}

// parse reads blocks, separated by empty lines, of
//
//	RULE name
//	? why nobody can notice (optional)
//	path/of/file.go
//	@ arguments of go test, instead of those of the directory (optional)
//	 context
//	-old line
//	+new line
//
// before which stands, for each directory that has mutants,
//
//	@ directory arguments of go test
//
// once or several times: the slow tests are for what survives the quick ones.
// Lines that start with # are comments.
func parse(text string) (l list, err error) {
	for block := range strings.SplitSeq(text, "\n\n") {
		var m mutant
		for line := range strings.Lines(strings.TrimRight(block, "\n") + "\n") {
			rest := line[1:]
			switch {
			case line[0] == '#' || line[0] == '\n':
			case line[0] == '@' && m.name == "":
				f := strings.Fields(rest)
				if len(f) < 2 {
					return l, fmt.Errorf("a directory and arguments of go test are wanted, not %q", line)
				}
				l.judges = append(l.judges, judge{f[0], f[1:]})
			case m.name == "":
				m.rule, m.name, _ = strings.Cut(strings.TrimSpace(line), " ")
			case line[0] == '?':
				m.note += rest
			case m.file == "":
				m.file = strings.TrimSpace(line)
			case line[0] == '@':
				m.stages = append(m.stages, strings.Fields(rest))
			case line[0] == ' ':
				m.old, m.new = m.old+rest, m.new+rest
			case line[0] == '-':
				m.old += rest
			case line[0] == '+':
				m.new += rest
			default:
				return l, fmt.Errorf("%s: what is %q?", m.name, line)
			}
		}
		if m.name == "" {
			continue
		}
		if err := l.add(m); err != nil {
			return l, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return l, nil
}

func (l *list) add(m mutant) error {
	if m.old == "" || m.old == m.new {
		return errors.New("changes nothing")
	}
	if m.stages == nil {
		for _, j := range l.judges {
			if j.dir == filepath.Dir(m.file) {
				m.stages = append(m.stages, j.args)
			}
		}
	}
	if m.stages == nil {
		return fmt.Errorf("no line says by which tests %s is judged", filepath.Dir(m.file))
	}
	m.note = strings.Join(strings.Fields(m.note), " ")
	l.mutants = append(l.mutants, m)
	return nil
}

// id tells mutants apart, and a mutant from what it was before it was changed.
func (m mutant) id() string {
	var tests []string
	for _, s := range m.stages {
		tests = append(tests, strings.Join(s, " "))
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{m.file, strings.Join(tests, " @ "), m.old, m.new}, "\x00")))
	return hex.EncodeToString(sum[:4])
}

// apply returns the source with the mutant in it.
func (m mutant) apply(source string) (string, error) {
	if n := strings.Count(source, m.old); n != 1 {
		return "", fmt.Errorf("%s has the text %d times, not once:\n%s", m.file, n, m.old)
	}
	return strings.Replace(source, m.old, m.new, 1), nil
}
