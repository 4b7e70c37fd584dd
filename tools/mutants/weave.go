package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// variable is the environment variable with the number of the active mutant, from 1. Without it no mutant is active.
const variable = "MUTANT"

// exitNoReturn is the exit code when a mutant reaches the end of a function that must return a value.
// Such a mutant would not compile by itself.
const exitNoReturn = 97

// switchFile is the source of a file that weavePackage adds to the package.
const switchFile = `package %s

import (
	"os"
	"strconv"
)

var mutantOn, _ = strconv.Atoi(os.Getenv("` + variable + `"))

func mutantEnd() string {
	os.Exit(%d)
	return ""
}
`

// weave adds to each function one copy of its body for each mutant, and a switch that chooses the copy. number has
// the number of each mutant. The returned map has the mutant of each line that belongs to a copy.
func weave(src []byte, mutants []*mutant, number map[*mutant]int) ([]byte, map[int]*mutant) {
	byFunction := map[*function][]*mutant{}
	var functions []*function
	for _, m := range mutants {
		if byFunction[m.in] == nil {
			functions = append(functions, m.in)
		}
		byFunction[m.in] = append(byFunction[m.in], m)
	}
	slices.SortFunc(functions, func(a, b *function) int { return cmp.Compare(a.from.Offset, b.from.Offset) })

	var out bytes.Buffer
	lines, line := map[int]*mutant{}, 1
	write := func(text []byte, m *mutant) {
		out.Write(text)
		for n := bytes.Count(text, []byte("\n")); n >= 0; n-- {
			if m != nil {
				lines[line] = m
			}
			if n > 0 {
				line++
			}
		}
	}
	done := 0
	for _, fn := range functions {
		write(src[done:fn.from.Offset], nil)
		write([]byte("\nswitch mutantOn {\n"), nil)
		for _, m := range byFunction[fn] {
			end := "return"
			if fn.results {
				end = "panic(mutantEnd())"
			}
			write(fmt.Appendf(nil, "case %d:\n", number[m]), nil)
			write(m.body(src, number[m]), m)
			write([]byte("\n"+end+"\n"), nil)
		}
		write([]byte("}\n"), nil)
		done = fn.from.Offset
	}
	write(src[done:], nil)
	return out.Bytes(), lines
}

// body returns the mutated body. It renames the labels, since a function may declare a label only once.
func (m *mutant) body(src []byte, number int) []byte {
	edits := slices.Clone(m.edits)
	for _, at := range m.in.labels {
		edits = append(edits, edit{at, at, "_m" + strconv.Itoa(number)})
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out []byte
	done := m.in.from.Offset
	for _, e := range edits {
		out = append(append(out, src[done:e.from]...), e.text...)
		done = e.to
	}
	return append(out, src[done:m.in.to.Offset]...)
}

// A woven package contains many mutants. It is an overlay for the go command.
type woven struct {
	overlay string // path of the JSON file
	mutants []*mutant
	number  map[*mutant]int
}

// flags returns the arguments of the go command that compile the mutants.
func (w *woven) flags(path string) []string {
	return []string{"-overlay=" + w.overlay, "-gcflags=" + path + "=-e"} // -e: report all errors
}

var compileError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: (.*)$`)

// weavePackage compiles the mutants together, and drops the mutants that the compiler refuses.
func weavePackage(p *pkg, mutants []*mutant, dir string) (*woven, error) {
	for range 10 {
		w := &woven{overlay: filepath.Join(dir, "overlay.json"), mutants: mutants, number: map[*mutant]int{}}
		lines, err := w.write(p, dir)
		if err != nil {
			return nil, err
		}
		args := append([]string{"build"}, w.flags(p.path)...)
		out, err := exec.Command("go", append(args, "./"+p.dir)...).CombinedOutput()
		if err == nil {
			return w, nil
		}
		refused := map[*mutant]bool{}
		for _, e := range compileError.FindAllStringSubmatch(string(out), -1) {
			line, _ := strconv.Atoi(e[2])
			if m := lines[filepath.Base(e[1])][line]; m != nil {
				refused[m] = true
			}
		}
		if len(refused) == 0 {
			return nil, fmt.Errorf("go build %s with mutants: %w\n%s", p.dir, err, out)
		}
		mutants = slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool { return refused[m] })
	}
	return nil, fmt.Errorf("go build %s with mutants: still errors after ten attempts", p.dir)
}

// write writes the files of the overlay, and returns the mutant of each line by the name of the file.
func (w *woven) write(p *pkg, dir string) (map[string]map[int]*mutant, error) {
	byFile := map[string][]*mutant{}
	for i, m := range w.mutants {
		w.number[m] = i + 1
		byFile[m.file] = append(byFile[m.file], m)
	}
	replaced, lines := map[string]string{}, map[string]map[int]*mutant{}
	put := func(file string, src []byte) error {
		to := filepath.Join(dir, filepath.Base(file))
		replaced[filepath.Join(p.root, file)] = to
		return os.WriteFile(to, src, 0o644)
	}
	for file, mutants := range byFile {
		src, where := weave(p.sources[file], mutants, w.number)
		lines[filepath.Base(file)] = where
		if err := put(file, src); err != nil {
			return nil, err
		}
	}
	err := put(filepath.Join(p.dir, "mutant_switch.go"), fmt.Appendf(nil, switchFile, p.name, exitNoReturn))
	if err != nil {
		return nil, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return nil, err
	}
	return lines, os.WriteFile(w.overlay, overlay, 0o644)
}
