package jsonscan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The tests of packages rest and client/rest cover the methods that both use. These are for the options.

func TestErrorsHavePlaceInsteadOfValue(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"secret"}`: "offset 5: want a whole number from 0 to 9",
		`{"a":1`:         "malformed JSON at offset 6: it ends where ',' or '}' is missing",
		`{"a":1]`:        "malformed JSON at offset 6: want ',' or '}', not ']'",
		`5`:              "offset 0: want an object",
		`null`:           "offset 0: want an object",
	} {
		s := New([]byte(in), Options{MaxDepth: 5, Place: func(offset int) string { return fmt.Sprint("offset ", offset) }})
		err := s.Document(func(string) bool { s.Integer(0, 9); return true })
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", in, err, want)
		}
	}
}

func TestMaxDepth(t *testing.T) {
	for depth, ok := range map[int]bool{4: true, 5: false} {
		in := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		s := New([]byte(in), Options{Root: "the text", MaxDepth: 4})
		s.Raw()
		if err := s.End(); (err == nil) != ok {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}

func TestCheckEndsScan(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, in := range map[string]string{"a string": `"` + long + `"`, "a list": "[" + strings.Repeat("1,", 1<<20) + "1]"} {
		done, calls := errors.New("done"), 0
		s := New([]byte(in), Options{MaxDepth: 1, Check: func() error {
			calls++
			if calls == 3 {
				return done
			}
			return nil
		}})
		s.Raw()
		if err := s.End(); !errors.Is(err, done) || calls != 3 {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
	}
}

func TestTextReplacesInvalidUTF8(t *testing.T) {
	for _, in := range []string{"\"a\xffb\"", `"a\ud800b"`, `"äb\n"`, `""`} {
		var want string
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatal(err)
		}
		if got := New([]byte(in), Options{}).Text(); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
