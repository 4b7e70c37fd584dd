package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A mutant is one small change of the body of a function.
type mutant struct {
	pkg, file, fn string // directory of the package; path of the file; name of the function
	kind          string // of change, such as "negate" or "remove"
	before, after string // source text, for people
	nth           int    // of the mutants with the same function, kind and text, from 1
	at            token.Position
	edits         []edit
	in            *function
}

// An edit replaces the bytes from, to of a file by text.
type edit struct {
	from, to int
	text     string
}

// A function is a declared function, or a function literal in the value of a package variable. Function
// literals in its body are parts of it.
type function struct {
	from, to  token.Position // of the body, without its braces
	results   bool           // it returns values
	labels    []int          // offsets where the name of a label ends
	signature *ast.FuncType
}

// key names a mutant in the list of survivors. It has no line number, so it remains valid when lines move.
func (m *mutant) key() string {
	text := m.before
	if utf8.RuneCountInString(text) > 120 {
		text = string([]rune(text)[:120]) + "…"
	}
	key := fmt.Sprintf("%s %s | %s | %s", m.pkg, m.fn, m.kind, text)
	if m.nth > 1 {
		key += fmt.Sprintf(" | #%d", m.nth)
	}
	return key
}

func (m *mutant) String() string {
	s := fmt.Sprintf("%s:%d: %s in %s\n-\t%s", m.file, m.at.Line, m.kind, m.fn, m.before)
	if m.after != "" {
		s += "\n+\t" + m.after
	}
	return s
}

// find returns the mutants of a file, in the order of its text.
func find(pkg, file string, src []byte) ([]*mutant, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(tree) {
		return nil, nil
	}
	f := &finder{fset: fset, src: src, pkg: pkg, file: file}
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				f.function(f.nameOf(d), d.Type, d.Body)
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				f.variables(d)
			}
		}
	}
	seen := map[string]int{}
	for _, m := range f.found {
		key := m.key() // nth is still 0
		seen[key]++
		m.nth = seen[key]
	}
	return f.found, nil
}

type finder struct {
	fset      *token.FileSet
	src       []byte
	pkg, file string
	name      string
	in        *function
	found     []*mutant
}

// nameOf returns the name of a function, with its receiver: (*Set).Add.
func (f *finder) nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	recv := f.text(d.Recv.List[0].Type)
	if strings.HasPrefix(recv, "*") {
		recv = "(" + recv + ")"
	}
	return recv + "." + d.Name.Name
}

// variables finds mutants of function literals in the values of package variables.
func (f *finder) variables(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		for _, value := range v.Values {
			ast.Inspect(value, func(n ast.Node) bool {
				if lit, ok := n.(*ast.FuncLit); ok {
					f.function("var "+v.Names[0].Name, lit.Type, lit.Body)
					return false
				}
				return true
			})
		}
	}
}

func (f *finder) function(name string, signature *ast.FuncType, body *ast.BlockStmt) {
	f.name = name
	f.in = &function{
		from: f.fset.Position(body.Lbrace + 1), to: f.fset.Position(body.Rbrace),
		results: signature.Results.NumFields() > 0, signature: signature,
	}
	ast.PreorderStack(body, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.LabeledStmt:
			f.in.labels = append(f.in.labels, f.offset(n.Label.End()))
		case *ast.BranchStmt:
			if n.Label != nil {
				f.in.labels = append(f.in.labels, f.offset(n.Label.End()))
			}
			f.branch(n, stack)
		case *ast.Ident:
			f.boolean(n, stack)
		case *ast.BasicLit:
			f.literal(n, stack)
		case *ast.BinaryExpr:
			f.binary(n, stack)
		case *ast.ReturnStmt:
			f.returns(n, stack)
		default:
			f.statement(n, stack)
		}
		return true
	})
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return strings.Join(strings.Fields(string(f.src[f.offset(n.Pos()):f.offset(n.End())])), " ")
}

func (f *finder) add(kind string, at ast.Node, after string, edits ...edit) {
	f.found = append(f.found, &mutant{
		pkg: f.pkg, file: f.file, fn: f.name, kind: kind, before: f.text(at), after: after,
		at: f.fset.Position(at.Pos()), edits: edits, in: f.in,
	})
}

// replace adds a mutant with text instead of n.
func (f *finder) replace(kind string, n ast.Node, text string) {
	f.add(kind, n, text, edit{f.offset(n.Pos()), f.offset(n.End()), text})
}

// wrap adds a mutant with text before n and behind it.
func (f *finder) wrap(kind string, n ast.Node, before, behind, after string) {
	f.add(kind, n, after, f.around(n.Pos(), n.End(), before, behind)...)
}

func (f *finder) around(from, to token.Pos, before, behind string) []edit {
	return []edit{{f.offset(from), f.offset(from), before}, {f.offset(to), f.offset(to), behind}}
}

// never keeps removed code in "if false": the compiler would refuse variables without use.
const never = "if false { "

// statement adds mutants that change conditions, drop cases, and remove statements.
func (f *finder) statement(n ast.Node, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.wrap("negate", n.Cond, "!(", ")", "!("+f.text(n.Cond)+")")
		f.wrap("force true", n.Cond, "true || (", ")", "true")
		f.wrap("force false", n.Cond, "false && (", ")", "false")
	case *ast.ForStmt:
		if n.Cond != nil { // a loop that is forced to go on would not end
			f.wrap("force false", n.Cond, "false && (", ")", "false")
		}
	case *ast.CaseClause:
		f.dropCase(n, n.Body)
	case *ast.CommClause:
		f.dropCase(n, n.Body)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE && !allBlank(n.Lhs) && inList(n, stack) {
			f.wrap("remove", n, never, " }", "")
		}
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt:
		if inList(n, stack) {
			f.wrap("remove", n, never, " }", "")
		}
	}
}

func allBlank(list []ast.Expr) bool {
	return !slices.ContainsFunc(list, func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return !ok || id.Name != "_"
	})
}

// inList reports whether a statement is one of a list, and not in the head of another.
func inList(n ast.Node, stack []ast.Node) bool {
	switch parent := stack[len(stack)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.LabeledStmt:
		return true
	case *ast.CommClause:
		return parent.Comm != n
	}
	return false
}

func (f *finder) dropCase(clause ast.Node, body []ast.Stmt) {
	if len(body) == 0 {
		return
	}
	last := body[len(body)-1]
	if b, ok := last.(*ast.BranchStmt); ok && b.Tok == token.FALLTHROUGH {
		return
	}
	f.add("drop case", clause, "", f.around(body[0].Pos(), last.End(), never, " }")...)
	m := f.found[len(f.found)-1]
	m.at = f.fset.Position(body[0].Pos()) // the clause itself is in no block of a coverage profile
}

// branch swaps break and continue.
func (f *finder) branch(n *ast.BranchStmt, stack []ast.Node) {
	var to string
	switch {
	case n.Tok == token.CONTINUE:
		to = "break"
	case n.Tok == token.BREAK && (n.Label != nil || breaksLoop(stack)):
		to = "continue"
	default:
		return
	}
	from := f.offset(n.Pos())
	after := strings.Replace(f.text(n), n.Tok.String(), to, 1)
	f.add("swap "+n.Tok.String(), n, after, edit{from, from + len(n.Tok.String()), to})
}

func breaksLoop(stack []ast.Node) bool {
	for _, n := range slices.Backward(stack) {
		switch n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return true
		case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt, *ast.FuncLit:
			return false
		}
	}
	return false
}

func (f *finder) boolean(n *ast.Ident, stack []ast.Node) {
	if sel, ok := stack[len(stack)-1].(*ast.SelectorExpr); ok && sel.Sel == n {
		return
	}
	switch n.Name {
	case "true":
		f.replace("flip", n, "false")
	case "false":
		f.replace("flip", n, "true")
	}
}

// inMake reports whether an expression is a size or a capacity: a capacity only costs memory.
func inMake(stack []ast.Node) bool {
	return slices.ContainsFunc(stack, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return false
		}
		fun, ok := call.Fun.(*ast.Ident)
		return ok && fun.Name == "make"
	})
}

// literal changes integers by one, and empties strings. A string with a space is text for people: tests need not
// compare it.
func (f *finder) literal(n *ast.BasicLit, stack []ast.Node) {
	if _, tag := stack[len(stack)-1].(*ast.Field); tag || inMake(stack) {
		return
	}
	switch n.Kind {
	case token.INT:
		f.replace("+1", n, "("+n.Value+" + 1)")
		f.replace("-1", n, "("+n.Value+" - 1)")
	case token.STRING:
		if s, err := strconv.Unquote(n.Value); err == nil && s != "" && !strings.ContainsAny(s, " \n") {
			f.replace("empty", n, `""`)
		}
	}
}

var operators = map[token.Token]struct{ kind, to string }{
	token.LSS: {"boundary", "<="}, token.LEQ: {"boundary", "<"},
	token.GTR: {"boundary", ">="}, token.GEQ: {"boundary", ">"},
	token.EQL: {"equality", "!="}, token.NEQ: {"equality", "=="},
	token.ADD: {"arithmetic", "-"}, token.SUB: {"arithmetic", "+"},
}

// binary drops the terms of && and ||, and swaps other operators.
func (f *finder) binary(n *ast.BinaryExpr, stack []ast.Node) {
	if n.Op == token.LAND || n.Op == token.LOR {
		for _, term := range []ast.Expr{n.X, n.Y} {
			if b, ok := term.(*ast.BinaryExpr); ok && b.Op == n.Op {
				continue // this function adds its terms when it comes to it
			}
			if n.Op == token.LAND {
				f.wrap("drop term of &&", term, "(true || (", "))", "true")
			} else {
				f.wrap("drop term of ||", term, "(false && (", "))", "false")
			}
		}
		return
	}
	op, ok := operators[n.Op]
	ok = ok && !inMake(stack)
	if cond, head := stack[len(stack)-1].(*ast.IfStmt); !ok || op.kind == "equality" && head && cond.Cond == n {
		return // the mutant "negate" of the condition is the same
	}
	from := f.offset(n.OpPos)
	f.add(op.kind, n, f.text(n.X)+" "+op.to+" "+f.text(n.Y), edit{from, from + len(n.Op.String()), op.to})
}

// returns replaces each returned value by the zero value of its type, and negates truth values.
func (f *finder) returns(n *ast.ReturnStmt, stack []ast.Node) {
	signature := f.in.signature
	for _, outer := range slices.Backward(stack) {
		if lit, ok := outer.(*ast.FuncLit); ok {
			signature = lit.Type
			break
		}
	}
	var types []string
	if signature.Results != nil {
		for _, field := range signature.Results.List {
			for range max(1, len(field.Names)) {
				types = append(types, f.text(field.Type))
			}
		}
	}
	if len(n.Results) != len(types) {
		if len(n.Results) == 1 { // a call that returns all values
			f.zero(n, types, -1)
		}
		return
	}
	last := len(types) - 1
	fails := last > 0 && types[last] == "error" && f.text(n.Results[last]) != "nil"
	for i, value := range n.Results {
		switch text := f.text(value); {
		case fails && i != last: // callers do not use other values of an error
		case slices.Contains([]string{"nil", "true", "false", "0", `""`, types[i] + "{}"}, text):
		case types[i] == "bool":
			f.wrap("return negated", value, "!(", ")", "!("+text+")")
		default:
			f.zero(n, types, i)
		}
	}
}

// zero adds a mutant that returns the zero value instead of value i, or instead of all if i is negative.
// The old statement follows and is never reached: it only uses its variables, which the compiler demands.
func (f *finder) zero(n *ast.ReturnStmt, types []string, i int) {
	var values []string
	for k, t := range types {
		if i >= 0 && i != k {
			values = append(values, string(f.src[f.offset(n.Results[k].Pos()):f.offset(n.Results[k].End())]))
		} else {
			values = append(values, zeroOf(t))
		}
	}
	text, from := "return "+strings.Join(values, ", "), f.offset(n.Pos())
	kind := "return zero"
	if len(types) > 1 && i >= 0 {
		kind = fmt.Sprintf("return zero %d", i+1)
	}
	f.add(kind, n, text, edit{from, from, "if true { " + text + " }; "})
}

func zeroOf(t string) string {
	switch {
	case t == "error" || t == "any" || strings.HasPrefix(t, "*") || strings.HasPrefix(t, "[]") || strings.HasPrefix(t, "map["):
		return "nil"
	case t == "bool":
		return "false"
	case t == "string":
		return `""`
	}
	return "*new(" + t + ")"
}
