package panics

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"
)

func fails() { panic(errors.New("the disk is full")) }

func TestDo(t *testing.T) {
	before := Count()
	done := false
	if p := Do(func() { done = true }); p != nil || !done || Count() != before {
		t.Error(p, done, Count()-before)
	}
	p := Do(fails)
	if p == nil || p.Error() != "panic: the disk is full" || !strings.Contains(p.Stack, "panics.fails") || Count() != before+1 {
		t.Error(p, Count()-before)
	}
	if p := Do(func() { panic(strings.Repeat("x", 1<<20)) }); len(p.Value) > maxValue+len("…") {
		t.Errorf("%d bytes are kept", len(p.Value))
	}
	if p := Do(func() { panic("x" + strings.Repeat("é", maxValue)) }); !utf8.ValidString(p.Value) {
		t.Errorf("cut within a character: %q", p.Value)
	}
	var nobody map[string]int
	if p := Do(func() { nobody["a"] = 1 }); p == nil || !strings.Contains(p.Value, "nil map") {
		t.Error(p)
	}
}

func TestLog(t *testing.T) {
	var b strings.Builder
	Do(fails).Log(slog.New(slog.NewTextHandler(&b, nil)), "a test", slog.Int("n", 7))
	for _, want := range []string{"level=ERROR", "msg=panic", `in="a test"`, `value="the disk is full"`, "panics.fails", "n=7"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in %s", want, b.String())
		}
	}
	Do(fails).Log(slog.New(broken{}), "a test") // lives
}

type broken struct{ slog.Handler }

func (broken) Enabled(context.Context, slog.Level) bool { panic("the log is broken") }

// Do allocates no memory.
func TestDoAllocates(t *testing.T) {
	n := 0
	if a := testing.AllocsPerRun(100, func() { Do(func() { n++ }) }); a > 0 {
		t.Errorf("%v allocations", a)
	}
}
