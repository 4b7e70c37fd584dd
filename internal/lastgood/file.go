package lastgood

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/chancery-xds/chancery/xds"
)

// magic is the first line of a file. Another number is another format.
const magic = "chancery last good 2\n"

// before is that of the format without what had gone, which is read.
const before = "chancery last good 1\n"

// A Config is a configuration that was served. It is immutable. What its resources refer
// to is not kept.
type Config struct {
	At    time.Time // when it was committed
	Types []Type
	Gone  []Type // what was served shortly before, and clients may still have
	Peaks []Peak // how much there was lately, by type
}

// A Peak is how many resources a type had until a time.
type Peak struct {
	URL   string
	N     int
	Until time.Time
}

// A Type is all resources of a type.
type Type struct {
	*xds.Type
	Version   string // said by its source; empty: the hash of its content
	Withheld  bool   // it has resources that are not kept: what they are is not known
	Resources []Resource
}

// A Resource is a resource and the place where it stood.
type Resource struct {
	*xds.Resource
	File      string
	Line, Col int // zero: not known
	Path      string
	Secret    bool // it has a secret in it; this is not kept
}

// chunk is how many resources are in a message of a file.
const chunk = 256

// A file is the first line, the time, messages of resources each with its length,
// and the checksum of all of that.

// write writes a configuration.
func (c Config) write(out io.Writer) error {
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(out, sum), 1<<16)
	if _, err := w.WriteString(magic); err != nil {
		return err
	}
	if _, err := protodelim.MarshalTo(w, timestamppb.New(c.At)); err != nil {
		return err
	}
	for i, t := range slices.Concat(c.Types, c.Gone) {
		rest := t.Resources
		for first := true; first || len(rest) > 0; first = false {
			n := min(chunk, len(rest))
			m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: t.URL, SystemVersionInfo: t.Version}
			switch {
			case i >= len(c.Types):
				m.Nonce = gone
			case t.Withheld:
				m.Nonce = withheld
			}
			for _, r := range rest[:n] {
				m.Resources = append(m.Resources, r.encode(t.URL))
			}
			if _, err := protodelim.MarshalTo(w, m); err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
	for _, p := range c.Peaks {
		if _, err := protodelim.MarshalTo(w, p.encode()); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := out.Write(sum.Sum(nil))
	return err
}

// withheld marks a type of which not all is kept, gone what is not served any more, peak
// how much there was.
const (
	withheld = "withheld"
	gone     = "gone"
	peak     = "peak"
)

func (p Peak) encode() *discoveryv3.DeltaDiscoveryResponse {
	return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: p.URL, Nonce: peak, Resources: []*discoveryv3.Resource{
		{Name: strconv.Itoa(p.N), Version: p.Until.UTC().Format(time.RFC3339Nano)},
	}}
}

func decodePeak(m *discoveryv3.DeltaDiscoveryResponse) (p Peak, err error) {
	if len(m.Resources) != 1 {
		return p, errCut
	}
	p.URL = m.TypeUrl
	if p.N, err = strconv.Atoi(m.Resources[0].Name); err != nil {
		return p, err
	}
	p.Until, err = time.Parse(time.RFC3339Nano, m.Resources[0].Version)
	return p, err
}

// place is the key of the metadata that says where a resource stood.
const place = "chancery"

func (r Resource) encode(url string) *discoveryv3.Resource {
	m := &discoveryv3.Resource{
		Name: r.Name, Aliases: r.Aliases, Version: r.Version,
		Resource: &anypb.Any{TypeUrl: url, Value: r.Body},
		Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{place: {Fields: map[string]*structpb.Value{
			"file": structpb.NewStringValue(r.File), "line": structpb.NewNumberValue(float64(r.Line)), "column": structpb.NewNumberValue(float64(r.Col)),
			"path": structpb.NewStringValue(r.Path), "on_demand": structpb.NewBoolValue(r.OnDemand),
		}}}},
	}
	if r.TTL != 0 {
		m.Ttl = durationpb.New(r.TTL)
	}
	return m
}

// decode returns a resource without its references.
func decode(m *discoveryv3.Resource) Resource {
	at := m.GetMetadata().GetFilterMetadata()[place].GetFields()
	r := Resource{
		Resource: &xds.Resource{Stamp: &xds.Stamp{Name: m.Name}, Body: m.Resource.GetValue(), Aliases: m.Aliases, TTL: m.Ttl.AsDuration(), OnDemand: at["on_demand"].GetBoolValue()},
		File:     at["file"].GetStringValue(), Path: at["path"].GetStringValue(),
		Line: int(at["line"].GetNumberValue()), Col: int(at["column"].GetNumberValue()),
	}
	r.Seal(m.Version)
	return r
}

// errCut says that a file is not all that was written.
var errCut = errors.New("the file is damaged: its checksum is another")

// parse reads what write wrote.
func parse(data []byte) (Config, error) {
	body, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		body, ok = bytes.CutPrefix(data, []byte(before))
	}
	if !ok {
		return Config{}, errors.New("the file is of another version of Chancery, or of something else")
	}
	if len(body) < sha256.Size {
		return Config{}, errCut
	}
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return Config{}, errCut
	}
	var c Config
	in := bytes.NewReader(data[len(magic):end])
	var at timestamppb.Timestamp
	if err := unmarshal(in, &at); err != nil {
		return Config{}, err
	}
	c.At = at.AsTime()
	for in.Len() > 0 {
		var m discoveryv3.DeltaDiscoveryResponse
		if err := unmarshal(in, &m); err != nil {
			return Config{}, err
		}
		types := &c.Types
		switch m.Nonce {
		case gone:
			types = &c.Gone
		case peak:
			p, err := decodePeak(&m)
			if err != nil {
				return Config{}, err
			}
			c.Peaks = append(c.Peaks, p)
			continue
		}
		n := len(*types)
		if n == 0 || (*types)[n-1].URL != m.TypeUrl {
			*types = append(*types, Type{Type: xds.TypeOf(m.TypeUrl), Version: m.SystemVersionInfo, Withheld: m.Nonce == withheld})
			n++
		}
		for _, r := range m.Resources {
			(*types)[n-1].Resources = append((*types)[n-1].Resources, decode(r))
		}
	}
	return c, nil
}

func unmarshal(in *bytes.Reader, m proto.Message) error {
	return protodelim.UnmarshalOptions{MaxSize: -1}.UnmarshalFrom(in, m)
}

// A counter counts what is written, and refuses more than a limit.
type counter struct {
	io.Writer
	left int64
}

var errLarge = errors.New("the configuration is too large to be kept")

func (c *counter) Write(b []byte) (int, error) {
	if c.left -= int64(len(b)); c.left < 0 {
		return 0, errLarge
	}
	return c.Writer.Write(b)
}
