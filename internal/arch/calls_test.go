package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// floors lists the rooms of package protocol as files, the lowest room first. A room uses functions, variables and
// fields of its own files and of the rooms below it. So each room can be a package that imports only the packages
// below. The files on top use all rooms. The other files have the session and its events: they use all rooms, too, and
// each room may use them.
var floors = []struct{ room, files string }{
	{"record", "row.go answer.go told.go delivery.go settle.go refusal.go withheld.go refusing.go retry.go world.go blamed.go permanent.go"},
	{"want", "want.go match.go scope.go"},
	{"withdrawing, waiting", "withdraw.go order.go inside.go waiting.go warm.go due.go mute.go"},
	{"saying", "diff.go say.go resend.go tell.go response.go handover.go beat.go forget.go"},
	{"top", "resume.go state.go"},
}

// "No room uses a room above it."
func TestRoomsUseLowerRooms(t *testing.T) {
	src := parse(t, token.NewFileSet(), protocolFiles(t), nil)
	src.check(t, "protocol", exports(t, "./protocol"))
	floor := map[string]int{}
	for i, f := range floors {
		for file := range strings.FieldsSeq(f.files) {
			floor[file] = i + 1
		}
	}
	for _, use := range src.upward(floor) {
		t.Error(use)
	}
	for file := range floor {
		if !slices.ContainsFunc(src.files, func(f *ast.File) bool { return src.fileOf(f.Pos()) == file }) {
			t.Errorf("%s has a room, but does not exist", file)
		}
	}
}

// A use of a higher floor is found, whether it is a call, a variable or a field.
func TestUpwardUses(t *testing.T) {
	const high = "package p\ntype top struct { n int }\nfunc (o *top) m() {}\nfunc up() int { return 1 }\nvar v int\nconst c = 1\n"
	for _, c := range []struct {
		body string
		want int
	}{
		{"up()", 1}, {"o.m()", 1}, {"o.n++", 1}, {"v = 2", 1}, {"_ = top{n: 1}", 1}, {"_ = up() + o.n", 2}, {"_ = c", 1},
		{"var p *top; _ = p", 0}, // a type is no use
		{"f(o)", 0},
	} {
		src := parse(t, token.NewFileSet(), []string{"a.go", "b.go"}, map[string]string{"a.go": high, "b.go": "package p\nfunc f(o *top) { " + c.body + " }"})
		src.check(t, "p", nil)
		if got := src.upward(map[string]int{"b.go": 1, "a.go": 2}); len(got) != c.want {
			t.Errorf("%s: %q", c.body, got)
		}
		if got := src.upward(map[string]int{"b.go": 2, "a.go": 1}); len(got) > 0 {
			t.Errorf("%s: downward: %q", c.body, got)
		}
		if got := src.upward(map[string]int{"b.go": 1}); len(got) > 0 {
			t.Errorf("%s: to a file without a floor: %q", c.body, got)
		}
	}
}

// upward returns the uses of functions, variables, constants and fields that a file of a higher floor declares.
func (src *source) upward(floor map[string]int) (found []string) {
	for _, f := range src.files {
		from := floor[src.fileOf(f.Pos())]
		ast.Inspect(f, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || from == 0 {
				return true
			}
			obj := src.info.Uses[id]
			if _, isType := obj.(*types.TypeName); obj == nil || isType || obj.Pkg() != src.pkg {
				return true
			}
			if file := src.fileOf(obj.Pos()); floor[file] > from {
				found = append(found, fmt.Sprintf("%s: %s of %s, a higher room", src.fset.Position(id.Pos()), id.Name, file))
			}
			return true
		})
	}
	return found
}

func (src *source) fileOf(pos token.Pos) string {
	return filepath.Base(src.fset.Position(pos).Filename)
}
