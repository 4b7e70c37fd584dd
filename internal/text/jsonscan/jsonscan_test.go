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
	const tooDeep = "the text: nested deeper than 4"
	for in, want := range map[string]string{
		"[[[[]]]]": "", "[[[[[]]]]]": tooDeep, "[[[[[1]]]]]": tooDeep,
		`{"a":{"a":{"a":{}}}}`: "", `{"a":{"a":{"a":{"a":{}}}}}`: tooDeep, `[{"a":[{"a":[]}]}]`: tooDeep,
		"[[[[]]],[[[]]],[[[],[],[],[],[]]]]": "", // siblings do not add up
		"[[[[]]],[[[[]]]]]":                  tooDeep,
		"[[[[[":                              tooDeep, // the scan ends before the end of the text
	} {
		s := New([]byte(in), Options{Root: "the text", MaxDepth: 4})
		s.Raw()
		if got := s.End(); (got == nil) != (want == "") || got != nil && got.Error() != want {
			t.Errorf("%s: %v, want %q", in, got, want)
		}
		// The methods that read values have the same limit. The error has the path of the list.
		s = New([]byte(in), Options{Root: "the text", MaxDepth: 4})
		var read func(int)
		read = func(int) {
			if s.next() == '[' {
				s.List("a list", read)
			} else {
				s.Raw()
			}
		}
		read(0)
		if got := s.End(); (got == nil) != (want == "") || got != nil && !strings.HasSuffix(got.Error(), "nested deeper than 4") {
			t.Errorf("List of %s: %v, want %q", in, got, want)
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
