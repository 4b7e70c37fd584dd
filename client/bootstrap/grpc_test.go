package bootstrap

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const whole = `{
  "xds_servers": [
    {"server_uri": "dns:///one:443", "channel_creds": [{"type": "from_the_future"}, {"type": "insecure"}, {"type": "tls"}],
     "server_features": ["xds_v3", "ignore_resource_deletion", "from_the_future"]},
    {"server_uri": "two:443", "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "/ca.pem", "refresh_interval": "1.5s"}}],
     "call_creds": [{"type": "from_the_future"}, {"type": "jwt_token_file", "config": {"jwt_token_file": "/token"}}],
     "server_features": ["trusted_xds_server"]}
  ],
  "node": {"id": "edge-1", "cluster": "edges", "locality": {"region": "r", "zone": "z", "sub_zone": "s"},
    "metadata": {"team": "a", "deep": {"n": [1, true, null]}}, "user_agent_name": "a lie"},
  "authorities": {
    "east.example": {"xds_servers": [
      {"server_uri": "two:443", "channel_creds": [{"type": "tls", "config": {"ca_certificate_file":"/ca.pem","refresh_interval":"1.5s"}}],
       "call_creds": [{"type": "from_the_future"}, {"type": "jwt_token_file", "config": {"jwt_token_file": "/token"}}],
       "server_features": ["trusted_xds_server"]},
      {"server_uri": "three:443", "channel_creds": [{"type": "insecure"}], "server_features": ["fail_on_data_errors", "resource_timer_is_transient_error"]}]},
    "west example": {"client_listener_resource_name_template": "xdstp://west%20example/envoy.config.listener.v3.Listener/own/%s"}
  },
  "certificate_providers": {"default": {"plugin_name": "file_watcher", "config": {"certificate_file": "/c"}}, "bare": {"plugin_name": "own"}},
  "client_default_listener_resource_name_template": "xdstp://east.example/envoy.config.listener.v3.Listener/%s",
  "server_listener_resource_name_template": "grpc/server?a=%s",
  "fields_of_the_future": {"are": "ignored"}
}`

// All fields of gRPC's bootstrap: servers in their order, the first supported credentials, features,
// node, authorities, templates (gRFCs A27, A36, A47, A53, A65, A71, A81, A88, A97).
func TestGRPC_CLI1_CLI10(t *testing.T) {
	b := &bench{}
	c, err := GRPC("b.json", []byte(whole), b.options())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := servers(c.Servers), "insecure dns:///one:443 ignores deletion; tls two:443 trusted"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if calls := c.Servers[1].Transport.(*made).remote.perRPC; len(calls) != 1 || !calls[0].RequireTransportSecurity() {
		t.Errorf("call credentials %v", calls)
	}
	east := c.Authorities["east.example"].Servers
	if got, want := servers(east[:1]), "tls two:443 trusted"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s := east[1]; s.Transport.String() != "insecure three:443" || !s.FailOnDataErrors || !s.TimerIsTransient || s.Trusted || s.IgnoreDeletion {
		t.Errorf("%+v", s)
	}
	// "Authorities with the same server config share one channel."
	if east[0] != c.Servers[1] || b.made != 3 {
		t.Errorf("%d transports for 3 servers", b.made)
	}
	if got := slices.Sorted(maps.Keys(c.Authorities)); !slices.Equal(got, []string{"east.example", "west example"}) || c.Authorities["west example"].Servers != nil {
		t.Errorf("%q", got)
	}

	n := c.Node
	if n.ID != "edge-1" || n.Cluster != "edges" || n.Region != "r" || n.Zone != "z" || n.SubZone != "s" {
		t.Errorf("%+v", n)
	}
	if n.UserAgentName != "chancery" || !slices.Contains(n.ClientFeatures, "xds.config.resource-in-sotw") {
		t.Errorf("who the client is says the client: %+v", n)
	}
	var md structpb.Struct
	if err := proto.Unmarshal(n.Metadata, &md); err != nil || md.Fields["team"].GetStringValue() != "a" || len(md.Fields["deep"].GetStructValue().Fields["n"].GetListValue().Values) != 3 {
		t.Errorf("%v %v", &md, err)
	}
	if p := c.Providers["default"]; p.Plugin != "file_watcher" || !json.Valid(p.Config) || c.Providers["bare"].Config != nil || len(c.Providers) != 2 {
		t.Errorf("%+v", c.Providers)
	}
	for target, want := range map[string]string{
		"xds:///a/b c":           "xdstp://east.example/envoy.config.listener.v3.Listener/a/b%20c",
		"xds:backend":            "xdstp://east.example/envoy.config.listener.v3.Listener/backend",
		"xds://east.example/x:1": "xdstp://east.example/envoy.config.listener.v3.Listener/x:1",
		"xds://west%20example/x": "xdstp://west%20example/envoy.config.listener.v3.Listener/own/x",
		"xds://north/x":          `error: target "xds://north/x": the bootstrap has no authority "north"`,
		"dns:///x":               "error: target \"dns:///x\": the scheme must be xds",
	} {
		got, err := c.ListenerName(target)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("%s is %s, want %s", target, got, want)
		}
	}
	if got, err := c.ServerListenerName("[::]:80"); err != nil || got != "grpc/server?a=[::]:80" {
		t.Error(got, err)
	}
}

// The smallest bootstrap, and the defaults of all other fields.
func TestGRPCDefaults_CLI1(t *testing.T) {
	o := (&bench{}).options()
	o.UserAgent, o.UserAgentVersion = "own", "7"
	c, err := GRPC("b.json", []byte("\ufeff"+`{"xds_servers":[{"server_uri":"x","channel_creds":[{"type":"tls"}]}],"node":null}`), o)
	if err != nil {
		t.Fatal(err)
	}
	if c.Node.ID != "" || c.Node.UserAgentName != "own" || c.Node.UserAgentVersion != "7" || c.Node.Metadata != nil || len(c.Authorities) != 0 {
		t.Errorf("%+v", c.Node)
	}
	if got, err := c.ListenerName("xds:///a/b"); err != nil || got != "a/b" {
		t.Error(got, err)
	}
	if _, err := c.ServerListenerName("x"); err == nil {
		t.Error("servers have no default")
	}
}

// Each error names the file and the field, and all transports are closed.
func TestGRPCErrors_CLI1(t *testing.T) {
	const good = `{"server_uri":"x","channel_creds":[{"type":"insecure"}]}`
	for text, want := range map[string]string{
		``:                                  "b.json:1:1: unexpected end of JSON input",
		"{\n \"a\": x":                      "b.json:2:7: invalid character 'x'",
		`[]`:                                "b.json: an object is needed, not a list",
		`{}`:                                "b.json: xds_servers: at least one is needed",
		`{"xds_servers":{}}`:                "b.json: xds_servers: a list is needed, not an object",
		`{"xds_servers":[1]}`:               "b.json: xds_servers[0]: an object is needed, not a number",
		`{"xds_servers":[` + good + `,{}]}`: "b.json: xds_servers[1].server_uri: is missing",
		`{"xds_servers":[` + good + `,{"server_uri":true}]}`:                                                                  "b.json: xds_servers[1].server_uri: a string is needed, not a bool",
		`{"xds_servers":[{"server_uri":"x"}]}`:                                                                                "b.json: xds_servers[0].channel_creds: at least one is needed",
		`{"xds_servers":[` + good + `,{"server_uri":"impossible","channel_creds":[{"type":"insecure"}]}]}`:                    "b.json: xds_servers[1]: no such address",
		withCreds(`{"type":"google_default"}`):                                                                                "b.json: xds_servers[0].channel_creds: none of [\"google_default\"] is supported: use insecure or tls; google_default needs Google's libraries",
		withCreds(`{"type":"tls","config":{"certificate_file":"c"}}`):                                                         "b.json: xds_servers[0].channel_creds[0].config: certificate_file and private_key_file must be given together",
		withCreds(`{"type":"tls","config":{"refresh_interval":"1h"}}`):                                                        "b.json: xds_servers[0].channel_creds[0].config.refresh_interval: a duration in seconds is needed",
		withCreds(`{"type":"tls","config":{"spiffe_trust_bundle_map_file":"m"}}`):                                             "spiffe_trust_bundle_map_file: is not supported",
		withCreds(`{"type":"own"}`):                                                                                           "b.json: xds_servers[0].channel_creds[0]: own: not today",
		`{"xds_servers":[{"server_uri":"x","channel_creds":[{"type":"insecure"}],"call_creds":[{"type":"jwt_token_file"}]}]}`: "b.json: xds_servers[0].call_creds[0].config.jwt_token_file: the path of a file with a token is needed",
		`{"xds_servers":[` + good + `],"node":{"locality":{"zone":1}}}`:                                                       "b.json: node.locality.zone: a string is needed, not a number",
		`{"xds_servers":[` + good + `],"node":{"metadata":[]}}`:                                                               "b.json: node.metadata: an object of UTF-8 text is needed",
		`{"xds_servers":[` + good + `],"authorities":{"a b":{"client_listener_resource_name_template":"xdstp://a/x"}}}`:       `b.json: authorities["a b"].client_listener_resource_name_template: must begin with "xdstp://a%20b/"`,
		`{"xds_servers":[` + good + `],"authorities":{"a":{"xds_servers":[{}]}}}`:                                             `b.json: authorities["a"].xds_servers[0].server_uri: is missing`,
		`{"xds_servers":[` + good + `],"certificate_providers":{"a":{}}}`:                                                     `b.json: certificate_providers["a"].plugin_name: is missing`,
		`{"xds_servers":[` + good + `],"server_listener_resource_name_template":1}`:                                           "b.json: server_listener_resource_name_template: a string is needed, not a number",
	} {
		b := &bench{}
		o := b.options()
		o.Credentials = map[string]func(json.RawMessage) (credentials.TransportCredentials, []credentials.PerRPCCredentials, error){
			"own": func(json.RawMessage) (credentials.TransportCredentials, []credentials.PerRPCCredentials, error) {
				return nil, nil, errors.New("not today")
			},
		}
		c, err := GRPC("b.json", []byte(text), o)
		if b.refused(t, text, err, want); c != nil {
			t.Errorf("%s: %+v", text, c)
		}
	}
}

func withCreds(creds string) string {
	return `{"xds_servers":[{"server_uri":"x","channel_creds":[` + creds + `]}]}`
}

// A program can add Google's credentials. The first supported kind is used.
func TestProgramsOwnCredentials_CLI1(t *testing.T) {
	o := (&bench{}).options()
	var config string
	o.Credentials = map[string]func(json.RawMessage) (credentials.TransportCredentials, []credentials.PerRPCCredentials, error){
		"google_default": func(raw json.RawMessage) (credentials.TransportCredentials, []credentials.PerRPCCredentials, error) {
			config = string(raw)
			return insecure.NewCredentials(), []credentials.PerRPCCredentials{bearer{}}, nil
		},
	}
	c, err := GRPC("b.json", []byte(withCreds(`{"type":"google_default","config":{"a":1}},{"type":"tls"}`)), o)
	if err != nil || config != `{"a":1}` {
		t.Fatal(config, err)
	}
	if r := c.Servers[0].Transport.(*made).remote; r.credentials.Info().SecurityProtocol != "insecure" || len(r.perRPC) != 1 {
		t.Errorf("%+v", r)
	}
}

// "If GRPC_XDS_BOOTSTRAP exists, … Else, if GRPC_XDS_BOOTSTRAP_CONFIG exists".
func TestFromEnv_CLI1(t *testing.T) {
	o := (&bench{}).options()
	path := filepath.Join(t.TempDir(), "bootstrap.json")
	if err := os.WriteFile(path, []byte(withCreds(`{"type":"insecure"}`)), 0o600); err != nil {
		t.Fatal(err)
	}
	from := func(file, text string) (string, error) {
		t.Setenv("GRPC_XDS_BOOTSTRAP", file)
		t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", text)
		c, err := FromEnv(o)
		if err != nil {
			return "", err
		}
		return servers(c.Servers), nil
	}
	inline := strings.ReplaceAll(withCreds(`{"type":"insecure"}`), `"x"`, `"inline"`)
	if got, err := from(path, inline); err != nil || got != "insecure x" {
		t.Error(got, err)
	}
	if got, err := from("", inline); err != nil || got != "insecure inline" {
		t.Error(got, err)
	}
	for file, want := range map[string]string{"": "neither GRPC_XDS_BOOTSTRAP nor", path + "x": "GRPC_XDS_BOOTSTRAP: open " + path + "x: no such file"} {
		if _, err := from(file, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := from("", "{"); err == nil || !strings.Contains(err.Error(), "$GRPC_XDS_BOOTSTRAP_CONFIG:1:") {
		t.Error(err)
	}
}

func FuzzGRPC(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(withCreds(`{"type":"tls","config":{}}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &bench{}
		c, err := GRPC("f", data, b.options())
		if (err == nil) == (c == nil) || err != nil && (b.made != b.closed || !strings.HasPrefix(err.Error(), "f:")) {
			t.Errorf("%v, %v, %+v", c, err, b)
		}
		if c != nil && (len(c.Servers) == 0 || c.Node == nil) {
			t.Errorf("%+v", c)
		}
	})
}
