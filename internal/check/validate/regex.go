package validate

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
)

// MaxProgram is the limit of a default Envoy for the size of a regular expression that RE2 has compiled. Its bootstrap
// may have another: the runtime value [MaxProgramKey].
const MaxProgram = 100

// MaxProgramKey is the name of the runtime value with the limit.
const MaxProgramKey = "re2.max_program_size.error_level"

// unknownToGo matches \C, which RE2 accepts and Go's regexp package rejects.
var unknownToGo = regexp.MustCompile(`(^|[^\\])(\\\\)*\\C`)

// class matches a Unicode class, such as \p{Greek}.
var class = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*\\[pP]\{\^?([^}]*)\}`)

// beyondLatin1 matches a character that Envoy's RE2 does not know: it reads text as Latin-1.
var beyondLatin1 = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*\\x\{0*[1-9a-fA-F][0-9a-fA-F]{2,}\}`)

// categories are the general categories of RE2. Go has more, and long names.
const categories = " Any C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs "

func (w *walk) regex(m protoreflect.Message) {
	expr := get(m, "regex").String()
	if _, err := syntax.Parse(expr, syntax.Perl); err != nil {
		if !unknownToGo.MatchString(expr) {
			why, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "error parsing regexp: "), ":") // the rest of Go's error quotes the expression
			w.report(findings.InvalidRegex, "regex", "", "RE2 does not accept this regular expression: %s", why)
		}
		return
	}
	for _, name := range class.FindAllStringSubmatch(expr, -1) {
		if unicode.Scripts[name[1]] == nil && !strings.Contains(categories, " "+name[1]+" ") {
			w.report(findings.InvalidRegex, "regex", "", "RE2 does not accept this regular expression: it has no such Unicode class")
			return
		}
	}
	if beyondLatin1.MatchString(expr) {
		w.report(findings.InvalidRegex, "regex", "", "Envoy does not accept this regular expression: it reads bytes, and \\x{...} is above FF")
		return
	}
	if size := programSize(expr); size > w.maxProgram {
		client := "a default Envoy"
		if w.maxProgram != MaxProgram {
			client = "Envoy"
		}
		w.report(findings.LargeRegex, "regex", "", "%s refuses this regular expression: its RE2 program has about %d instructions, and the limit is %d", client, size, w.maxProgram)
	}
}

// programSize returns the approximate number of instructions of RE2's program for an expression. It reads text as
// Latin-1, as Envoy does. The rules follow the sizes that Envoy 1.40 reports.
func programSize(expr string) int {
	const frame = 4 // the search for the beginning, the match and the failure
	bytes := make([]rune, len(expr))
	for i := range len(expr) {
		bytes[i] = rune(expr[i])
	}
	re, err := syntax.Parse(string(bytes), syntax.Perl)
	if err != nil {
		return 0
	}
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = re.Sub
	}
	size := frame
	for i, part := range parts {
		switch {
		case i == 0 && part.Op == syntax.OpBeginText, i == len(parts)-1 && part.Op == syntax.OpEndText:
		case i == 1 && part.Op == syntax.OpLiteral && parts[0].Op == syntax.OpBeginText: // compared without the program
		default:
			size += instructions(part)
		}
	}
	return size
}

// instructions returns the number of instructions of a part of an expression.
func instructions(re *syntax.Regexp) (n int) {
	for _, part := range re.Sub {
		n += instructions(part)
		if re.Op == syntax.OpAlternate && part.Op == syntax.OpEmptyMatch {
			n++
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass:
		return ranges(re.Rune)
	case syntax.OpAnyCharNotNL, syntax.OpCapture:
		return n + 2
	case syntax.OpAnyChar, syntax.OpPlus, syntax.OpQuest, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return n + 1
	case syntax.OpRepeat:
		switch {
		case re.Max >= 0:
			return re.Max*n + re.Max - re.Min
		case re.Min > 0:
			return re.Min*n + 1
		}
	}
	return n
}

// ranges returns the number of ranges of bytes in a class. If it has the letters of both cases, only those of one count.
func ranges(pairs []rune) (n int) {
	has := func(c rune) bool {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] <= c && c <= pairs[i+1] {
				return true
			}
		}
		return false
	}
	folds := true
	for c := 'A'; c <= 'Z'; c++ {
		folds = folds && has(c) == has(c+'a'-'A')
	}
	for i := 0; i < len(pairs); i += 2 {
		lo, hi := pairs[i], pairs[i+1]
		if lo <= unicode.MaxLatin1 && (!folds || lo < 'A' || hi > 'Z') {
			n++
		}
	}
	return n
}
