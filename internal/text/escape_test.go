package text

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		`edge-1 "ü" 東京 \d`:             `edge-1 "ü" 東京 \d`,
		"a\x1b[2Jb":                    `a\x1b[2Jb`,
		"a\nb\tc\r\x00\x7f":            `a\nb\tc\r\x00\x7f`,
		"a\u202eb\u2066c\u200fd":       `a\u202eb\u2066c\u200fd`,
		"a\u2028b\u0085c\ufeff":        `a\u2028b\u0085c\ufeff`,
		"\xff\xc3":                     `\xff\xc3`,
		"a\ufffdb":                     "a\ufffdb",
		"tag\U000e0041 and \U0001f600": `tag\U000e0041 and ` + "\U0001f600",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Lines("a\n\tb\x1b"); got != "a\n\tb"+`\x1b` {
		t.Errorf("%q", got)
	}
	if got := Clip("abc\ndef", 5); got != `abc\…` {
		t.Errorf("%q", got)
	}
}

func TestJSON(t *testing.T) {
	text := "a\x7f\u009bb\u202e\u2028 東京 \U0001f600\U000e0041\n"
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	if err := e.Encode(text); err != nil {
		t.Fatal(err)
	}
	got := JSON(b.Bytes())
	if want := `"a\u007f\u009bb\u202e\u2028 東京 ` + "\U0001f600\U000e0041" + `\n"` + "\n"; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	var same string
	if err := json.Unmarshal(got, &same); err != nil || same != text {
		t.Errorf("%q, %v", same, err)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\x1b\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		line := Line(text)
		if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.Is(unicode.Bidi_Control, r) }) {
			t.Errorf("%q: %q", text, line)
		}
		if Line(line) != line {
			t.Errorf("%q: not the same twice", text)
		}
	})
}

// A line of JSON keeps its value, and has no character that turns the direction of text or controls a terminal.
func TestJSONWriter(t *testing.T) {
	var marks []rune
	for r := rune(0x80); r < 0xa0; r++ { // C1
		marks = append(marks, r)
	}
	marks = append(marks, 0x61c, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069, 0xfeff, 0x7f)
	value := "é 日本 😀" + string(marks)
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(JSONWriter(&out), nil)).Info("m", "node", value, value, "x")
	if bytes.ContainsFunc(out.Bytes(), func(r rune) bool { return slices.Contains(marks, r) }) || !strings.Contains(out.String(), "é 日本 😀") {
		t.Errorf("%+q", out.String())
	}
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["node"] != value || line[value] != "x" {
		t.Errorf("%v %+q", err, line)
	}
}
