// Command plain checks how the project speaks (CONTRIBUTING.md, "English"): hard phrases in
// the comments and strings of Go files and in pages, statements hidden in the head of an if,
// and the subjects of commits. It prints each place as file:line and fails above the limits.
//
//	plain [DIR...]   check the repository, or only these files and directories of it
//
// Tests, generated files and testdata are left out.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed phrases.txt
var phrasesText string

// A phrase makes a sentence hard to read; instead is the plain form.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

var hard = parsePhrases(phrasesText)

func parsePhrases(text string) []phrase {
	var all []phrase
	for line := range strings.Lines(text) {
		pattern, instead, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if ok && !strings.HasPrefix(line, "#") {
			all = append(all, phrase{regexp.MustCompile("(?i)" + pattern), instead})
		}
	}
	return all
}

// perLines is the limit: one hard phrase in so many lines of a top-level directory or page.
const perLines = 1000

// A part has a limit of its own: a top-level directory's Go files, or one page.
type part struct {
	lines int
	hard  []string // places
}

func main() {
	log.SetFlags(0)
	all := flag.Bool("all", false, "print all places, also of parts that are within the limit")
	flag.Parse()
	files, err := tracked(flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	parts := map[string]*part{}
	var failures []string
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			continue // deleted and not committed yet
		}
		name := file
		if strings.HasSuffix(file, ".go") {
			name, _, _ = strings.Cut(filepath.ToSlash(file), "/")
		}
		p := parts[name]
		if p == nil {
			p = &part{}
			parts[name] = p
		}
		p.lines += strings.Count(string(src), "\n")
		if !strings.HasSuffix(file, ".go") {
			p.hard = append(p.hard, phrases(file, string(src), 1)...)
			continue
		}
		phrases, hidden, err := inGo(file, src)
		if err != nil {
			log.Fatal(err)
		}
		p.hard = append(p.hard, phrases...)
		failures = append(failures, hidden...)
	}
	for name, p := range parts {
		if *all || len(p.hard) > p.lines/perLines {
			failures = append(failures, p.hard...)
		}
		if len(p.hard) > p.lines/perLines {
			failures = append(failures, fmt.Sprintf("%s: %d hard phrases in %d lines; the limit is 1 in %d", name, len(p.hard), p.lines, perLines))
		}
	}
	if flag.NArg() == 0 {
		bad, err := commits()
		if err != nil {
			log.Fatal(err)
		}
		failures = append(failures, bad...)
	}
	slices.Sort(failures)
	for _, f := range failures {
		fmt.Println(f)
	}
	if len(failures) > 0 {
		os.Exit(1)
	}
}

// tracked returns the Go files and pages that git tracks below dirs, without tests, generated files and testdata.
func tracked(dirs []string) ([]string, error) {
	out, err := exec.Command("git", append([]string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, dirs...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return slices.DeleteFunc(strings.Split(strings.TrimRight(string(out), "\x00"), "\x00"), func(file string) bool {
		return !strings.HasSuffix(file, ".md") && !strings.HasSuffix(file, ".go") ||
			strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, ".pb.go") ||
			slices.Contains(strings.Split(file, "/"), "testdata")
	}), nil
}

// phrases returns the places of hard phrases in text, whose first line is that of the file. A
// phrase may be broken over two lines.
func phrases(file, text string, line int) []string {
	var places []string
	flat := strings.NewReplacer("\n", " ", "\t", " ").Replace(text)
	for _, h := range hard {
		for _, at := range h.pattern.FindAllStringIndex(flat, -1) {
			place := line + strings.Count(text[:at[0]], "\n")
			places = append(places, fmt.Sprintf("%s:%d: hard phrase %q: %s", file, place, strings.TrimSpace(flat[at[0]:at[1]]), h.instead))
		}
	}
	return places
}

// inGo returns the places of hard phrases in comments and strings, and of statements that
// hide in the head of an if: all but x := f().
func inGo(file string, src []byte) (hard, hidden []string, _ error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	for _, group := range f.Comments {
		var text strings.Builder
		for _, c := range group.List {
			text.WriteString(strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), " ") + "\n")
		}
		hard = append(hard, phrases(file, text.String(), fset.Position(group.Pos()).Line)...)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				hard = append(hard, phrases(file, n.Value, fset.Position(n.Pos()).Line)...)
			}
		case *ast.IfStmt:
			if a, ok := n.Init.(*ast.AssignStmt); n.Init != nil && (!ok || a.Tok != token.DEFINE) {
				hidden = append(hidden, fmt.Sprintf("%s: statement hidden in the head of an if", fset.Position(n.Pos())))
			}
		}
		return true
	})
	return hard, hidden, nil
}

var subject = regexp.MustCompile(`^[a-z0-9/_.,*-]+: \S.*$`)

// commits returns the faults in the messages of commits after the one that added this
// check: the subject is "area: what changed" in 72 characters and one change, the body says
// why. A clone without history has none.
func commits() ([]string, error) {
	added, err := exec.Command("git", "log", "--diff-filter=A", "--format=%H", "--", "tools/plain/main.go").Output()
	first := strings.Fields(string(added))
	if err != nil || len(first) == 0 {
		return nil, nil //nolint:nilerr // an exported tree has no history to check
	}
	out, err := exec.Command("git", "log", "--no-merges", "--format=%h%x00%s%x00%b%x01", first[len(first)-1]+"..HEAD").Output()
	if err != nil {
		return nil, fmt.Errorf("git log: %w", err)
	}
	var bad []string
	for commit := range strings.SplitSeq(string(out), "\x01") {
		f := strings.Split(strings.TrimSpace(commit), "\x00")
		if len(f) != 3 {
			continue
		}
		hash, s, body := f[0], f[1], f[2]
		switch {
		case !subject.MatchString(s):
			bad = append(bad, fmt.Sprintf("commit %s: subject is not \"area: what changed\": %s", hash, s))
		case len([]rune(s)) > 72:
			bad = append(bad, fmt.Sprintf("commit %s: subject has more than 72 characters: %s", hash, s))
		case strings.Contains(s, " and ") || strings.Contains(s, ";"):
			bad = append(bad, fmt.Sprintf("commit %s: subject has two changes: %s", hash, s))
		case strings.TrimSpace(body) == "":
			bad = append(bad, fmt.Sprintf("commit %s: no body that gives the reason: %s", hash, s))
		}
	}
	return bad, nil
}
