package validate

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// number compiles the rules of a comparable value.
func number[T cmp.Ordered](c compiler, r protoreflect.Message, of func(protoreflect.Value) T) check {
	c.noteUnknown(r, "const", "lt", "lte", "gt", "gte", "in", "not_in", "ignore_empty", "required")
	one := func(field protoreflect.Name) *T {
		if f := r.Descriptor().Fields().ByName(field); r.Has(f) {
			return new(of(r.Get(f)))
		}
		return nil
	}
	exactly, lt, lte, gt, gte := one("const"), one("lt"), one("lte"), one("gt"), one("gte")
	in, not := all(r, "in", of), all(r, "not_in", of)
	above := func(n T) bool { return (gt == nil || n > *gt) && (gte == nil || n >= *gte) }
	below := func(n T) bool { return (lt == nil || n < *lt) && (lte == nil || n <= *lte) }
	both := (gt != nil || gte != nil) && (lt != nil || lte != nil)
	var floor, ceiling T
	if both {
		floor, ceiling = *cmp.Or(gt, gte), *cmp.Or(lt, lte)
	}
	range_ := span(lt, lte, gt, gte)
	return func(v protoreflect.Value) string {
		n := of(v)
		switch {
		case exactly != nil && n != *exactly:
			return fmt.Sprintf("must be %v"+quoted+"%v", *exactly, n)
		case both && floor > ceiling && !above(n) && !below(n): // the bounds exclude the numbers between them
			return fmt.Sprintf("must be %s"+quoted+"%v", strings.Replace(range_, " and ", " or ", 1), n)
		case both && floor > ceiling:
		case !above(n) || !below(n):
			return fmt.Sprintf("must be %s"+quoted+"%v", range_, n)
		case in != nil && !slices.Contains(in, n):
			return fmt.Sprintf("must be one of %v"+quoted+"%v", in, n)
		case slices.Contains(not, n):
			return fmt.Sprintf("must not be %v", n)
		}
		return ""
	}
}

// span describes the allowed numbers.
func span[T any](lt, lte, gt, gte *T) string {
	var parts []string
	for _, p := range []struct {
		bound *T
		what  string
	}{{gt, "more than"}, {gte, "at least"}, {lt, "less than"}, {lte, "at most"}} {
		if p.bound != nil {
			parts = append(parts, fmt.Sprintf("%s %v", p.what, *p.bound))
		}
	}
	return strings.Join(parts, " and ")
}

// all returns the values of a repeated rule; nil if it is not set.
func all[T any](r protoreflect.Message, field protoreflect.Name, of func(protoreflect.Value) T) (values []T) {
	f := r.Descriptor().Fields().ByName(field)
	if f == nil || !r.Has(f) {
		return nil
	}
	for i := range r.Get(f).List().Len() {
		values = append(values, of(r.Get(f).List().Get(i)))
	}
	return values
}

func durationOf(v protoreflect.Value) time.Duration {
	m := v.Message()
	get := func(name protoreflect.Name) int64 { return m.Get(m.Descriptor().Fields().ByName(name)).Int() }
	d := durationpb.Duration{Seconds: get("seconds"), Nanos: int32(get("nanos"))}
	return d.AsDuration()
}

func (c compiler) boolean(r protoreflect.Message) check {
	c.noteUnknown(r, "const")
	want := flag(r, "const")
	return func(v protoreflect.Value) string {
		if v.Bool() != want {
			return fmt.Sprintf("must be %v", want)
		}
		return ""
	}
}

func (c compiler) enum(f protoreflect.FieldDescriptor, r protoreflect.Message) check {
	c.noteUnknown(r, "const", "defined_only", "in", "not_in")
	defined := flag(r, "defined_only")
	number := func(v protoreflect.Value) protoreflect.EnumNumber { return protoreflect.EnumNumber(v.Int()) }
	in, not := all(r, "in", number), all(r, "not_in", number)
	var exactly *protoreflect.EnumNumber
	if f := r.Descriptor().Fields().ByName("const"); r.Has(f) {
		exactly = new(number(r.Get(f)))
	}
	values := f.Enum().Values()
	name := func(n protoreflect.EnumNumber) string {
		if v := values.ByNumber(n); v != nil {
			return string(v.Name())
		}
		return fmt.Sprint(n)
	}
	return func(v protoreflect.Value) string {
		n := v.Enum()
		switch {
		case exactly != nil && n != *exactly:
			return "must be " + name(*exactly)
		case defined && values.ByNumber(n) == nil:
			return fmt.Sprintf("has no value %d", n)
		case in != nil && !slices.Contains(in, n), slices.Contains(not, n):
			return "must not be " + name(n)
		}
		return ""
	}
}

func (c compiler) any(r protoreflect.Message) check {
	c.noteUnknown(r, "required", "in", "not_in")
	in, not := all(r, "in", protoreflect.Value.String), all(r, "not_in", protoreflect.Value.String)
	if in == nil && not == nil {
		return nil
	}
	return func(v protoreflect.Value) string {
		m := v.Message()
		u := m.Get(m.Descriptor().Fields().ByName("type_url")).String()
		if in != nil && !slices.Contains(in, u) || slices.Contains(not, u) {
			return fmt.Sprintf("must not be a %s", u)
		}
		return ""
	}
}

// Regular expressions for well_known_regex, copied from protoc-gen-validate.
const (
	headerName  = "^:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+$"
	headerValue = "^[^\u0000-\u0008\u000A-\u001F\u007F]*$"
	lenient     = "^[^\u0000\u000A\u000D]*$"
)

var uuid = regexp.MustCompile("^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$")

// text compiles StringRules.
func (c compiler) text(r protoreflect.Message) check {
	c.noteUnknown(r, "const", "len", "min_len", "max_len", "len_bytes", "min_bytes", "max_bytes", "pattern", "prefix", "suffix",
		"contains", "not_contains", "in", "not_in", "hostname", "ip", "ipv4", "ipv6", "uri", "uri_ref", "address", "uuid",
		"well_known_regex", "strict", "ignore_empty")
	var checks []func(s string) string
	ask := func(field protoreflect.Name, good func(s, want string) bool, wrong string) {
		if f := r.Descriptor().Fields().ByName(field); r.Has(f) {
			want := r.Get(f).String()
			checks = append(checks, func(s string) string {
				if good(s, want) {
					return ""
				}
				return fmt.Sprintf(wrong, want)
			})
		}
	}
	ask("const", func(s, want string) bool { return s == want }, "must be %q")
	ask("prefix", strings.HasPrefix, "must begin with %q")
	ask("suffix", strings.HasSuffix, "must end with %q")
	ask("contains", strings.Contains, "must contain %q")
	ask("not_contains", func(s, want string) bool { return !strings.Contains(s, want) }, "must not contain %q")
	length := func(exact, low, high protoreflect.Name, what string, count func(string) int) {
		least, most := bounds(r, low, high)
		if n := unsigned(r, exact); n != nil {
			least, most = n, n
		}
		if least != nil || most != nil {
			checks = append(checks, func(s string) string {
				if s == "" && least != nil && *least > 0 {
					return "must not be empty"
				}
				return checkCount(what, uint64(count(s)), least, most)
			})
		}
	}
	length("len", "min_len", "max_len", "character", utf8.RuneCountInString)
	length("len_bytes", "min_bytes", "max_bytes", "byte", func(s string) int { return len(s) })
	in, not := all(r, "in", protoreflect.Value.String), all(r, "not_in", protoreflect.Value.String)
	if in != nil || not != nil {
		checks = append(checks, func(s string) string {
			switch {
			case in != nil && !slices.Contains(in, s):
				return fmt.Sprintf("must be one of %q", in)
			case slices.Contains(not, s):
				return fmt.Sprintf("must not be one of %q", not)
			}
			return ""
		})
	}
	for _, known := range forms {
		if flag(r, known.rule) {
			checks = append(checks, func(s string) string {
				if known.is(s) {
					return ""
				}
				return "must be " + known.what
			})
		}
	}
	if pattern, what := patternOf(r); pattern != nil {
		checks = append(checks, func(s string) string {
			if pattern.MatchString(s) {
				return ""
			}
			return what
		})
	}
	return func(v protoreflect.Value) string {
		for _, ask := range checks {
			if wrong := ask(v.String()); wrong != "" {
				return wrong
			}
		}
		return ""
	}
}

// patternOf returns the regular expression that a string must match, and the message for other
// strings. Without such a rule, the expression is nil.
func patternOf(r protoreflect.Message) (pattern *regexp.Regexp, what string) {
	fields := r.Descriptor().Fields()
	expr := r.Get(fields.ByName("pattern")).String()
	what = fmt.Sprintf("must match the regular expression %s", expr)
	strict := r.Get(fields.ByName("strict")).Bool()
	switch known := r.Get(fields.ByName("well_known_regex")).Enum(); {
	case known == 1 && strict:
		expr, what = headerName, "must be a header name"
	case known == 2 && strict:
		expr, what = headerValue, "must be a header value: no control characters"
	case known == 1 || known == 2:
		expr, what = lenient, "must not contain NUL or line breaks"
	}
	if expr == "" {
		return nil, ""
	}
	pattern, err := regexp.Compile(expr)
	if err != nil {
		return nil, ""
	}
	return pattern, what
}

// forms are the string formats that rules can require by name.
var forms = []struct {
	rule protoreflect.Name
	what string
	is   func(s string) bool
}{
	{"hostname", "a host name", isHost},
	{"ip", "an IP address", func(s string) bool { return net.ParseIP(s) != nil }},
	{"ipv4", "an IPv4 address", func(s string) bool { return net.ParseIP(s).To4() != nil }},
	{"ipv6", "an IPv6 address", func(s string) bool { ip := net.ParseIP(s); return ip != nil && ip.To4() == nil }},
	{"address", "an IP address or a host name", func(s string) bool { return isHost(s) || net.ParseIP(s) != nil }},
	{"uri", "an absolute URI", func(s string) bool { u, err := url.Parse(s); return err == nil && u.IsAbs() }},
	{"uri_ref", "a URI", func(s string) bool { _, err := url.Parse(s); return err == nil }},
	{"uuid", "a UUID", uuid.MatchString},
}

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

func isHost(s string) bool {
	if len(s) > 253 {
		return false
	}
	for part := range strings.SplitSeq(strings.ToLower(strings.TrimSuffix(s, ".")), ".") {
		if len(part) > 63 || !label.MatchString(part) {
			return false
		}
	}
	return true
}

// bytes compiles BytesRules.
func (c compiler) bytes(r protoreflect.Message) check {
	c.noteUnknown(r, "const", "len", "min_len", "max_len", "ignore_empty")
	least, most := bounds(r, "min_len", "max_len")
	if n := unsigned(r, "len"); n != nil {
		least, most = n, n
	}
	var exactly []byte
	if f := r.Descriptor().Fields().ByName("const"); r.Has(f) {
		exactly = r.Get(f).Bytes()
	}
	return func(v protoreflect.Value) string {
		if exactly != nil && !bytes.Equal(v.Bytes(), exactly) {
			return "must be different bytes"
		}
		return checkCount("byte", uint64(len(v.Bytes())), least, most)
	}
}
