package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
)

// A source is a file with many mutants in it. Each function that one of them
// changes stands in it once more as the mutant has it, and asks first who is
// meant:
//
//	func (u *subscription) wants(e *entry) bool { switch mutantInForce { case 7: return u.mutant7_wants(e) }
//
// All else keeps its text and its line.
type source struct {
	*file
	mutants []variant
}

// A variant is a function as a mutant has it.
type variant struct {
	number int
	key    string // of the function
	text   string
}

// A file is Go source, cut into its functions and the rest.
type file struct {
	text  string
	name  string // of the package
	funcs map[string]function
	rest  string // all other declarations
	dots  map[string]bool
	paths []string // imports
}

type function struct {
	*ast.FuncDecl
	text string
	head string // what stands before the body
}

func parseFile(text string) (*file, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &file{text: text, name: syntax.Name.Name, funcs: map[string]function{}, dots: map[string]bool{}}
	var rest strings.Builder
	for _, d := range syntax.Decls {
		text := text[offset(d.Pos()):offset(d.End())]
		if d, ok := d.(*ast.FuncDecl); ok && !single(d) {
			f.funcs[key(d)] = function{d, text, text[:d.Body.Pos()-d.Pos()]}
			continue
		}
		rest.WriteString(text + "\n")
	}
	f.rest = rest.String()
	for _, i := range syntax.Imports {
		f.paths = append(f.paths, strings.Trim(i.Path.Value, `"`))
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				f.dots[x.Name] = true
			}
		}
		return true
	})
	return f, nil
}

// offset returns where something stands in the only file of its set.
func offset(p token.Pos) int { return int(p) - 1 }

// key names a function within its package.
func key(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if list, ok := t.(*ast.IndexListExpr); ok {
		t = list.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	return t.(*ast.Ident).Name + "." + f.Name.Name
}

// single reports whether a function cannot stand in a file twice, or not be
// called by another: recover sees a panic only in what was deferred itself.
func single(f *ast.FuncDecl) (yes bool) {
	if f.Body == nil || f.Name.Name == "init" || f.Name.Name == "_" {
		return true
	}
	ast.Inspect(f, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		yes = yes || ok && id.Name == "recover"
		return !yes
	})
	return yes
}

// with returns the functions that a mutant changes, nothing if it cannot stand
// beside others: it changes more than the bodies of functions.
func (f *file) with(number int, broken string) []variant {
	m, err := parseFile(broken)
	if err != nil || m.rest != f.rest || len(m.funcs) != len(f.funcs) || m.unused(f) {
		return nil
	}
	var changed []variant
	for k, fn := range m.funcs {
		was, ok := f.funcs[k]
		if !ok || was.head != fn.head {
			return nil
		}
		if fn.text != was.text {
			at := fn.Name.Pos() - fn.Pos()
			changed = append(changed, variant{number, k, fn.text[:at] + fmt.Sprintf("mutant%d_", number) + fn.text[at:]})
		}
	}
	return changed
}

// unused reports whether an import is used no more: a compiler objects to that
// only where the function has not kept what it was beside it.
func (f *file) unused(was *file) bool {
	return slices.ContainsFunc(f.paths, func(p string) bool {
		return was.dots[path.Base(p)] && !f.dots[path.Base(p)]
	})
}

// String returns the file with its mutants. What stands in mutant7.go by a
// compiler's error is of mutant 7.
func (s source) String() string {
	in := map[int]string{} // what is put into the text, by offset
	var added strings.Builder
	for i, v := range s.mutants {
		if i == 0 || v.key != s.mutants[i-1].key {
			s.dispatch(s.funcs[v.key], s.of(v.key), in)
		}
		fmt.Fprintf(&added, "\n//line mutant%d.go:1\n%s\n", v.number, v.text)
	}
	var out bytes.Buffer
	for i := range len(s.text) {
		out.WriteString(in[i])
		out.WriteByte(s.text[i])
	}
	return out.String() + added.String()
}

// of returns who changes a function.
func (s source) of(key string) (numbers []int) {
	for _, v := range s.mutants {
		if v.key == key {
			numbers = append(numbers, v.number)
		}
	}
	return numbers
}

// add adds what a mutant changes.
func (s *source) add(vs []variant) {
	s.mutants = append(s.mutants, vs...)
	slices.SortFunc(s.mutants, func(a, b variant) int {
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c
		}
		return a.number - b.number
	})
}

// drop takes a mutant out.
func (s *source) drop(number int) {
	s.mutants = slices.DeleteFunc(s.mutants, func(v variant) bool { return v.number == number })
}

// dispatch says what is to be put into the text of a function so that it asks
// who is meant. Parameters that have no name get one.
func (s source) dispatch(f function, numbers []int, in map[int]string) {
	named := func(fields *ast.FieldList) (names []string) {
		if fields == nil {
			return nil
		}
		for _, field := range fields.List {
			if field.Names == nil {
				name := fmt.Sprintf("mutant_%d", field.Pos())
				in[offset(field.Pos())] = name + " "
				names = append(names, name)
			}
			for _, n := range field.Names {
				name := n.Name
				if name == "_" { // the name begins with it, then
					name = fmt.Sprintf("_%d", n.Pos())
					in[offset(n.End())] = name[1:]
				}
				names = append(names, name)
			}
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				names[len(names)-1] += "..."
			}
		}
		return names
	}
	callee := f.Name.Name
	before := ""
	if f.Recv != nil {
		before = named(f.Recv)[0] + "."
	}
	args := "(" + strings.Join(named(f.Type.Params), ", ") + ")"
	if f.Type.TypeParams != nil {
		args = "[" + strings.Join(named(f.Type.TypeParams), ", ") + "]" + args
	}
	var b strings.Builder
	b.WriteString(" switch mutantInForce {")
	for _, n := range numbers {
		call := fmt.Sprintf("%smutant%d_%s%s", before, n, callee, args)
		if f.Type.Results != nil {
			fmt.Fprintf(&b, " case %d: return %s;", n, call)
		} else {
			fmt.Fprintf(&b, " case %d: %s; return;", n, call)
		}
	}
	b.WriteString(" };")
	in[offset(f.Body.Lbrace)+1] += b.String()
}

// inForce is the file of a package that says which of its mutants is meant.
func (f *file) inForce() string {
	return fmt.Sprintf(`package %s

import (
	"os"
	"strconv"
)

var mutantInForce, _ = strconv.Atoi(os.Getenv("MUTANT"))
`, f.name)
}
