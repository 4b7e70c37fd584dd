package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/limit/inbound"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/xds"
)

const (
	maxBody   = 64 << 10
	maxAsked  = 4 << 20 // bytes of a request about many resources
	maxLimit  = 100_000
	maxOffset = 1 << 31
	maxText   = 4 << 10 // bytes of a parameter
)

// A query has the parameters of a request. The field err is the error for the first invalid
// parameter. If it is set, the caller must not use the values of the query.
type query struct {
	values url.Values
	err    error
}

// queryOf parses the parameters of a request. A parameter that the route does not have
// is an error.
func queryOf(r *http.Request) *query {
	q := &query{}
	var err error
	q.values, err = url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		q.err = wrong("", "the query is malformed: "+strings.TrimPrefix(err.Error(), "net/url: "), "")
		return q
	}
	known := paramsOf[r.Pattern]
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		all := q.values[name]
		at := slices.IndexFunc(known, func(p param) bool { return p.name == name })
		switch {
		case at < 0:
			hint := "this path takes no parameters"
			for i, p := range known {
				hint = strings.TrimSuffix(hint, " no parameters")
				if i > 0 {
					hint += ","
				}
				hint += " " + p.name
			}
			q.fail(name, "unknown parameter", hint)
		case len(all) > 1 && known[at].kind != "array":
			q.fail(name, "given more than once", "")
		case slices.ContainsFunc(all, func(v string) bool { return len(v) > maxText }):
			q.fail(name, fmt.Sprintf("more than %d bytes", maxText), "")
		}
	}
	return q
}

func (q *query) fail(name, message, hint string) {
	if q.err == nil {
		q.err = wrong(textutil.Head(name, maxQuoted), message, hint)
	}
}

func (q *query) text(name string) string { return q.values.Get(name) }

// flag returns a boolean parameter; false if absent. A parameter without a value is true.
func (q *query) flag(name string) bool {
	value, ok := api.Flag(q.values, name)
	if !ok {
		q.fail(name, "must be 1, 0, true or false", "")
	}
	return value
}

// number returns a number between 0 and most; it is 0 if the parameter is absent.
func (q *query) number(name string, most uint64) uint64 {
	v := q.values.Get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n > most {
		q.fail(name, fmt.Sprintf("must be a number between 0 and %d", most), "")
	}
	return n
}

func (q *query) limit(otherwise int) int {
	if n := int(q.number("limit", maxLimit)); n > 0 {
		return n
	}
	return otherwise
}

func (q *query) offset() int { return int(q.number(paramOffset.name, maxOffset)) }

func (q *query) duration(name string, otherwise, most time.Duration) time.Duration {
	v := q.values.Get(name)
	if v == "" {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > most {
		q.fail(name, fmt.Sprintf("must be a duration between 0s and %v, such as 30s", most), "")
	}
	return d
}

func (q *query) typ(name string) *xds.Type {
	v := q.values.Get(name)
	if v == "" {
		return nil
	}
	t := typeOf(v)
	if t == nil {
		q.fail(name, "unknown type "+quoted(v), typesHint())
	}
	return t
}

// pattern returns a pattern for node IDs; nil if the parameter is absent.
func (q *query) pattern(name string) *glob.Pattern {
	text := q.text(name)
	if text == "" {
		return nil
	}
	p, err := glob.Compile(text)
	if err != nil {
		q.fail(name, err.Error(), "* matches letters, digits, - and _; ** matches any text")
	}
	return &p
}

func (q *query) filter() clients.Filter {
	f := clients.Filter{Node: q.pattern("node"), Group: q.text("group"), Type: q.typ("type"), All: q.flag("all"), Left: q.flag("left"), Limit: q.limit(10_000), Offset: q.offset()}
	if all := q.values["agent"]; len(all) > 0 {
		f.Agent = &all[0]
	}
	for _, v := range q.values["state"] {
		s := api.State(strings.ToUpper(v))
		if !slices.Contains(states, s) {
			names := make([]string, 0, len(states))
			for _, s := range states {
				names = append(names, string(s))
			}
			q.fail("state", "unknown state "+quoted(v), "states are "+strings.Join(names, ", "))
		}
		f.States = append(f.States, s)
	}
	return f
}

// body decodes a JSON body into v. The body must be empty or one object with the fields of v. The
// argument most is the maximum size in bytes.
func body(w http.ResponseWriter, r *http.Request, most int64, v any) error {
	b, err := sent(w, r.Body, most)
	if err != nil {
		return err
	}
	return object(b, most, v)
}

// received reads the body of a request into memory, and returns the request with this body. So the request does not
// take a place while its body arrives. The memory counts against a budget until the caller calls done.
func (s *Server) received(w http.ResponseWriter, r *http.Request) (_ *http.Request, done func(), _ error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, func() {}, nil
	}
	c := http.NewResponseController(w)
	in := s.bodies.Body(r.Body, addressOf(r), func() { _ = c.SetReadDeadline(time.Unix(1, 0)) }) // if it fails, readTime ends the body
	b, err := sent(w, io.NopCloser(in), maxAsked)
	if err != nil {
		_ = in.Close()
		return nil, nil, err
	}
	r = r.WithContext(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(b))
	return r, func() { _ = in.Close() }, nil
}

// sent reads a body. The argument most is the maximum size in bytes.
func sent(w http.ResponseWriter, in io.ReadCloser, most int64) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, in, most))
	if err != nil {
		return nil, unread(err, most)
	}
	return b, nil
}

// object decodes a body into v. An empty body does not change v.
func object(b []byte, most int64, v any) error {
	err := decode(b, v)
	if err == nil || errors.Is(err, io.EOF) { // an empty body
		return nil
	}
	return unread(err, most)
}

// decode decodes one object with the fields of v. Anything after the object is an error, even a
// single bracket, which json.Decoder.More would miss. The error io.EOF means that b is empty.
func decode(b []byte, v any) error {
	if !utf8.Valid(b) { // json.Decode would replace invalid bytes
		return errors.New("is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more data after the object")
		}
	}
	return err
}

// unread converts an error of reading JSON to a problem.
func unread(err error, most int64) error {
	if tooLarge(err) {
		return wrong("body", fmt.Sprintf("more than %d bytes", most), "")
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := "of another type"
		switch e.Type.Kind() {
		case reflect.Struct:
			want = "an object"
		case reflect.String:
			want = "text"
			if strings.HasSuffix(e.Field, "ttl") || e.Field == "bake" {
				want = `text such as "30s"`
			}
		}
		return wrong(e.Field, "must be "+want+", not a JSON "+e.Value, "")
	}
	if errors.Is(err, inbound.ErrRefused) {
		return errNoRoom
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // the original error has socket addresses
		return errLate
	}
	return wrong("body", strings.TrimPrefix(err.Error(), "json: "), "")
}

var errLate = &problem{code: http.StatusRequestTimeout, message: fmt.Sprintf("request too slow: not complete within %v", readTime)}

var errNoRoom = &problem{http.StatusServiceUnavailable, "", "no room for the body of this request: other large requests arrive", "try again later"}

func tooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

// typeOf returns the type with a short name (upper or lower case), or with a type URL (with or without
// its host). The result is nil if no type matches.
func typeOf(s string) *xds.Type {
	for _, t := range xds.Types() {
		if strings.EqualFold(t.Short, s) {
			return t
		}
	}
	const host = "type.googleapis.com/"
	if name := strings.TrimPrefix(s, host); strings.Contains(name, ".") && !strings.ContainsAny(name, "/ ") {
		return xds.TypeOf(host + name)
	}
	return nil
}

func typesHint() string {
	var hint strings.Builder
	hint.WriteString("types are ")
	for _, t := range xds.Types() {
		hint.WriteString(t.Short + ", ")
	}
	return hint.String() + "and type URLs"
}

// maxQuoted is the maximum number of bytes of a request's value that an answer quotes.
const maxQuoted = 200

// quoted quotes a value of a request.
func quoted(s string) string { return strconv.Quote(textutil.Head(s, maxQuoted)) }
