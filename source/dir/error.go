package dir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
)

// Errors are the mistakes that keep a directory from being loaded, sorted by place. Options.MaxProblems
// limits their number; the last one then counts the rest.
type Errors []findings.Problem

// Error returns the errors, one on each line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Count returns the number of mistakes, including those that are only counted.
func (e Errors) Count() int { return findings.Count(e) }

// counted returns the problems without those of ignored kinds.
func (s *Source) counted(all []findings.Problem) []findings.Problem {
	if len(s.ignore) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(p findings.Problem) bool { return slices.Contains(s.ignore, p.Code) })
}

// shown returns how many of n mistakes, or of n warnings, are reported.
func (s *Source) shown(n int) int {
	if s.opts.MaxProblems < 0 {
		return n
	}
	return min(n, cmp.Or(s.opts.MaxProblems, protoyaml.MaxProblems))
}

// summary sorts problems and returns the first of them. A last one counts the others, and those that
// were not kept (more).
func (s *Source) summary(what string, problems []findings.Problem, more int) []findings.Problem {
	problems = slices.DeleteFunc(problems, func(p findings.Problem) bool {
		more += p.Omitted // from an earlier summary
		return p.Omitted > 0
	})
	slices.SortStableFunc(problems, byPlace)
	if most := s.shown(len(problems)); len(problems) > most {
		more += len(problems) - most
		problems = problems[:most:most]
	}
	if more > 0 {
		if more > 1 {
			what += "s"
		}
		last := problems[len(problems)-1]
		problems = append(problems, findings.Problem{File: s.root, Message: fmt.Sprintf("and %d more %s", more, what), Warning: last.Warning, Omitted: more})
	}
	return problems
}

func byPlace(a, b findings.Problem) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
}

// unread returns the problem of a path that cannot be read.
func unread(path string, err error) findings.Problem {
	hint := ""
	if errors.Is(err, fs.ErrPermission) {
		hint = deniedHint(path)
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err // the problem has the path already
	}
	return findings.Problem{File: path, Code: findings.Unreadable, Message: err.Error(), Hint: hint}
}

// unread returns the problem of a file that cannot be read. It has the option as hint if that may
// help.
func (s *Source) unread(path string, err error) findings.Problem {
	p := unread(path, err)
	if errors.Is(err, watch.ErrTooLarge) {
		p.Hint = s.opts.called("MaxFile")
	}
	return p
}

// A Pos is the place of a resource in a file. In YAML and JSON it is the line and column, counted from
// 1; in other formats it is the path.
type Pos struct {
	File      string
	Line, Col int
	Path      string // such as "resources[3]"; may be empty
}

// String returns "file:line:col" or "file (path)".
func (p Pos) String() string {
	switch {
	case p.Line > 0:
		return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
	case p.File == "":
		return p.Path
	case p.Path != "":
		return fmt.Sprintf("%s (%s)", p.File, p.Path)
	}
	return p.File
}

// Problem returns a problem of a kind at the place.
func (p Pos) Problem(code findings.Code, message string) findings.Problem {
	q := p.problem("%s", message)
	q.Code = code
	return q
}

// problem returns a problem at the place.
func (p Pos) problem(format string, args ...any) findings.Problem {
	q := findings.Problem{File: p.File, Pos: findings.Pos{Line: p.Line, Column: p.Col}, Message: fmt.Sprintf(format, args...)}
	if p.Line == 0 {
		q.Path = p.Path
	}
	return q
}
