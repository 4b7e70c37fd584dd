package xdsclient

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/envoy"
	finder "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/xds"
)

// ShowFlags are the flags that decide how the content of resources is shown.
type ShowFlags struct {
	secrets bool
	Types   *envoy.Types
}

// Register adds the flags.
func (s *ShowFlags) Register(f *pflag.FlagSet) {
	f.BoolVar(&s.secrets, "show-secrets", false, "show secrets, such as private keys, in clear text")
}

// Body returns the JSON of a resource in the form of files, with the type as the first field. whole is
// false if secrets are redacted.
func (s *ShowFlags) Body(r *xds.Resource) (b json.RawMessage, whole bool, err error) {
	m, err := Unmarshal(s.Types, r)
	if err != nil {
		return nil, false, err
	}
	whole = s.secrets || !finder.NewFinder(s.Types).Redact(m)
	b, err = protojson.MarshalOptions{Resolver: s.Types, UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, false, err
	}
	var out bytes.Buffer // protojson adds spaces at random
	if err := json.Compact(&out, b); err != nil {
		return nil, false, err
	}
	return lead(r.Type.URL, out.Bytes()), whole, nil
}

// lead puts the type URL before the fields of a message.
func lead(url string, fields []byte) json.RawMessage {
	head, _ := json.Marshal(url) // cannot fail for a string
	b := append([]byte(`{"@type":`), head...)
	if len(fields) > len("{}") {
		b = append(b, ',')
	}
	return append(b, fields[1:]...)
}

// Unmarshal decodes the message of a resource.
func Unmarshal(types *envoy.Types, r *xds.Resource) (proto.Message, error) {
	t, err := types.FindMessageByURL(r.Type.URL)
	if err != nil {
		return nil, fmt.Errorf("type %s is unknown", r.Type.URL)
	}
	m := t.New().Interface()
	if err := (proto.UnmarshalOptions{Resolver: types}).Unmarshal(r.Body, m); err != nil {
		return nil, fmt.Errorf("not a %s: %w", t.Descriptor().Name(), err)
	}
	return m, nil
}

// Wrapped returns a resource in the form of files. The body is wrapped in the protocol's Resource message
// if the resource has aliases or a TTL, or if messages of its type have no name field.
func Wrapped(r *xds.Resource, body json.RawMessage) json.RawMessage {
	if len(r.Aliases) == 0 && r.TTL == 0 && r.Type.Name != "" {
		return body
	}
	w := struct {
		Name     string          `json:"name"`
		Aliases  []string        `json:"aliases,omitempty"`
		TTL      string          `json:"ttl,omitempty"`
		Resource json.RawMessage `json:"resource"`
	}{r.Name, r.Aliases, "", body}
	if r.TTL > 0 {
		w.TTL = strconv.FormatFloat(r.TTL.Seconds(), 'f', -1, 64) + "s"
	}
	b, _ := json.Marshal(w) // cannot fail: all fields are strings or JSON
	return lead(cli.APITypes+"envoy.service.discovery.v3.Resource", b)
}
