package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/internal/text/jsonscan"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// The messages of a request in JSON. Names are in snake_case, as in requests of Envoy: some servers accept only these.
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

// notFound is the status code of a resource that does not exist.
const notFound = 5

// Field numbers of DiscoveryResponse.
const (
	fieldVersion   = 1
	fieldResources = 2
	fieldTypeURL   = 4
	fieldNonce     = 5
)

const (
	// maxErrors limits the malformed resources of one response that are reported.
	maxErrors = 100
	// maxMalformed limits the malformed resources of one response: 20 million empty ones fit in 58 KB of
	// gzip.
	maxMalformed = 10_000
	// maxResourceDepth limits the nesting of a resource, as in Envoy (kDefaultRecursionLimit of
	// protobuf in C++). Each Any inside another Any is decoded once more.
	maxResourceDepth = 100
	// maxDepth limits the nesting of a response, as encoding/json does.
	maxDepth = 10_000
	// valueCost is the number of bytes that a value of a resource counts for the limit of a response. While a
	// resource is decoded, a value takes up to 600 bytes, so 15 MB could take 3 GB (SAFE-14).
	valueCost = 128
)

var errTooManyMalformed = fmt.Errorf("more than %d malformed resources", maxMalformed)

// A decoder decodes a DiscoveryResponse. It encodes the response as a message, so that it is checked like
// a message over gRPC.
type decoder struct {
	*jsonscan.Scanner
	transport *transport
	ctx       context.Context
	only      *xds.Type
	body      []byte

	message   []byte
	resources []entry // in message
	failed    []xds.ResourceError
	malformed []error
	omitted   int // malformed resources that malformed leaves out
	count     int // resources that cannot be used
}

// An entry is a resource of a response: its index in the list, and the offset of its JSON.
type entry struct{ index, offset int }

// decode decodes a DiscoveryResponse. A resource that cannot be read is malformed. decode ends when
// ctx is done.
func (t *transport) decode(ctx context.Context, only *xds.Type, b []byte) (*xds.Response, error) {
	d := &decoder{transport: t, ctx: ctx, only: only, body: b}
	d.Scanner = jsonscan.New(b, jsonscan.Options{Root: "the response", MaxDepth: maxDepth, Place: d.place, Check: ctx.Err})
	if err := d.Document(d.field); err != nil {
		return nil, err
	}
	r, err := wire.DecodeResponse(xds.SotW, d.message, wire.ResponseOptions{Only: only, Name: t.options.ResourceName, Limit: t.options.Limit, Place: func(i int) string {
		return fmt.Sprintf("resources[%d]: %s", d.resources[i].index, d.place(d.resources[i].offset))
	}})
	if err != nil {
		return nil, err
	}
	for _, e := range d.failed {
		if e.Status.Code == notFound {
			r.Missing = append(r.Missing, e.Name)
		} else {
			r.Errors = append(r.Errors, e)
		}
	}
	r.Malformed = append(r.Malformed, d.malformed...)
	if d.omitted > 0 {
		r.Malformed = append(r.Malformed, &xds.MalformedError{Err: fmt.Errorf("and %d more", d.omitted)})
	}
	return r, nil
}

// field reads a field of the response.
func (d *decoder) field(name string) bool {
	switch name {
	case "version_info":
		d.text(fieldVersion)
	case "type_url":
		d.text(fieldTypeURL)
	case "nonce":
		d.text(fieldNonce)
	case "resources":
		d.list(d.resource)
	case "resource_errors":
		d.list(d.resourceError)
	default:
		return false
	}
	return true
}

// text reads a string and encodes it as a field of the message.
func (d *decoder) text(field protowire.Number) {
	d.message = protowire.AppendString(protowire.AppendTag(d.message, field, protowire.BytesType), d.Text())
}

// list calls item with the index, the text and the offset of each item of a list.
func (d *decoder) list(item func(i int, raw []byte, offset int)) {
	d.List("a list", func(i int) {
		raw, offset := d.Raw()
		if limit, n := d.transport.options.Limit, jsonscan.Values(raw); d.Err() == nil && limit.Bytes > 0 && n > limit.Bytes/valueCost {
			d.Fail(limit.Exceeded(xds.LimitResponse, fmt.Sprintf("%s: a resource of %d values counts as %d bytes", d.place(offset), n, n*valueCost)))
		}
		if d.Err() != nil {
			return
		}
		item(i, raw, offset)
		if err := d.ctx.Err(); err != nil {
			d.Fail(err)
		}
	})
}

func (d *decoder) resource(i int, raw []byte, offset int) {
	url, encoded, err := d.transport.encodeAny(d.ctx, raw)
	if err != nil {
		d.report(func() error { return fmt.Errorf("resources[%d]: %w", i, d.placed(err, offset)) })
		return
	}
	if url != d.only.URL && url != wrapper {
		d.countUnusable() // DecodeResponse reports it
	}
	d.resources = append(d.resources, entry{i, offset})
	d.message = protowire.AppendBytes(protowire.AppendTag(d.message, fieldResources, protowire.BytesType), encoded)
}

func (d *decoder) resourceError(i int, raw []byte, offset int) {
	e, err := decodeError(raw)
	if err != nil {
		d.report(func() error { return fmt.Errorf("resource_errors[%d]: %s: %w", i, d.place(offset), err) })
		return
	}
	d.failed = append(d.failed, e)
}

// report adds an error of a resource, or counts it if there are too many errors to report.
func (d *decoder) report(err func() error) {
	d.countUnusable()
	if len(d.malformed) < maxErrors {
		d.malformed = append(d.malformed, &xds.MalformedError{Err: err()})
	} else {
		d.omitted++
	}
}

func (d *decoder) countUnusable() {
	d.count++
	if d.count > maxMalformed {
		d.Fail(errTooManyMalformed)
	}
}

// wrapper is the type of the protocol's Resource, which may contain a resource.
const wrapper = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// encodeAny encodes an Any in JSON as protobuf. It leaves out unknown fields.
func (t *transport) encodeAny(ctx context.Context, raw []byte) (url string, encoded []byte, err error) {
	var a anypb.Any
	o := protojson.UnmarshalOptions{Resolver: cancellableResolver{t.options.Resolver, ctx}, DiscardUnknown: true, RecursionLimit: maxResourceDepth}
	if err := o.Unmarshal(raw, &a); err != nil {
		return "", nil, err
	}
	if a.TypeUrl == "" {
		return "", nil, errors.New("the type is missing")
	}
	encoded, err = proto.Marshal(&a)
	return a.TypeUrl, encoded, err
}

// decodeError decodes a ResourceError.
func decodeError(raw []byte) (e xds.ResourceError, err error) {
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
		return e, errors.New("the name is missing")
	}
	return xds.ResourceError{Name: xds.CanonicalName(name.Name), Status: xds.Status(detail)}, nil
}

// A cancellableResolver finds no types after ctx is done. It is called for each Any.
type cancellableResolver struct {
	Resolver
	ctx context.Context
}

func (u cancellableResolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if err := u.ctx.Err(); err != nil {
		return nil, err
	}
	return u.Resolver.FindMessageByURL(url)
}

// place returns the position of a byte, such as "line 2:5".
func (d *decoder) place(offset int) string {
	line, column := d.lineOf(offset)
	return fmt.Sprintf("line %d:%d", line, column)
}

func (d *decoder) lineOf(at int) (line, column int) {
	before := d.body[:min(max(at, 0), len(d.body))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

var linePart = regexp.MustCompile(`\(line (\d+):(\d+)\)`)

// placed returns an error of protojson with its position in the whole response. protojson has seen only
// the part from offset on.
func (d *decoder) placed(err error, offset int) error {
	// protojson varies the spaces in its errors, so that programs do not depend on them.
	text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	first, left := d.lineOf(offset)
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
