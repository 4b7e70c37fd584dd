package arch

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rooms lists, for structs of package protocol, the files that may write to their fields: the files of a room. The
// file that declares a struct may also write to it. If a field has a row of its own, only the files of that row
// may write to it. A room that is a folder needs no row: the folder writes its fields, and the compiler keeps it from
// importing the rooms above. Only fields that another room may write have a row. "Rooms" in protocol/doc.go describes
// each room.
var rooms = map[string]string{
	"Session.agent":   "beat.go", // with the first request, as are the next two
	"Session.met":     "beat.go",
	"Session.ttl":     "beat.go session.go",
	"Session.events":  "session.go event.go",
	"Session.nonces":  "response.go",
	"Session.resumes": "resume.go",
	"Options":         "session.go",

	// An entry has the state of one name, for all rooms. Package names writes all other fields.
	"names.Entry.Named":   "want.go",
	"names.Entry.Matched": "match.go",
	"names.Kept.Released": "withdraw.go",

	// Package sent writes all other fields of a content.
	"sent.Cargo.Dropped": "delivery.go",
	"sent.Cargo.Items":   "refusal.go",
	"sent.Cargo.Whole":   "delivery.go",
	"sent.Item.Is":       "delivery.go",
	"sent.Item.Was":      "delivery.go refusal.go",

	"want": "scope.go",

	"record":   "delivery.go settle.go refusal.go refusing.go",
	"delivery": "settle.go",
	"part":     "settle.go refusal.go",
	"World":    "resume.go response.go",
	"refusal":  "withheld.go retry.go",

	"subscription.waiting": "waiting.go",
	"subscription.mute":    "mute.go",

	"saying":        "tell.go response.go",
	"saying.beats":  "beat.go",
	"saying.beatAt": "beat.go",

	"Event":    "settle.go",
	"Interest": "want.go",
}

// foreign are exceptions: writes outside the room that owns the field, as "field file". The list must not grow.
var foreign = []string{}

// "Each is written to by its own files": other rooms call a function of the room that owns the field. A composite
// literal is not a write, because it makes a new value.
func TestRooms(t *testing.T) {
	src := parse(t, token.NewFileSet(), protocolFiles(t), nil)
	src.check(t, "protocol", exports(t, "./protocol"))
	found := src.foreign(rooms)
	for _, at := range slices.Sorted(maps.Keys(found)) {
		if !slices.Contains(foreign, at) {
			t.Errorf("%s: a write to a field of another room (%s): call a function of that room", strings.Join(found[at], ", "), at)
		}
	}
	for _, at := range foreign {
		if found[at] == nil {
			t.Errorf("%q is an exception that is no longer needed", at)
		}
	}
	for name := range rooms {
		if !src.declares(name) {
			t.Errorf("%s has a row, but is not declared in package protocol", name)
		}
	}
}

// protocolFiles returns the source files of package protocol without its tests.
func protocolFiles(t *testing.T) (paths []string) {
	t.Helper()
	all, err := filepath.Glob("../../protocol/*.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
}

// The expressions that count as writes, and the fields that they write to.
func TestForeignWrites(t *testing.T) {
	const decls = `package p
type inner struct { n int; list []int; set map[int]bool }
type outer struct { inner; more *inner; k int }
func (i *inner) up() { i.n++; i.list = append(i.list, 1) }
`
	for _, c := range []struct{ body, want string }{
		{"o.n = 1", "inner.n"},
		{"o.n++", "inner.n"},
		{"o.more.n += 2", "inner.n"},
		{"o.list[0] = 1", "inner.list"},
		{"o.set[1] = true", "inner.set"},
		{"o.list = append(o.list, 1)", "inner.list"},
		{"delete(o.set, 1)", "inner.set"},
		{"clear(o.list)", "inner.list"},
		{"slices.Sort(o.list)", "inner.list"},
		{"o.list = slices.Delete(o.list, 0, 1)", "inner.list"},
		{"*o.more = inner{}", "inner.*"},
		{"o.inner = inner{}", "outer.inner"},
		{"_ = &o.n", "inner.n"},
		{"for o.n = range 3 {}", "inner.n"},
		{"_, o.n = 1, 2", "inner.n"},
		{"o.k = 1", "outer.k"},
		{"_ = outer{inner: inner{n: 1}}", ""}, // a new value
		{"o.up()", ""},                        // a call of the room
		{"n := o.n; n++; _ = n", ""},
		{"_ = append([]int{}, o.list...)", ""},
		{"_ = &o.inner", ""}, // a write through the pointer is found where it happens
	} {
		fset := token.NewFileSet()
		src := parse(t, fset, []string{"a.go", "b.go"}, map[string]string{"a.go": decls, "b.go": "package p\nimport \"slices\"\nvar _ = slices.Sort[[]int]\nfunc f(o *outer) { " + c.body + " }"})
		src.check(t, "p", exports(t, "slices"))
		want := map[string]bool{}
		if c.want != "" {
			want[c.want+" b.go"] = true
		}
		if got := src.foreign(nil); len(got) != len(want) || c.want != "" && got[c.want+" b.go"] == nil {
			t.Errorf("%s: %v", c.body, got)
		}
		if c.want != "" && len(src.foreign(map[string]string{strings.Split(c.want, ".")[0]: "b.go"})) > 0 {
			t.Errorf("%s: a row for it does not help", c.body)
		}
		if c.want != "" && len(src.foreign(map[string]string{strings.Split(c.want, ".")[0]: "b.go", c.want: "c.go"})) == 0 {
			t.Errorf("%s: the row of the field does not count", c.body)
		}
	}
}

// A source is a parsed package with its types.
type source struct {
	fset  *token.FileSet
	files []*ast.File
	info  types.Info
	pkg   *types.Package
}

func parse(t *testing.T, fset *token.FileSet, paths []string, text map[string]string) *source {
	t.Helper()
	src := &source{fset: fset, info: types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{}}}
	for _, path := range paths {
		var from any
		if text != nil {
			from = text[path]
		}
		f, err := parser.ParseFile(fset, path, from, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		src.files = append(src.files, f)
	}
	return src
}

func (src *source) check(t *testing.T, path string, exports map[string]string) {
	t.Helper()
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	conf := types.Config{Importer: importer.ForCompiler(src.fset, "gc", open)}
	pkg, err := conf.Check(path, src.fset, src.files, &src.info)
	if err != nil {
		t.Fatal(err)
	}
	src.pkg = pkg
}

// exports returns the files with the export data of a package and of its dependencies.
func exports(t *testing.T, path string) map[string]string {
	t.Helper()
	words := list(t, "-deps", "-export", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}", path)
	at := map[string]string{}
	for i := 0; i+1 < len(words); i += 2 {
		at[words[i]] = words[i+1]
	}
	return at
}

// owns reports whether a package is the package of the rooms, or a folder below it.
func (src *source) owns(pkg *types.Package) bool {
	return pkg == src.pkg || pkg != nil && strings.HasPrefix(pkg.Path(), module+src.pkg.Path()+"/internal/")
}

// declares reports whether the package declares a struct, or a field of it ("struct.field"). A struct of a folder
// below it begins with the name of the folder ("folder.struct.field").
func (src *source) declares(name string) bool {
	pkg := src.pkg
	if i := slices.IndexFunc(pkg.Imports(), func(p *types.Package) bool { return src.owns(p) && strings.HasPrefix(name, p.Name()+".") }); i >= 0 {
		pkg = pkg.Imports()[i]
		name = strings.TrimPrefix(name, pkg.Name()+".")
	}
	name, field, one := strings.Cut(name, ".")
	obj := pkg.Scope().Lookup(name)
	if obj == nil {
		return false
	}
	st, ok := obj.Type().Underlying().(*types.Struct)
	if !ok || !one {
		return ok
	}
	for f := range st.Fields() {
		if f.Name() == field {
			return true
		}
	}
	return false
}

// foreign returns the positions of writes to fields in files that may not write to them, by "field file".
func (src *source) foreign(rooms map[string]string) map[string][]string {
	found := map[string][]string{}
	for _, f := range src.files {
		ast.Inspect(f, func(n ast.Node) bool {
			for _, e := range written(n) {
				owner, field := src.field(e)
				if owner == nil || !src.owns(owner.Obj().Pkg()) {
					continue
				}
				if _, part := e.(*ast.UnaryExpr); part { // the address of a struct: writes to its fields are found on their own
					if _, is := src.info.TypeOf(e.(*ast.UnaryExpr).X).Underlying().(*types.Struct); is {
						continue
					}
				}
				pos := src.fset.Position(e.Pos())
				file, name := filepath.Base(pos.Filename), owner.Obj().Name()
				folder := owner.Obj().Pkg() != src.pkg
				if folder {
					name = owner.Obj().Pkg().Name() + "." + name
				}
				may, own := rooms[name+"."+field]
				if !own && !folder {
					may = rooms[name] + " " + filepath.Base(src.fset.Position(owner.Obj().Pos()).Filename)
				}
				if !slices.Contains(strings.Fields(may), file) {
					at := name + "." + field + " " + file
					found[at] = append(found[at], fmt.Sprintf("%s:%d", file, pos.Line))
				}
			}
			return true
		})
	}
	return found
}

// written returns the expressions that a node writes to.
func written(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return slices.DeleteFunc([]ast.Expr{n.Key, n.Value}, func(e ast.Expr) bool { return e == nil })
		}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return []ast.Expr{n}
		}
	case *ast.CallExpr:
		if inPlace(n.Fun) && len(n.Args) > 0 {
			return n.Args[:1]
		}
	}
	return nil
}

// inPlace reports whether a function changes what its first argument holds.
func inPlace(fun ast.Expr) bool {
	switch f := fun.(type) {
	case *ast.Ident:
		return slices.Contains([]string{"append", "clear", "copy", "delete"}, f.Name)
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return ok && (x.Name == "slices" || x.Name == "maps") && slices.ContainsFunc([]string{"Compact", "Copy", "Delete", "Insert", "Replace", "Reverse", "Sort"},
			func(verb string) bool { return strings.HasPrefix(f.Sel.Name, verb) && f.Sel.Name != "Sorted" })
	}
	return false
}

// field returns the struct and the field that an expression refers to, or is a part of. The field is "*" for a
// whole struct behind a pointer.
func (src *source) field(e ast.Expr) (*types.Named, string) {
	switch e := e.(type) {
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return src.field(e.X)
		}
	case *ast.ParenExpr:
		return src.field(e.X)
	case *ast.IndexExpr:
		return src.field(e.X)
	case *ast.SliceExpr:
		return src.field(e.X)
	case *ast.StarExpr:
		if named, ok := types.Unalias(src.info.TypeOf(e)).(*types.Named); ok {
			if _, ok := named.Underlying().(*types.Struct); ok {
				return named, "*"
			}
		}
		return src.field(e.X)
	case *ast.SelectorExpr:
		sel := src.info.Selections[e]
		if sel == nil || sel.Kind() != types.FieldVal {
			return nil, ""
		}
		at := sel.Recv()
		for i, step := range sel.Index() {
			if p, ok := at.Underlying().(*types.Pointer); ok {
				at = p.Elem()
			}
			st, ok := at.Underlying().(*types.Struct)
			if !ok {
				return nil, ""
			}
			if i == len(sel.Index())-1 {
				named, _ := types.Unalias(at).(*types.Named)
				return named, st.Field(step).Name()
			}
			at = st.Field(step).Type()
		}
	}
	return nil, ""
}
