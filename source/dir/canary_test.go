package dir

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	envoyapi "github.com/chancery-xds/chancery/internal/envoy"
)

// envoy reads what is in Envoy's API, and shows what check does.
var envoy = func() *reader {
	rd := newReader(envoyapi.Envoy(), 0)
	rd.lines = mayShowLines(rd.types)
	return rd
}()

const canary = "hunter2Quokkas"

// Files with secrets at many places, as people write them.
const canaries = `resources:
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: s
  generic_secret:
    secret:
      inline_string: ` + canary + `
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: t
  tls_certificate:
    pkcs12: {inline_string: "` + canary + `"}
    password: {inline_bytes: aHVudGVyMlF1b2trYXM=}
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: u
  session_ticket_keys: {keys: [{inline_string: ` + canary + `}, {inline_string: '` + canary + `'}]}
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: edge
  filter_chains:
  - transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
        require_client_certificate: true
        common_tls_context: {tls_certificates: [{pkcs12: {inline_string: "` + canary + `"}, password: {inline_string: ` + canary + `}}]}
    filters:
    - name: redis
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
        stat_prefix: r
        settings: {op_timeout: 1s}
        downstream_auth_passwords:
        - inline_string: |
            ` + canary + `
- "@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
  name: aws
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.aws_request_signing.v3.AwsRequestSigning
    service_name: s3
    credential_provider: {inline_credential: {access_key_id: A, secret_access_key: ` + canary + `, session_token: "` + canary + `"}}
- "@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
  name: spelled
  typed_config:
    "@type": type.googleapis.com/xds.type.v3.TypedStruct
    type_url: type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    value:
      allow_renegotiation: "true"
      common_tls_context: {tls_certificates: {pkcs12: {inline_string: ` + canary + `}, password: {inline_string: "` + canary + `"}}}
`

// spelled returns the canaries in each form of a file.
func spelled(t *testing.T) map[string]string {
	t.Helper()
	d := envoy.decode("a.yaml", []byte(canaries))
	if len(d.Problems) > 0 || len(d.loaded) != 6 {
		t.Fatal(d.Problems)
	}
	m := &discoveryv3.DiscoveryResponse{}
	for _, l := range d.loaded {
		if l.Secret == "" {
			t.Error("SAFE-11 no secret in", l.Name)
		}
		m.Resources = append(m.Resources, &anypb.Any{TypeUrl: l.Type.URL, Value: l.Body})
	}
	js, err := protojson.MarshalOptions{UseProtoNames: true, Multiline: true, Resolver: envoy.types}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	one, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: envoy.types}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"a.yaml": canaries, "a.json": string(js), "one.json": string(one), "flow.yaml": string(one), "a.txtpb": prototext.MarshalOptions{Multiline: true, Resolver: envoy.types}.Format(m)}
}

// told returns all problems of a file as text, and their number.
func told(path, src string) (text string, n int) {
	d := envoy.decode(path, []byte(src))
	var b strings.Builder
	for _, p := range d.Problems {
		fmt.Fprintln(&b, p.Error(), p.Text(), p.Excerpt)
	}
	return b.String(), len(d.Problems)
}

// leaks reports whether a text contains more than a few letters of the canary.
func leaks(text string) bool {
	for i := 0; i+6 <= len(canary); i++ {
		if strings.Contains(text, canary[i:i+6]) {
			return true
		}
	}
	return strings.Contains(text, "aHVudGVy")
}

// No problem of a file, whatever the mistake, contains a secret of the file.
func TestCanaries(t *testing.T) {
	if raceEnabled {
		t.Skip("slow, and nothing here is concurrent: `make memory` runs it")
	}
	marks := []string{":", "{", "}", "[", "]", `"`, "'", "*", "&", "!", "|", ">", "%", "@", ",", "#", "-", " ", "  ", "\n", "\t", "\\", ": ", "- ", "x", "5", "<<: ", "null", "\\x", "\\u12", "!!int ", "!!float ", "!!bool ", "!!binary "}
	for path, src := range spelled(t) {
		t.Run("SAFE-6 "+path, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			lines := strings.SplitAfter(src, "\n")
			problems := 0
			try := func(what, src string) {
				text, n := told(path, src)
				problems += min(n, 1)
				if leaks(text) {
					t.Fatalf("SAFE-6 %s:\n%s\nin\n%s", what, text, src)
				}
			}
			for i := range 1500 {
				s := src
				for range 1 + i%2 {
					switch at := rnd.IntN(len(s)); rnd.IntN(4) {
					case 0:
						n := min(rnd.IntN(8)+1, len(s)-at)
						s = s[:at] + s[at+n:]
					case 1, 2:
						s = s[:at] + marks[rnd.IntN(len(marks))] + s[at:]
					case 3: // before a value
						if n := strings.Count(s, canary); n > 0 {
							parts := strings.SplitAfterN(s, canary, rnd.IntN(n)+2)
							cut := len(strings.Join(parts[:len(parts)-1], "")) - len(canary)
							s = s[:cut] + marks[rnd.IntN(len(marks))] + s[cut:]
						}
					}
				}
				try("an edit", s)
			}
			for i := range lines {
				rest := func(with ...string) string {
					return strings.Join(lines[:i], "") + strings.Join(with, "") + strings.Join(lines[min(i+1, len(lines)):], "")
				}
				try("a line less", rest())
				try("a line twice", rest(lines[i], lines[i]))
				try("a line out", rest(strings.TrimPrefix(lines[i], "  ")))
				try("a line more out", rest(strings.TrimPrefix(lines[i], "    ")))
				try("a line in", rest("  "+lines[i]))
			}
			if problems < 750 {
				t.Errorf("%d edits were mistakes: too few to prove anything", problems)
			}
		})
	}
}
