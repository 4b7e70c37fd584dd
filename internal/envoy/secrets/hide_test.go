package secrets

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
)

func TestHide(t *testing.T) {
	const pw = "hunter2Quokkas"
	for _, tt := range []struct{ name, text, secrets, want string }{
		{"SAFE-6 JSON, in a list", `{"private_key":{"inline_string":["hunter2Quokkas"]}}`, pw, `{"private_key":{"inline_string":["…"]}}`},
		{"SAFE-6 YAML", "password: hunter2Quokkas\nuser: 'hunter2Quokkas'", pw, "password: …\nuser: '…'"},
		{"SAFE-6 quoted in quotes", `password=\"hunter2Quokkas\"`, pw, `password=\"…\"`},
		{"SAFE-6 the end is cut", `"x": "hunter2Qu`, pw, `"x": "…`},
		{"SAFE-6 the beginning is cut", `near "er2Quokkas", expected`, pw, `near "…", expected`},
		{"SAFE-6 twice", "hunter2Quokkas and hunter2Quokkas", pw, "… and …"},
		{"SAFE-6 a short secret", `a=pass; passing "pass"`, "pass", `a=…; …ing "…"`},
		{"SAFE-6 a very short secret", `line 1: "a": "1", b: 1, c: [1], d: 11, e="1"`, "1", `line 1: "a": "…", b: …, c: […], d: 11, e="…"`},
		{"SAFE-6 an empty secret", `""`, " ", `""`},
		{"SAFE-6 two adjacent secrets", "alphabetagammadelta", "alphabet|gammadelta", "…a…"},
		{"SAFE-6 spaces", "key: one two \n  three four.", "one  two\tthree four", "key: …."},
		{"SAFE-6 surrogate pairs", `key: "\ud83d\udd11\ud83d\udd11"`, "🔑🔑", `key: "…"`},
		{"SAFE-6 a short secret with a line break", `a: "pass" b`, " pass\n", `a: "…" b`},
		{"a text without secrets", "hunte-2 quokka", pw, "hunte-2 quokka"},
		{"an empty text", "", pw, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Hide(tt.text, strings.Split(tt.secrets, "|")); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A secret is found with nested escapes.
func TestHideEscaped(t *testing.T) {
	newline := func(s string) string { return strings.ReplaceAll(s, "\n", "\n    ") }
	for _, secret := range []string{
		"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIDOp\nKJ0DpNjVlxXlOKV2\n-----END PRIVATE KEY-----\n",
		`pa"ss\wo/rd<&>'x`, `new\nline`, "säkrät-löse", "\x00\x01\xfe\xffbytes\x7f\x80", "\U0001F511\U0001F511", "tab\tand\r\nreturn",
	} {
		valid := strings.ToValidUTF8(secret, "?") == secret
		js, err := json.Marshal(secret)
		if err != nil {
			t.Fatal(err)
		}
		for form, text := range map[string]string{
			"as it is":              secret,
			"indented":              newline(secret),
			"in text":               prototext.Format(&corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(secret)}}),
			"in Go":                 strconv.Quote(secret),
			"in ASCII":              strconv.QuoteToASCII(secret),
			"in JSON":               string(js),
			"in JSON in text":       strconv.Quote(string(js)),
			"in JSON in JSON twice": strconv.Quote(strconv.Quote(string(js))),
			"in octal":              octal(secret),
		} {
			if !valid && strings.Contains(form, "JSON") || form == "indented" && strings.Contains(secret, "\r") {
				continue
			}
			shown := Hide("before: ( "+text+" ) after", []string{secret})
			rest := strings.NewReplacer("before: (", "", ") after", "", "inline_bytes:", "", "…", "").Replace(shown)
			if rest = strings.Trim(rest, "\n \\n\"'"); rest != "" {
				t.Errorf("SAFE-6 secret %q %s: shown %q of %q", secret, form, shown, text)
			}
			if !strings.HasPrefix(shown, "before: (") || !strings.HasSuffix(shown, ") after") {
				t.Errorf("SAFE-6 %q %s: more than the secret is hidden: %q", secret, form, shown)
			}
		}
	}
}

func octal(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString(`\` + strconv.FormatInt(int64(s[i])+01000, 8)[1:])
	}
	return b.String()
}

// Envoy 1.40 quotes a TypedStruct that it cannot read in this way.
func TestHideEnvoyErrorText(t *testing.T) {
	const (
		context = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
		says    = "Unable to parse JSON as proto (INVALID_ARGUMENT: invalid JSON in envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext   @  common_tls_context.tls_certificates[0].private_key.inline_string: string, near   1:76 (offset 75):   unexpected character: '['; expected '\"'): "
	)
	for _, js := range []string{
		`{"common_tls_context":{"tls_certificates":[{"private_key":{"inline_string":["hunter2Quokkas"]}}]}}`,
		`{"common_tls_context":{"tls_certificates":[{"private_key":"hunter2Quokkas"}]}}`,
		`{"common_tls_context":{"tls_certificates":[{"private_key":{"inline_string":12345678}}]}}`,
		`{"common_tls_context":{"tls_certificates":[{"private_key":{"inline_bytes":"%%hunter2Quokkas"}}]}}`,
		`{"common_tls_context":{"tls_certificates":[{"private_key":{"filename":"hosts","inline_string":"hunter2Quokkas"}}],"tls_params":{"tls_minimum_protocol_version":"hunter2Quokkas"}}}`,
		`{"common_tls_context":{"tls_certificates":"hunter2Quokkas"}}`,
		`{"common_tls_context":{"tls_certificates":[{"privat_key":{"inline_string":"hunter2Quokkas"}}]}}`,
		`{"common_tls_context":{"custom_handshaker":{"typed_config":{"inline_string":"hunter2Quokkas"}}}}`,
	} {
		s := &structpb.Struct{}
		if err := protojson.Unmarshal([]byte(js), s); err != nil {
			t.Fatal(err)
		}
		shown := hidden(t, &xdsv3.TypedStruct{TypeUrl: context, Value: s}, says+js)
		if !strings.HasPrefix(shown, says) || strings.Contains(shown, "unter") || strings.Contains(shown, "345") || !strings.Contains(shown, "…") || strings.Contains(js, "hosts") && !strings.Contains(shown, `"hosts"`) {
			t.Error("SAFE-6", shown)
		}
	}
}

// Unknown fields of a secret's DataSource are hidden, and so is the content of an Any in it.
func TestHideUnknown(t *testing.T) {
	d := &corev3.DataSource{}
	d.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), canary))
	in := &tlsv3.PrivateKeyProvider{ProviderName: "p", ConfigType: &tlsv3.PrivateKeyProvider_TypedConfig{
		TypedConfig: packed(t, &xdsv3.TypedStruct{TypeUrl: "type.googleapis.com/no.Such", Value: structOf(t, &corev3.Locality{Region: canary})})}}
	for _, c := range []*tlsv3.TlsCertificate{{PrivateKey: d}, {PrivateKeyProvider: in}} {
		if shown := hidden(t, c, `99: "`+canary+`" in type.googleapis.com/no.Such`); shown != `99: "…" in type.googleapis.com/no.Such` {
			t.Error("SAFE-6", shown)
		}
	}
	in.ConfigType = &tlsv3.PrivateKeyProvider_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: "x/envoy.config.core.v3.Locality", Value: []byte("\xff")}}
	if known.Texts(&tlsv3.TlsCertificate{PrivateKeyProvider: in}, func(string) {}) {
		t.Error("SAFE-6 an undecodable Any counts as searched")
	}
}

// The location of a value is not hidden, because it helps to find the mistake.
func TestHideKeepsLocations(t *testing.T) {
	d := &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: canary}, WatchedDirectory: &corev3.WatchedDirectory{Path: "/etc/certs"}}
	if shown := hidden(t, &tlsv3.TlsCertificate{PrivateKey: d}, canary+" of /etc/certs"); shown != "… of /etc/certs" {
		t.Error(shown)
	}
}

// A text has at most 16 KiB, and Hide searches it for all secrets of a type.
func BenchmarkHide(b *testing.B) {
	var secrets []string
	for i := range 1000 {
		secrets = append(secrets, strings.Repeat(strconv.Itoa(i*7919), 1700)[:1700])
	}
	text := strings.Repeat("Proto constraint validation failed (DownstreamTlsContext) ", 280)
	for b.Loop() {
		Hide(text, secrets)
	}
}
