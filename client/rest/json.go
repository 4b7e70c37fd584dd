package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// Messages in JSON. Names are in snake_case, as Envoy writes them: some servers know no others.
type (
	request struct {
		Version string   `json:"version_info,omitempty"`
		Node    *node    `json:"node,omitempty"`
		Names   []string `json:"resource_names,omitempty"`
		Type    string   `json:"type_url"`
		Nonce   string   `json:"response_nonce,omitempty"`
		Error   *status  `json:"error_detail,omitempty"`
	}
	node struct {
		ID       string          `json:"id,omitempty"`
		Cluster  string          `json:"cluster,omitempty"`
		Metadata json.RawMessage `json:"metadata,omitempty"`
		Locality *locality       `json:"locality,omitempty"`
		Agent    string          `json:"user_agent_name,omitempty"`
		Version  string          `json:"user_agent_version,omitempty"`
		Features []string        `json:"client_features,omitempty"`
	}
	locality struct {
		Region  string `json:"region,omitempty"`
		Zone    string `json:"zone,omitempty"`
		SubZone string `json:"sub_zone,omitempty"`
	}
	status struct {
		Code    int32  `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
)

// encode encodes a request.
func encode(r *xds.Request) ([]byte, error) {
	m := request{Version: r.Version, Names: r.Names, Type: r.Type.URL, Nonce: r.Nonce}
	if r.Error != nil {
		m.Error = &status{r.Error.Code, r.Error.Message}
	}
	if n := r.Node; n != nil {
		m.Node = &node{ID: n.ID, Cluster: n.Cluster, Agent: n.UserAgentName, Version: n.UserAgentVersion, Features: n.ClientFeatures}
		if n.Region != "" || n.Zone != "" || n.SubZone != "" {
			m.Node.Locality = &locality{n.Region, n.Zone, n.SubZone}
		}
		if len(n.Metadata) > 0 {
			var s structpb.Struct
			err := proto.Unmarshal(n.Metadata, &s)
			if err == nil {
				m.Node.Metadata, err = protojson.Marshal(&s)
			}
			if err != nil {
				return nil, fmt.Errorf("the node's metadata: %w", err)
			}
		}
	}
	return json.Marshal(m)
}

// notFound is the code of a resource that does not exist.
const notFound = 5

// Fields of a DiscoveryResponse.
const (
	fieldVersion   = 1
	fieldResources = 2
	fieldTypeURL   = 4
	fieldNonce     = 5
)

const (
	// most is how many resources of one response are said to be malformed.
	most = 100
	// tooMany of them are no response: 20 million that are empty fit in 58 KB of gzip.
	tooMany = 10_000
	// depth is how deep a resource may be, as in Envoy (kDefaultRecursionLimit of protobuf in C++).
	// Each Any inside another one has all that is in it read once more.
	depth = 100
)

var errTooMany = fmt.Errorf("more than %d malformed resources", tooMany)

// An entry is a resource of a response, and the byte where it stands.
type entry struct{ i, at int }

// decode decodes a DiscoveryResponse. What it says is put together as a message, so that it is
// judged as one over gRPC is. A resource that cannot be read is malformed. It ends with ctx.
func (t *transport) decode(ctx context.Context, only *xds.Type, b []byte) (*xds.Response, error) {
	in := &reader{ctx: ctx, body: b, Decoder: json.NewDecoder(&pieces{ctx, bytes.NewReader(b)})}
	var m []byte
	var bad []error
	more := 0 // that bad leaves out
	malformed := func(format string, args ...any) {
		bad = append(bad, &xds.MalformedError{Err: fmt.Errorf(format, args...)})
	}
	unusable := 0
	// count counts what is malformed, and reports whether it is to be said.
	count := func() bool {
		if unusable++; unusable > tooMany {
			in.fail(errTooMany)
		}
		return len(bad) < most
	}
	var failed []xds.ResourceError
	var read []entry // the resources in m
	text := func(num protowire.Number) {
		m = protowire.AppendString(protowire.AppendTag(m, num, protowire.BytesType), in.text())
	}
	in.object(func(name string) {
		switch name {
		case "version_info", "versionInfo":
			text(fieldVersion)
		case "type_url", "typeUrl":
			text(fieldTypeURL)
		case "nonce":
			text(fieldNonce)
		case "resources":
			in.list(func(i int, raw []byte, at int) {
				url, a, err := t.resource(ctx, raw)
				switch {
				case err == nil && url != only.URL && url != wrapper:
					count() // DecodeResponse says it
				case err == nil:
				case !count():
					more++
					return
				default:
					malformed("resources[%d]: %w", i, in.placed(err, at))
					return
				}
				read = append(read, entry{i, at})
				m = protowire.AppendBytes(protowire.AppendTag(m, fieldResources, protowire.BytesType), a)
			})
		case "resource_errors", "resourceErrors":
			in.list(func(i int, raw []byte, at int) {
				switch e, err := failure(raw); {
				case err == nil:
					failed = append(failed, e)
				case !count():
					more++
				default:
					malformed("resource_errors[%d]: %s: %w", i, in.place(at), err)
				}
			})
		default:
			in.value()
		}
	})
	if err := in.end(); err != nil {
		return nil, err
	}
	r, err := wire.DecodeResponse(xds.SotW, m, wire.ResponseOptions{Only: only, Name: t.options.Name, Place: func(i int) string {
		return fmt.Sprintf("resources[%d]: %s", read[i].i, in.place(read[i].at))
	}})
	if err != nil {
		return nil, err
	}
	for _, e := range failed {
		if e.Status.Code == notFound {
			r.Missing = append(r.Missing, e.Name)
		} else {
			r.Errors = append(r.Errors, e)
		}
	}
	if more > 0 {
		malformed("and %d more", more)
	}
	r.Malformed = append(r.Malformed, bad...)
	return r, nil
}

// wrapper is what a resource may be in.
const wrapper = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// resource encodes an Any. Of its fields those are left out that this program does not know yet.
func (t *transport) resource(ctx context.Context, raw []byte) (url string, encoded []byte, err error) {
	var a anypb.Any
	o := protojson.UnmarshalOptions{Resolver: untilDone{t.options.Resolver, ctx}, DiscardUnknown: true, RecursionLimit: depth}
	if err := o.Unmarshal(raw, &a); err != nil {
		return "", nil, err
	}
	if a.TypeUrl == "" {
		return "", nil, errors.New("has no type")
	}
	encoded, err = proto.Marshal(&a)
	return a.TypeUrl, encoded, err
}

// failure reads a ResourceError.
func failure(raw []byte) (e xds.ResourceError, err error) {
	var name struct {
		Name string `json:"name"`
	}
	var detail status
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return e, err
	}
	for field, value := range fields {
		switch field {
		case "resourceName", "resource_name":
			err = json.Unmarshal(value, &name)
		case "errorDetail", "error_detail":
			err = json.Unmarshal(value, &detail)
		}
		if err != nil {
			return e, fmt.Errorf("%s: %w", field, err)
		}
	}
	if name.Name == "" {
		return e, errors.New("has no name")
	}
	return xds.ResourceError{Name: xds.CanonicalName(name.Name), Status: xds.Status(detail)}, nil
}

// untilDone finds nothing any more when ctx is done: each Any is asked about.
type untilDone struct {
	Resolver
	ctx context.Context
}

func (u untilDone) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if err := u.ctx.Err(); err != nil {
		return nil, err
	}
	return u.Resolver.FindMessageByURL(url)
}

// pieces reads a little at a time, until ctx is done.
type pieces struct {
	ctx context.Context
	all io.Reader
}

func (p *pieces) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.all.Read(b[:min(len(b), 1<<16)])
}

// A reader goes through a message once. After the first error, which it keeps, it reads nothing.
type reader struct {
	*json.Decoder
	ctx  context.Context
	body []byte
	err  error
}

// object calls field with the name of each field, which must read its value.
func (r *reader) object(field func(name string)) {
	if !r.delim('{', "an object") {
		return
	}
	for r.err == nil && r.More() {
		name, err := r.Token()
		if r.fail(err); r.err == nil {
			field(name.(string))
		}
	}
	r.delim('}', "the end of an object")
}

// list calls item for each value of a list, with where it begins.
func (r *reader) list(item func(i int, raw []byte, at int)) {
	if r.err != nil || !r.delim('[', "a list") {
		return
	}
	for i := 0; r.err == nil && r.More(); i++ {
		if raw, at := r.value(); r.err == nil {
			item(i, raw, at)
		}
		r.fail(r.ctx.Err())
	}
	r.delim(']', "the end of a list")
}

// delim reads a bracket, and reports whether it was there; null is a list of nothing.
func (r *reader) delim(want json.Delim, what string) bool {
	if r.err != nil {
		return false
	}
	token, err := r.Token()
	switch {
	case err != nil:
		r.fail(err)
	case token == nil && want == '[':
		return false
	case token != want:
		r.fail(fmt.Errorf("%s: want %s", r.place(int(r.InputOffset())-1), what))
	}
	return r.err == nil
}

// value reads any value, and says where it begins.
func (r *reader) value() (raw json.RawMessage, at int) {
	if r.err == nil {
		r.fail(r.Decode(&raw))
	}
	return raw, int(r.InputOffset()) - len(raw)
}

// text reads a string; null is the empty one.
func (r *reader) text() (s string) {
	if raw, at := r.value(); r.err == nil && json.Unmarshal(raw, &s) != nil {
		r.fail(fmt.Errorf("%s: want a string", r.place(at)))
	}
	return s
}

// end returns the first error; there must be nothing left.
func (r *reader) end() error {
	if r.err != nil {
		return r.err
	}
	if _, err := r.Token(); !errors.Is(err, io.EOF) {
		r.fail(fmt.Errorf("%s: something follows the response", r.place(int(r.InputOffset())-1)))
	}
	return r.err
}

// fail keeps the first error. If the whole is no JSON, it is that, since the place is exact then.
func (r *reader) fail(err error) {
	if err == nil || r.err != nil {
		return
	}
	r.err = err
	if errors.Is(err, errTooMany) || r.ctx.Err() != nil {
		return // all of it may be long
	}
	if e, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(r.body, new(json.RawMessage))); ok {
		at, what := int(e.Offset)-1, e.Error()
		if what == "unexpected end of JSON input" {
			at, what = len(r.body), "it ends in the middle"
		}
		r.err = fmt.Errorf("malformed JSON: %s: %s", r.place(at), what)
	}
}

// place says where a byte is.
func (r *reader) place(at int) string {
	line, column := r.lineOf(at)
	return fmt.Sprintf("line %d:%d", line, column)
}

func (r *reader) lineOf(at int) (line, column int) {
	before := r.body[:min(max(at, 0), len(r.body))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

var linePart = regexp.MustCompile(`\(line (\d+):(\d+)\)`)

// placed returns an error of protojson with its place in the whole message, of which it saw a part
// that begins at a byte.
func (r *reader) placed(err error, at int) error {
	// protojson makes its spaces differ, so that nobody relies on its texts.
	text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	first, left := r.lineOf(at)
	text = linePart.ReplaceAllStringFunc(text, func(s string) string {
		found := linePart.FindStringSubmatch(s)
		line, _ := strconv.Atoi(found[1])
		column, _ := strconv.Atoi(found[2])
		if line == 1 {
			column += left - 1
		}
		return fmt.Sprintf("(line %d:%d)", first+line-1, column)
	})
	return errors.New(text)
}
