package admin

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/admin/csds"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/internal/protoscan"
	endpointsv1 "github.com/chancery-xds/chancery/proto/chancery/endpoints/v1"
)

// Limits of a gRPC request that registers endpoints.
const (
	maxRequest   = 1 << 20 // maximum bytes of a request
	maxEndpoints = 10_000  // maximum number of endpoints in all steps of a request
	maxDepth     = 200     // maximum depth of nested messages; an object in metadata counts as three
	maxUnpacked  = 2       // maximum number of inputs with more than fewParts unpacked parts
)

// register serves chancery.endpoints.v1.Endpoints/Register, the gRPC form of the stream of lines.
//
// register reads and writes gRPC frames itself. As the handler of another HTTP server, grpc.Server
// would read a stream into memory as fast as the data arrive, even if the stream is processed slowly.
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var err error
	if p := panics.Do(func() { err = s.registerMessages(w, r) }); p != nil {
		p.Log(s.log(), "gRPC "+r.URL.Path)
		panic(http.ErrAbortHandler) // a part of the answer may have been sent
	}
	end(w, err)
}

func (s *Server) registerMessages(w http.ResponseWriter, r *http.Request) error {
	if kind := r.Header.Get("Content-Type"); strings.HasPrefix(kind, "application/grpc+") && kind != "application/grpc+proto" {
		return &problem{http.StatusNotImplemented, "Content-Type", "must be application/grpc or application/grpc+proto", ""}
	}
	f, r, leave, err := s.feed(w, r)
	if err != nil {
		return err
	}
	defer leave()
	c := &messages{s: s, in: bufio.NewReader(r.Body), w: w}
	f.form = c
	w.Header().Set("Content-Type", "application/grpc")
	w.WriteHeader(http.StatusOK) // some clients send nothing until they have the headers
	_ = f.control.SetWriteDeadline(time.Time{})
	_ = f.control.Flush()
	if err := f.expect(r.Context()); err != nil {
		return err
	}
	first, err := c.read()
	if errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return err
	}
	if err := c.begin(r.Context(), first); err != nil {
		return err
	}
	if err := f.open(c.ttl); err != nil {
		return s.registering(err, "")
	}
	if err := f.serve(r, "grpc", c.ttl, first); err != nil {
		return err
	}
	if err := context.Cause(r.Context()); errors.Is(err, errReplaced) {
		return errReplaced
	} else if err != nil {
		return errEnding
	}
	return nil
}

// ended converts the error of a stream to its gRPC status.
func ended(err error) (codes.Code, string) {
	if p, ok := errors.AsType[*problem](err); ok {
		if p.field != "" {
			return codeOf(p.code), p.field + ": " + p.message
		}
		return codeOf(p.code), p.message
	}
	switch {
	case err == nil:
		return codes.OK, ""
	case errors.Is(err, os.ErrDeadlineExceeded):
		return codes.DeadlineExceeded, "no request has come for too long"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return codes.InvalidArgument, "a request is cut off"
	}
	return codes.Unavailable, err.Error()
}

// messages reads a stream of endpoints as gRPC messages, and writes the answers as gRPC messages. It
// implements form.
type messages struct {
	s   *Server
	in  *bufio.Reader
	w   http.ResponseWriter
	ttl time.Duration // duration of the lease, from the first request

	came int // number of requests read
	n    int // number of requests unpacked
}

func (m *messages) ready() bool {
	if m.in.Buffered() < csds.FrameHeader {
		return false
	}
	head, _ := m.in.Peek(csds.FrameHeader)
	return m.in.Buffered()-csds.FrameHeader >= int(binary.BigEndian.Uint32(head[1:]))
}

func (m *messages) read() (input, error) {
	m.came++
	b, err := csds.ReadFrame(m.in, maxRequest)
	if err != nil {
		return input{}, err
	}
	switch size := binary.BigEndian.Uint32(b[1:]); {
	case b[0] != 0:
		return input{}, &problem{http.StatusNotImplemented, "", "compressed requests are not supported", ""}
	case size > maxRequest:
		return input{}, &problem{http.StatusRequestEntityTooLarge, "", fmt.Sprintf("request %d has %d bytes: at most %d are allowed", m.came, size, maxRequest), ""}
	}
	message := b[csds.FrameHeader:]
	one := input{size: len(b), packed: message, parts: parts(message, ofRequest, 0, 0)}
	if one.parts > maxParts {
		one = input{size: one.size, err: wrong("", fmt.Sprintf("has more than %d messages: steps, endpoints, localities, and fields and values of metadata", maxParts), "")}
	}
	return one, nil
}

var ofRequest = (&endpointsv1.RegisterRequest{}).ProtoReflect().Descriptor()

// parts returns n plus the number of messages in the encoded message b, without unpacking b. It stops
// above the limit, and at invalid input, because unpacking stops there, too.
func parts(b []byte, of protoreflect.MessageDescriptor, n, depth int) int {
	if depth == maxDepth {
		return n
	}
	for part, err := range protoscan.Fields(b) {
		if err != nil || n > maxParts {
			break
		}
		if f := of.Fields().ByNumber(part.Number); f != nil && f.Message() != nil && part.Type == protowire.BytesType {
			n = parts(part.Bytes, f.Message(), n+1, depth+1)
		}
	}
	return n
}

// begin reads the duration of the lease from the first request, because the session needs it. The request
// is unpacked a second time when it is applied.
func (m *messages) begin(ctx context.Context, first input) error {
	leave, err := m.s.unpacks(ctx, first.parts)
	if err != nil {
		return err
	}
	defer leave()
	if first.err == nil {
		m.unpack(&first)
	}
	return first.err
}

func (m *messages) unpack(one *input) {
	m.n++
	in := &endpointsv1.RegisterRequest{}
	if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth}).Unmarshal(one.packed, in); err != nil {
		one.err = wrong("", "not a RegisterRequest: "+strings.TrimSpace(strings.TrimPrefix(err.Error(), "proto:")), "")
		return
	}
	one.err = m.lease(in)
	if one.err == nil {
		one.err = steps(one, in.GetSteps())
	}
}

// lease reads the duration of the lease.
func (m *messages) lease(in *endpointsv1.RegisterRequest) error {
	if in.GetTtl() == nil {
		return nil
	}
	ttl := in.GetTtl().AsDuration()
	switch {
	case m.n > 1 && ttl != m.ttl:
		return wrong("ttl", "must be that of the first request", "")
	case in.GetTtl().CheckValid() != nil || ttl < endpoints.MinTTL || ttl > endpoints.MaxTTL:
		return wrong("ttl", fmt.Sprintf("must be %v to %v", endpoints.MinTTL, endpoints.MaxTTL), "")
	}
	m.ttl = ttl
	return nil
}

// steps converts the steps of a request. An invalid step has its error.
func steps(to *input, in []*endpointsv1.Step) error {
	if len(in) > maxSteps {
		return wrong("steps", fmt.Sprintf("has %d steps: at most %d are allowed", len(in), maxSteps), "")
	}
	all := 0
	for _, one := range in {
		all += len(one.GetReplace().GetEndpoints())
		if all > maxEndpoints {
			return wrong("steps", fmt.Sprintf("more than %d endpoints", maxEndpoints), "")
		}
	}
	to.steps, to.wrong = make([]endpoints.Op, len(in)), map[int]error{}
	for i, one := range in {
		var err error
		to.steps[i], err = step(one)
		if err != nil {
			to.wrong[i] = err
		}
	}
	return nil
}

func step(in *endpointsv1.Step) (endpoints.Op, error) {
	op := endpoints.Op{Cluster: endpoints.Cluster{Group: in.GetGroup(), Name: in.GetCluster()}}
	switch c := in.GetChange().(type) {
	case *endpointsv1.Step_Put:
		e := unpacked(c.Put)
		op.ID, op.Endpoint = e.ID, &e.Endpoint
	case *endpointsv1.Step_Remove:
		op.ID = c.Remove
	case *endpointsv1.Step_Replace:
		op.Replace = make([]endpoints.Registered, len(c.Replace.GetEndpoints()))
		for i, e := range c.Replace.GetEndpoints() {
			op.Replace[i] = unpacked(e)
		}
	case *endpointsv1.Step_Release:
		op.Release = true
	default:
		return op, wrong("", "must have exactly one of put, remove, replace and release", "")
	}
	return op, nil
}

// unpacked converts an endpoint message to an endpoint of the registry. The registry checks the endpoint
// later.
func unpacked(in *endpointsv1.Endpoint) endpoints.Registered {
	e := endpoints.Registered{ID: in.GetId(), Endpoint: endpoints.Endpoint{
		Address: in.GetAddress(), Port: number(in.GetPort()), Hostname: in.GetHostname(), Weight: number(in.GetWeight()), Priority: number(in.GetPriority()),
		Health: in.GetHealth().String(),
	}}
	if l := in.GetLocality(); l != nil {
		e.Locality = endpoints.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
	}
	for name, fields := range in.GetMetadata() {
		if e.Metadata == nil {
			e.Metadata = map[string]map[string]any{}
		}
		e.Metadata[name] = fields.AsMap()
	}
	return e
}

// number converts n to int. Values above the range of an int32 become its maximum.
func number(n uint32) int { return int(min(n, math.MaxInt32)) }

func (m *messages) answer(n int, lost bool, wrong []refused) error {
	out := &endpointsv1.RegisterResponse{Done: uint64(n), Lost: lost}
	for _, one := range wrong {
		r := &endpointsv1.Refusal{Request: uint64(one.n), Field: valid(one.field), Message: valid(one.message)}
		if one.step >= 0 {
			r.Step = new(uint32(one.step))
		}
		out.Refused = append(out.Refused, r)
	}
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, csds.FrameHeader), out)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-csds.FrameHeader))
	_, err = m.w.Write(b)
	return err
}

// valid replaces invalid UTF-8, which protobuf messages must not contain.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
