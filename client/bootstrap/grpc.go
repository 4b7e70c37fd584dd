package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// A GRPCConfig is the content of a gRPC bootstrap (gRFC A27 and its extensions).
type GRPCConfig struct {
	// Config is for [client.New].
	client.Config

	// Providers are the certificate_providers (gRFC A29). The package does not use them.
	Providers map[string]Provider

	// ServerListenerTemplate is the server_listener_resource_name_template (gRFC A36).
	// [GRPCConfig.ServerListenerName] replaces its "%s" with the address that a server listens on.
	ServerListenerTemplate string

	listener  string            // client_default_listener_resource_name_template
	listeners map[string]string // client_listener_resource_name_template, by authority
}

// A Provider is a certificate provider plugin.
type Provider struct {
	Plugin string
	Config json.RawMessage // nil: none
}

const (
	envFile   = "GRPC_XDS_BOOTSTRAP"
	envInline = "GRPC_XDS_BOOTSTRAP_CONFIG"
)

// FromEnv reads gRPC's bootstrap from the file in GRPC_XDS_BOOTSTRAP or, if that is not set, from the
// text in GRPC_XDS_BOOTSTRAP_CONFIG.
func FromEnv(o Options) (*GRPCConfig, error) {
	if name := os.Getenv(envFile); name != "" {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", envFile, err)
		}
		return GRPC(name, data, o)
	}
	if text := os.Getenv(envInline); text != "" {
		return GRPC("$"+envInline, []byte(text), o)
	}
	return nil, errors.New("no bootstrap: neither " + envFile + " nor " + envInline + " is set")
}

// GRPC reads a bootstrap of gRPC. The text of each error begins with the argument file. GRPC ignores
// unknown fields, as gRPC does. Equal servers share a transport, also servers of different authorities
// (gRFC A47).
func GRPC(file string, data []byte, o Options) (_ *GRPCConfig, err error) {
	m := &maker{Options: o, file: file}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	f, err := root(m, data)
	if err != nil {
		return nil, err
	}
	top, err := f.object()
	if err != nil {
		return nil, err
	}
	g := &grpcReader{maker: m, known: map[string]client.Server{}}
	c := &GRPCConfig{}
	c.Node, err = g.node(top.get("node"))
	if err != nil {
		return nil, err
	}
	c.Servers, err = g.servers(top.get("xds_servers"))
	if err != nil {
		return nil, err
	}
	if len(c.Servers) == 0 {
		return nil, m.errorf("xds_servers", "at least one is needed")
	}
	if err := g.authorities(top, c); err != nil {
		return nil, err
	}
	c.Providers, err = providers(top.get("certificate_providers"))
	if err != nil {
		return nil, err
	}
	if err := top.text("client_default_listener_resource_name_template", &c.listener); err != nil {
		return nil, err
	}
	if err := top.text("server_listener_resource_name_template", &c.ServerListenerTemplate); err != nil {
		return nil, err
	}
	return c, nil
}

type grpcReader struct {
	*maker
	known map[string]client.Server // by their JSON
}

// node reads the node. completeNode adds the user agent.
func (g *grpcReader) node(f field) (*xds.Node, error) {
	n := &xds.Node{}
	o, err := f.object()
	if err != nil {
		return nil, err
	}
	at, err := o.get("locality").object()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		o.text("id", &n.ID), o.text("cluster", &n.Cluster),
		at.text("region", &n.Region), at.text("zone", &n.Zone), at.text("sub_zone", &n.SubZone),
	); err != nil {
		return nil, err
	}
	if md := o.get("metadata"); md.set() {
		s := &structpb.Struct{}
		if err := s.UnmarshalJSON(md.data); err != nil {
			return nil, g.errorf(md.path, "an object of UTF-8 text is needed")
		}
		n.Metadata, err = (proto.MarshalOptions{Deterministic: true}).Marshal(s)
		if err != nil {
			return nil, g.errorf(md.path, "%w", err)
		}
	}
	g.completeNode(n)
	return n, nil
}

func (g *grpcReader) servers(f field) ([]client.Server, error) {
	all, err := f.list()
	var servers []client.Server
	for _, f := range all {
		s, err := g.server(f)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, err
}

func (g *grpcReader) server(f field) (s client.Server, err error) {
	o, err := f.object()
	if err != nil {
		return s, err
	}
	var key bytes.Buffer
	if err := json.Compact(&key, f.data); err != nil {
		return s, g.errorf(f.path, "%w", err)
	}
	if s, ok := g.known[key.String()]; ok {
		return s, nil
	}
	var r grpcServer
	if err := o.text("server_uri", &r.target); err != nil {
		return s, err
	}
	if r.target == "" {
		return s, g.errorf(o.get("server_uri").path, "is missing")
	}
	if err := g.channelCredentials(o.get("channel_creds"), &r); err != nil {
		return s, err
	}
	if err := g.callCredentials(o.get("call_creds"), &r); err != nil {
		return s, err
	}
	features, err := o.get("server_features").texts()
	if err != nil {
		return s, err
	}
	s = client.Server{ // "xds_v3" is always true; unknown features are ignored
		IgnoreDeletion:   slices.Contains(features, "ignore_resource_deletion"),
		Trusted:          slices.Contains(features, "trusted_xds_server"),
		FailOnDataErrors: slices.Contains(features, "fail_on_data_errors"),
		TimerIsTransient: slices.Contains(features, "resource_timer_is_transient_error"),
	}
	t, err := g.transports().grpc(r)
	s.Transport, err = g.add(t, err, f.path)
	if err != nil {
		return s, err
	}
	g.known[key.String()] = s
	return s, nil
}

// authorities reads the authorities and their servers (gRFC A47).
func (g *grpcReader) authorities(top object, c *GRPCConfig) error {
	all, err := top.get("authorities").object()
	if err != nil {
		return err
	}
	c.Authorities, c.listeners = map[string]client.Authority{}, map[string]string{}
	for _, name := range all.names() {
		o, err := all.entry(name).object()
		if err != nil {
			return err
		}
		servers, err := g.servers(o.get("xds_servers"))
		if err != nil {
			return err
		}
		c.Authorities[name] = client.Authority{Servers: servers}
		const field = "client_listener_resource_name_template"
		var template string
		if err := o.text(field, &template); err != nil {
			return err
		}
		// "If present in the bootstrap, it must start with "xdstp://<authority_name>/"."
		prefix := "xdstp://" + url.PathEscape(name) + "/"
		switch {
		case template == "":
			template = prefix + "envoy.config.listener.v3.Listener/%s"
		case !strings.HasPrefix(template, prefix):
			return g.errorf(o.get(field).path, "must begin with %q", prefix)
		}
		c.listeners[name] = template
	}
	return nil
}

func providers(f field) (map[string]Provider, error) {
	all, err := f.object()
	if err != nil {
		return nil, err
	}
	found := map[string]Provider{}
	for _, name := range all.names() {
		o, err := all.entry(name).object()
		if err != nil {
			return nil, err
		}
		p := Provider{Config: o.fields["config"]}
		if err := o.text("plugin_name", &p.Plugin); err != nil {
			return nil, err
		}
		if p.Plugin == "" {
			return nil, f.m.errorf(o.get("plugin_name").path, "is missing")
		}
		found[name] = p
	}
	return found, nil
}
