package csds

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// Name is the name of the gRPC service.
	Name = "envoy.service.status.v3.ClientStatusDiscoveryService"

	file = "envoy/service/status/v3/csds.proto"
)

// names has the message types of the service, which are looked up once.
type names struct{ request, response, config, generic protoreflect.MessageType }

func (s *Service) messages() *names {
	s.once.Do(func() {
		find := func(name protoreflect.FullName) protoreflect.MessageType { return s.types.New(name).Type() }
		s.names = names{
			find("envoy.service.status.v3.ClientStatusRequest"), find("envoy.service.status.v3.ClientStatusResponse"),
			find("envoy.service.status.v3.ClientConfig"), find("envoy.service.status.v3.ClientConfig.GenericXdsConfig"),
		}
	})
	return &s.names
}

// Register adds the service to a gRPC server.
func (s *Service) Register(g grpc.ServiceRegistrar) {
	// A unary call is registered as a stream with one request and one response, because the handler
	// of a stream returns only when the response is sent. So few large responses are in memory at the
	// same time.
	fetch := func(_ any, g grpc.ServerStream) error { return s.serve(g, true) }
	stream := func(_ any, g grpc.ServerStream) error { return s.serve(g, false) }
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: Name, HandlerType: (*any)(nil), Metadata: file,
		Streams: []grpc.StreamDesc{
			{StreamName: "StreamClientStatus", Handler: stream, ServerStreams: true, ClientStreams: true},
			{StreamName: "FetchClientStatus", Handler: fetch},
		},
	}, s)
}

// serve answers requests until the caller ends the stream. If once is true, it answers only the first
// request.
func (s *Service) serve(g grpc.ServerStream, once bool) (err error) {
	if p := panics.Do(func() { err = s.requests(g, once) }); p != nil {
		p.Log(s.log(), "CSDS")
		return status.Error(codes.Internal, "internal error")
	}
	return err
}

func (s *Service) requests(g grpc.ServerStream, once bool) error {
	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	default:
		return status.Errorf(codes.ResourceExhausted, "too many calls: %d are open, the maximum", maxCalls)
	}
	for {
		request := s.messages().request.New()
		if err := g.RecvMsg(request.Interface()); err != nil {
			if errors.Is(err, io.EOF) && !once {
				return nil
			}
			return err
		}
		if err := s.respond(g, request); err != nil || once {
			return err
		}
	}
}

// respond waits for one of maxTurns slots, builds the answer to one request, and sends it.
func (s *Service) respond(g grpc.ServerStream, request protoreflect.Message) error {
	ctx := g.Context()
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	response, err := s.answer(ctx, request)
	if err != nil {
		return err
	}
	written := sending(ctx)
	if err := g.SendMsg(response.Interface()); err != nil {
		return err
	}
	written()
	return nil
}

// answer builds the answer to a request.
func (s *Service) answer(ctx context.Context, request protoreflect.Message) (protoreflect.Message, error) {
	match, err := compile(s.types, request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, valid(err.Error()))
	}
	a := answer{s: s, max: s.o.MaxBytes, without: request.Get(request.Descriptor().Fields().ByName("exclude_resource_contents")).Bool(),
		contents: contents{s: s}, known: map[key][]byte{}}
	for _, c := range s.clients() {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		if !match.match(c.Node) {
			continue
		}
		if err := a.client(ctx, &c); err != nil {
			return nil, err
		}
	}
	response := s.messages().response.New()
	response.SetUnknown(a.b) // the bytes are already encoded, so the messages need not be in memory
	return response, nil
}

func (s *Service) clients() []Client {
	if s.o.Clients == nil {
		return nil
	}
	return s.o.Clients()
}

// An answer is a ClientStatusResponse that is being encoded.
type answer struct {
	s       *Service
	b       []byte
	max     int
	without bool // exclude_resource_contents
	contents
	known  map[key][]byte
	busy   time.Duration // time spent waiting for clients that did not answer
	config []byte        // the current client; reused
}

// A key identifies the encoding of a resource that has neither Failure nor Updated. Resources with equal
// keys have the same encoding.
type key struct {
	typ     string
	name    string
	body    *xds.Resource
	version string
	state   State
	has     bool
	status  int32
}

const (
	clientTimeout = time.Second     // for one client
	stuckBudget   = 5 * time.Second // for all clients that do not answer
)

// ask returns the resources of a client. The total time for stuck streams is limited, because they
// delay the other clients of the answer.
func (a *answer) ask(ctx context.Context, c *Client) []TypeConfig {
	if c.Config == nil || a.busy >= stuckBudget {
		return nil
	}
	begin := time.Now()
	of, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	all, err := c.Config(of)
	if err != nil && of.Err() != nil {
		a.busy += time.Since(begin)
	}
	return all
}

// client adds a ClientConfig.
func (a *answer) client(ctx context.Context, c *Client) error {
	m := a.s.messages().config.New()
	set(m, "client_scope", c.Scope)
	n := m.Mutable(m.Descriptor().Fields().ByName("node")).Message()
	node(n, c.Node)
	a.s.metadata(n, c.Node)
	b, err := envoy.Marshal(m)
	if err != nil {
		return status.Error(codes.Internal, valid(err.Error()))
	}
	a.config = append(a.config[:0], b...)
	field := m.Descriptor().Fields().ByName("generic_xds_configs").Number()
	for _, t := range a.ask(ctx, c) {
		for i := range t.Resources {
			one, err := a.resource(t.Type, &t.Resources[i])
			if err != nil {
				return status.Error(codes.Internal, valid(err.Error()))
			}
			a.config = protowire.AppendBytes(protowire.AppendTag(a.config, field, protowire.BytesType), one)
			if len(a.b)+len(a.config) > a.max {
				return status.Errorf(codes.ResourceExhausted, "the answer has more than %d MiB: ask for fewer clients (node_matchers), or set exclude_resource_contents", a.max>>20)
			}
		}
	}
	all := a.s.messages().response.Descriptor().Fields().ByName("config").Number()
	a.b = protowire.AppendBytes(protowire.AppendTag(a.b, all, protowire.BytesType), a.config)
	return nil
}

// resource returns an encoded GenericXdsConfig.
func (a *answer) resource(t *xds.Type, r *Resource) ([]byte, error) {
	k := key{t.URL, r.Name, r.Body, r.version(), r.State, r.Has, r.Status}
	usual := r.Failure == nil && r.Updated.IsZero()
	if usual {
		if b, ok := a.known[k]; ok {
			return b, nil
		}
	}
	var body, refused *content
	if !a.without {
		body, refused = a.of(r.Body), a.of(r.refused())
	}
	m := a.s.messages().generic.New()
	set(m, "type_url", t.URL)
	set(m, "name", r.Name)
	set(m, "version_info", r.version())
	set(m, "xds_config", body)
	set(m, "last_updated", r.Updated)
	set(m, "config_status", r.configStatus())
	set(m, "client_status", r.clientStatus())
	failure(m, r, refused)
	b, err := envoy.Marshal(m)
	if usual {
		a.known[k] = b
	}
	return b, err
}

// metadata sets the metadata of a node from its encoded form.
func (s *Service) metadata(m protoreflect.Message, n *xds.Node) {
	if len(n.Metadata) == 0 {
		return
	}
	fd := m.Descriptor().Fields().ByName("metadata")
	is := m.NewField(fd).Message()
	if proto.Unmarshal(n.Metadata, is.Interface()) == nil {
		flattenStruct(is, 1)
		m.Set(fd, protoreflect.ValueOfMessage(is))
	}
}

// valid replaces invalid UTF-8, which protobuf messages must not contain.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
