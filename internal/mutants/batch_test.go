package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// The mutants of a small tree are compiled together where they can be, and each
// is judged by its own tests.
func TestBatch(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a tree several times")
	}
	t.Chdir(t.TempDir())
	t.Setenv("GOFLAGS", "-mod=mod")
	for file, text := range map[string]string{
		"go.mod":      "module x\n\ngo 1.24\n",
		"x/x.go":      "package x\n\nconst one = 1\n\nfunc sum(ns ...int) (s int) {\n\tfor _, n := range ns {\n\t\ts += n\n\t}\n\treturn s\n}\n\ntype T struct{}\n\nfunc (T) Next(_ int, n int) int { return n + one }\n\nfunc Idle() { print() }\n",
		"x/x_test.go": "package x\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif sum(1, 2) != 3 {\n\t\tt.Error()\n\t}\n}\n\nfunc TestSlowNext(t *testing.T) {\n\tif (T{}).Next(7, 1) != 2 {\n\t\tt.Error()\n\t}\n}\n",
	} {
		if err := os.MkdirAll("x", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := parse(`@ x -skip Slow ./x
@ x -run Slow ./x

x sum is a product
x/x.go
-		s += n
+		s *= n

x next is the same
x/x.go
-func (T) Next(_ int, n int) int { return n + one }
+func (T) Next(_ int, n int) int { return n }

x idle does something
x/x.go
-func Idle() { print() }
+func Idle() { println() }

x one is two
x/x.go
-const one = 1
+const one = 2

x is no Go
x/x.go
-	return s
+	return "s"

x does not fit
x/x.go
-	return t
+	return s

x dies
x/x.go
-		s += n
+		panic(n)
`)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBatch(l.mutants)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	for i, want := range []struct {
		word, by string
		stage    int
		together bool
	}{
		{"caught", "TestSum", 0, true},
		{"caught", "TestSlowNext", 1, true},
		{"SURVIVED", "", 0, true},
		{"caught", "TestSlowNext", 1, false},
		{"ERROR", "", 0, false},
		{"ERROR", "", 0, false},
		{"caught", "TestSum panic", 0, true},
	} {
		v := b.try(i+1, l.mutants[i])
		if by := strings.Join(v.failed, " "); v.word() != want.word || by != want.by || v.stage != want.stage || b.has[i+1] != want.together {
			t.Errorf("%s: %s by %q of stage %d (compiled with others: %v), %v; want %+v", v.name, v.word(), by, v.stage, b.has[i+1], v.err, want)
		}
	}
}

// Tests that do not end have noticed, and it is said.
func TestEndless(t *testing.T) {
	b := &batch{}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ENDLESS", "yes")
	out, err := b.start(self, 0, ".", []string{"-test.run=^TestNoEnd$"}, time.Second)
	if !errors.Is(err, errFailed) {
		t.Fatal(err, out)
	}
	if by, err := noticed(out); err != nil || strings.Join(by, " ") != timedOut {
		t.Errorf("noticed by %v, %v:\n%s", by, err, out)
	}
}

// TestNoEnd does not end, for TestEndless.
func TestNoEnd(t *testing.T) {
	if os.Getenv("ENDLESS") == "" {
		t.Skip("only TestEndless waits for it")
	}
	<-make(chan int)
}
