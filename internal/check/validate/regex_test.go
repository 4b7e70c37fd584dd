package validate

import "testing"

// The sizes are those that Envoy 1.40 reports if re2.max_program_size.error_level is 0.
func TestProgramSizes(t *testing.T) {
	for expr, want := range map[string]int{
		"^/orders/[0-9a-z-]{40}/items$":  130,
		"a{99}":                          103,
		"a{97}":                          101,
		"a{98}":                          102,
		"a{96}":                          100,
		"[a-z]{50}":                      54,
		"(ab|cd){30}":                    184,
		"(a?){50}":                       204,
		"(a*){40}":                       124,
		"a{50,100}":                      154,
		"(?i)abcdefghijklmnopqrstuvwxyz": 30,
		"(?i)k{30}":                      34,
		"é{30}":                          35,
		"(?:é){40}":                      84,
		"[é-ü]{30}":                      34,
		"\\pL{1}":                        11,
		".{30}":                          64,
		".{10}":                          24,
		"\\w{40}":                        124,
		"\\d{1,60}":                      123,
		"[^a]{20}":                       44,
		"[^/]+":                          7,
		"(?s).{30}":                      34,
		"^(a|b|c|d|e)+$":                 6,
		"(foo|foobar|fob){10}":           104,
		".*":                             6,
		"x*y+z?":                         10,
		"a{0,90}":                        184,
		"(abc){20,25}":                   134,
		"\\bfoo\\b":                      9,
		"[[:alpha:]]{5}":                 9,
		"(?:)":                           4,
		"(a|b){40}":                      124,
		"([a-z0-9]([-a-z0-9]*[a-z0-9])?\\.)+[a-z]{2,6}":                                     28,
		"^/api/v[0-9]+/users/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$": 81,
		"[aeiou]{30}":         154,
		"[a-zA-Z0-9_.~-]{30}": 154,
		"(?i)[a-z]{40}":       44,
		"\\PL":                12,
		"[^\\x00-\\x7f]{3}":   7,
		"(?U)a+b{30}":         36,
		"(a|b|ab|ba){12}":     88,
		"abc|abd|abe|abf":     7,
		"abcabc|abcabd|xyz":   13,
	} {
		if got := programSize(expr); got < want-2-want/50 || got > want+2+want/50 {
			t.Errorf("%s: %d, want about %d", expr, got, want)
		}
	}
}
