package envoybinary

import "strings"

// An odd has texts that readers differ about. Each one is in an Any of the type. Without a type it is in the metadata
// of a filter; the type "file" means a whole file.
type odd struct {
	typ   string
	texts []string
}

const (
	wholeFile  = "file"
	endpoints  = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	wholeYAML  = "resources:\n- \"@type\": " + endpoints + "\n  cluster_name: CLUSTER\n  endpoints:\n  - lb_endpoints:\n    - endpoint: {address: {pipe: {path: /x}}}\n      metadata: {filter_metadata: {m: {a: b}}}\n"
	thresholds = "envoy.config.cluster.v3.CircuitBreakers.Thresholds"
	dataSource = "envoy.config.core.v3.DataSource"
	pipe       = `"@type": type.googleapis.com/envoy.config.core.v3.Pipe`
)

// value returns the texts as values of a field.
func value(field string, texts ...string) []string {
	var all []string
	for _, s := range texts {
		all = append(all, field+": "+s)
	}
	return all
}

// nested returns a text in n pairs of others.
func nested(open string, n int, text, shut string) string {
	return strings.Repeat(open, n) + text + strings.Repeat(shut, n)
}

var quotedNumbers = []string{
	`"0x10"`, `"-0x10"`, `"0X1f"`, `"+0x10"`, `"0x"`, `"0xffffffffffffffff"`, `"1e2"`, `"1.0"`, `"010"`, `"+5"`, `"0b11"`, `"0o7"`, `"1_0"`, `""`, `" 5"`, `"5 "`,
	`"NaN"`, `"INF"`, `"Infinity"`, `"-Infinity"`, `"1e400"`, `"18446744073709551616"`, `"1.5"`, `"1e19"`, `"00"`, `"-"`, `".5"`, `"5."`, `"-0"`,
	"-0", "-1", "1.0", "1e2", "1.5", "4294967296", "9007199254740993", "9007199254740993.0", "99999999999999999999", "1e400", "1e40", "3.4028235e38", "3.5e38", "100e-2", "[1]", "{value: 5}",
}

var oddYAML = []odd{
	{"google.protobuf.UInt32Value", value("value", quotedNumbers...)},
	{"google.protobuf.Int64Value", value("value", quotedNumbers...)},
	{"google.protobuf.UInt64Value", value("value", quotedNumbers...)},
	{"google.protobuf.DoubleValue", value("value", quotedNumbers...)},
	{"google.protobuf.FloatValue", value("value", quotedNumbers...)},
	{"google.protobuf.Duration", value("value",
		"1.5s", `"1.5s"`, "1e3s", "-0s", "-0.5s", "3.000000001s", "3.0000000001s", "1.s", ".5s", "+1s", "1S", "1 s", `"1s "`, "01s", "00.5s", "1", "1.5", "1m", "500ms", "315576000000s", "315576000001s", "-315576000000s",
		"9223372037s", "99999999999999999999s", "NaNs", "0x10s", "0", "s", `""`, "{seconds: 1}", `{seconds: "1", nanos: 5}`, "{seconds: -1, nanos: -5}", "{seconds: 010}", "{}", "[1s]", "1.5.5s", "1_0s", "1.123456789s", "--1s", "P1D", "!!str 1s", "!!float 1s")},
	{"google.protobuf.Timestamp", value("value",
		"2024-01-01T00:00:00Z", "2024-01-01T00:00:00z", "2024-01-01t00:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01", "2024-01-01T00:00:00+01:00", "2024-01-01T00:00:00+0100", "2024-01-01T00:00:00+24:00", "2024-01-01T00:00:00.123456789Z",
		"2024-01-01T00:00:00.1234567891Z", "2024-01-01T00:00:00,5Z", "2024-01-01T00:00:60Z", "2024-02-30T00:00:00Z", "0001-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z",
		"10000-01-01T00:00:00Z", "{seconds: 5}", "{seconds: -5, nanos: 7}", "{}", "2024-01-01T1:00:00Z", "2024-01-01T00:00:00.Z", "1969-12-31T23:59:59.5Z", "!!timestamp 2024-01-01T00:00:00Z", "1600000000")},
	{"envoy.config.core.v3.SocketAddress", value("protocol", "udp", "Udp", "1", `"1"`, "01", "0x1", "1.0", `"1.0"`, "-1", "5", "UNKNOWN", "~", `""`, "yes", "[UDP]", "{value: 1}", "!!str UDP", "!!int 1", `"0x1"`, `" UDP"`, "2147483648")},
	{"google.protobuf.BytesValue", value("value",
		"aGk=", "aGk", "_-8=", "_-8", "/+8", "/-8=", "a", "aG", "aGk==", "aGk===", `"aG k="`, `"aGk=\n"`, "|\n  aGk=\n  aGk=", `"=="`, `"===="`, "1234", "010", "true", "yes", "!!binary aGk=", "aGl=", "aGk=aGk=", "ab==", "ab=", "{value: aGk=}")},
	{thresholds, value("max_connections", "null", "{}", "{value: 5}", "{value: null}", `"5"`, "5.0", "5e0", "[5]", "[]", `"~"`, "{value: {value: 5}}", "5\nmaxConnections: 6", "5\nmax_connections: 6", "~\nmaxConnections: 5")},
	{thresholds, value("retry_budget", "{budget_percent: {value: 20}}", "{budget_percent: 20}", "[{}]", `""`, "{budget_percent: {value: .nan}}", "{budget_percent: {value: NaN}}")},
	{dataSource, []string{"filename: a\ninline_string: b", "filename: ~\ninline_string: b", `inline_string: "\ud800"`, `inline_string: "\0"`, `inline_string: "\x80"`, "inline_string: 2024-01-01", "inline_string: 1.5", "inline_string: [a]"}},
	{"google.protobuf.Any", value("value",
		"{"+pipe+", path: x}", "{path: x, "+pipe+"}", `{"@type": type.googleapis.com/no.such.Type}`, `{"@type": envoy.config.core.v3.Pipe}`, `{"@type": /envoy.config.core.v3.Pipe}`, `{"@type": "http://x/y/envoy.config.core.v3.Pipe"}`, `{"@type": ""}`, "{}", "{path: x}",
		"{"+pipe+", value: {path: x}}", "{"+pipe+", "+pipe+"}", `{"@type": type.googleapis.com/google.protobuf.Empty}`, `{"@type": type.googleapis.com/google.protobuf.Struct, a: b}`, `{"@type": type.googleapis.com/google.protobuf.Struct, value: {a: b}}`,
		`{"@type": type.googleapis.com/google.protobuf.Duration}`, `{"@type": type.googleapis.com/google.protobuf.Value, value: ~}`, `{"@type": " type.googleapis.com/envoy.config.core.v3.Pipe"}`)},
	{"", []string{
		`a: "\ud800"`, `a: "\udc00\ud800"`, `"\ud800": a`, `a: "\uFFFF"`, `a: "\U00110000"`,
		"~: a", "Null: a", "? \n: a", "a: {~: b}", "~: a\nnull: b", "true: a\n\"true\": b", "1: a\n01: b", "!!str ~: a", "!!binary YQ==: 1", "\"a\\nb\": c", "? |\n  x\n: c",
		"<<: {a: 1}\na: 2", "<<: {a: 1}\n<<: {b: 1}", "<<: 1", "\"<<\": {a: 1}\n<<: {b: 2}", "!!str <<: {a: 1}", "x: &x {a: 1}\ny: {<<: *x, a: 2}",
		"a: &a 1\nb: *a\nc: &a 2\nd: *a", "? &k a\n: *k", "&k a: *k", "a: &a\nb: *a", "a: &a-b.c 1\nb: *a-b.c", "a: &a 010\nb: *a", "a: *a\nb: &a 1", "a: &a k\n*a : v", "a: &a 1\nb: {*a: 1}", "a: &a 1\nb: {*a : 1}", "a: &1 x\nb: *1",
		"a: !!str 1", "a: !!str true", "a: !!binary not base64", "a: !!int 1.5", "a: !!bool yes", "a: !!bool x", "a: !!seq {b: 1}", "a: !!map [1]", "a: !local 5", "a: ! \"5\"", "a: !! 5", "a: !!str [1]", "a: !!float \"1.5\"", "a: !!int \"010\"", "a: !!str |\n  yes",
		"a: 'x\u0085y'", "a: 'x\u2028 y'", "a: 5\u2029", "a: x # c\u2028b: 5", "a: 'x\u2028y'",
		"a: " + nested("[", 47, "", "]"), "a: " + nested("[", 48, "", "]"), "a: " + nested("{b: ", 31, "1", "}"), "a: " + nested("{b: ", 32, "1", "}"), "a: " + nested("[", 300, "", "]"),
	}},
	{wholeFile, []string{
		"\ufeff" + wholeYAML, "---\n\ufeff" + wholeYAML, "%YAML 1.3\n---\n" + wholeYAML, "%YAML 2.0\n---\n" + wholeYAML, "%YAML 1.1\n%YAML 1.1\n---\n" + wholeYAML, "%YAML 1.1\n" + wholeYAML, wholeYAML + "...\n---\nx: [\n", wholeYAML + "...\n...\n",
		wholeYAML + "---\n", wholeYAML + "\x00", strings.ReplaceAll(wholeYAML, "b}", "\x00}"), strings.ReplaceAll(wholeYAML, "/x", "/\x01x"), strings.ReplaceAll(wholeYAML, "\n", "\r"), strings.ReplaceAll(wholeYAML, "\n", "\r\n"),
		strings.ReplaceAll(wholeYAML, "\n", "\u2028"), strings.ReplaceAll(wholeYAML, "\n", "\u0085"), strings.ReplaceAll(wholeYAML, "      metadata", "\u00a0     metadata"), "\t\n" + wholeYAML, wholeYAML + "\t", wholeYAML + "\ufeff", "", "~\n", "5\n",
		"--- " + wholeYAML, "--- !!map\n" + wholeYAML, "--- &a\n" + wholeYAML, "- " + wholeYAML, strings.Replace(wholeYAML, "resources", "Resources", 1), "version_info: 1\n" + wholeYAML, "version_info: ~\n" + wholeYAML, "x: y\n" + wholeYAML, wholeYAML + wholeYAML,
		utf16BE(wholeYAML),
	}},
}

// utf16BE returns an ASCII text in UTF-16.
func utf16BE(text string) string {
	return "\xfe\xff\x00" + strings.Join(strings.Split(text, ""), "\x00")
}

const wholeJSON = `{"resources":[{"@type":"` + endpoints + `","cluster_name":"CLUSTER","endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"pipe":{"path":"/x"}}},"metadata":{"filter_metadata":{"m":{"a":"b"}}}}]}]}]}`

var jsonNumbers = []string{`"0x10"`, `"-0x10"`, `"1e2"`, `"1.0"`, `" 5"`, `"+5"`, `""`, `"NaN"`, `"Infinity"`, "1e400", "3.4028235e38", "18446744073709551615", "18446744073709551616", "-0", "-0.0", "1.0", "1e2", "1.5", "9007199254740993", "01", ".5", "+5", "NaN", "0x10", "[1]", `{"value":5}`, "true"}

var oddJSON = []odd{
	{"google.protobuf.UInt32Value", value(`"value"`, jsonNumbers...)},
	{"google.protobuf.Int64Value", value(`"value"`, jsonNumbers...)},
	{"google.protobuf.DoubleValue", value(`"value"`, jsonNumbers...)},
	{"google.protobuf.FloatValue", value(`"value"`, jsonNumbers...)},
	{"google.protobuf.BytesValue", value(`"value"`, `"aGk="`, `"aGk"`, `"_-8="`, `"/-8="`, `"a"`, `"aGk=="`, `"aGk=\n"`, `"=="`, `""`, "1234", `"aGk=aGk="`)},
	{"envoy.config.core.v3.SocketAddress", value(`"protocol"`, `"UDP"`, `"udp"`, "1", `"1"`, "1.0", "-1", "5", "null", `""`, `["UDP"]`, `"UNKNOWN"`, `"0x1"`)},
	{thresholds, []string{`"max_connections":5,"maxConnections":6`, `"max_connections":null`, `"max_connections":{}`, `"max_connections":{"value":5}`, `"max_connections":[5]`, `"track_remaining":1`, `"priority":"high"`, `"":1`}},
	{dataSource, []string{`"filename":"a","inline_string":"b"`, `"filename":null,"inline_string":"b"`, `"inline_string":"\ud800"`, `"inline_string":"\u0000"`, `"inline_string":5`, "\"inline_string\":\"a\tb\"", `"inline_string":"\/"`, `"inline_string":"\a"`, `"inline_string":'a'`, `inline_string:"a"`, `"inline_string":"a",`}},
	{"", []string{
		`{"a":"\ud800"}`, `{"a":"\udc00"}`, `{"a":"\ud83d\ude00"}`, `{"a":"\udc00\ud800"}`, `{"\ud800":"a"}`, `{"a":"\ud800\n"}`, `{"a":"\ud800\ud800"}`, `{"a":"\uD83Dx"}`, `{"a":"\\ud800"}`, `{"a":"\\\ud800"}`, `{"a":"\ufffd"}`, "{\"a\":\"\ufffd\"}", `{"a":"\ufffd\ud83d\ude00"}`,
		`{"a":1e2}`, `{"a":9007199254740993}`, `{"a":-0}`, `{"a":[1,]}`, `{"a":1,"a":2}`, `{"a":tRue}`, "{\"a\":\"\x7f\"}", `{"a":"` + "\u2028" + `"}`, `{"a":` + nested("[", 47, "", "]") + "}", `{"a":` + nested("[", 48, "", "]") + "}",
	}},
	{wholeFile, []string{"\ufeff" + wholeJSON, wholeJSON + wholeJSON, wholeJSON + " x", wholeJSON + "\x00", "\x0c" + wholeJSON, "// c\n" + wholeJSON, "", "[]", wholeJSON[:len(wholeJSON)-1], wholeJSON + ",", strings.ReplaceAll(wholeJSON, ":", " : "), strings.ReplaceAll(wholeJSON, ",", "\r\n,\t"), "---\n" + wholeJSON}},
}

const wholeText = `resources { [type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment] { cluster_name: "CLUSTER" endpoints { lb_endpoints { endpoint { address { pipe { path: "/x" } } } metadata { METADATA } } } } }`

var textNumbers = []string{"5", "0x10", "-0x10", "08", "1e2", "1.0", "1.5", "-1", "-0", "4294967296", "9007199254740993", "1e400", "3.4028235e38", "inf", "-inf", "nan", "NaN", "5f", "1.5F", `"5"`, "true", "+5", "1_0", ".5", "5.", "[5]", "- 5", "18446744073709551615"}

var oddText = []odd{
	{"google.protobuf.UInt32Value", value("value", textNumbers...)},
	{"google.protobuf.Int64Value", value("value", textNumbers...)},
	{"google.protobuf.DoubleValue", value("value", textNumbers...)},
	{"google.protobuf.FloatValue", value("value", textNumbers...)},
	{"google.protobuf.BoolValue", value("value", "true", "True", "t", "f", "1", "0", "2", "TRUE", "yes", `"true"`, "01", "0x1")},
	{"google.protobuf.StringValue", value("value", `"a"`, `'a'`, `"a" "b"`, `"a\n\x41\101\u00e9\U0001F600"`, `"\q"`, "\"a\nb\"", `"\0"`, "a", "5", `"\ud83d\ude00"`, "\"\x7f\"", "\"\x01\"")},
	{"envoy.config.core.v3.SocketAddress", value("protocol", "UDP", "udp", "1", "5", "-1", `"UDP"`, "0x1", "01", "UNKNOWN", "UDP protocol: TCP", "UDP, address: \"a\";", "UDP # c", "UDP foo: 1")},
	{"envoy.config.core.v3.SocketAddress", []string{`port_value: 5 named_port: "x"`, "portValue: 5", "1: 1", "// c", "ipv4_compat: true,,", "; ipv4_compat: true", "protocol UDP", "protocol:UDP"}},
	{wholeFile, []string{"\ufeff" + wholeText, "# c\r\n" + wholeText, wholeText + "\x00", "{" + wholeText + "}", wholeText + ";", wholeText + ",", "---\n" + wholeText, strings.ReplaceAll(wholeText, " ", "\t"), strings.ReplaceAll(wholeText, " ", "\u00a0"), "version_info: \"1\" version_info: \"2\" " + wholeText}},
}

func protoText(typ, text string) string {
	if typ == wholeFile {
		return strings.Replace(text, "METADATA", `filter_metadata { key: "x" value { } }`, 1)
	}
	return strings.Replace(wholeText, "METADATA", `typed_filter_metadata { key: "a" value { [type.googleapis.com/`+typ+"] { "+text+"\n} } }", 1)
}

// handWritten converts the texts of a table.
func handWritten(table []odd, convert func(typ, text string) string) []string {
	var all []string
	for _, o := range table {
		for _, text := range o.texts {
			all = append(all, convert(o.typ, text))
		}
	}
	return all
}

func plainText(typ, text string) string { return typ + " " + text }

func yamlText(typ, text string) string {
	switch typ {
	case wholeFile:
		return text
	case "":
		return endpointsWith(indent("filter_metadata:\n  m:\n"+indent(text+"\n", "    "), "        "))
	}
	return endpointsWith(indent("typed_filter_metadata:\n  a:\n    \"@type\": type.googleapis.com/"+typ+"\n"+indent(text+"\n", "    "), "        "))
}

func jsonText(typ, text string) string {
	with := func(metadata string) string {
		return strings.Replace(wholeJSON, `{"filter_metadata":{"m":{"a":"b"}}}`, metadata, 1)
	}
	switch typ {
	case wholeFile:
		return text
	case "":
		return with(`{"filter_metadata":{"m":` + text + `}}`)
	}
	return with(`{"typed_filter_metadata":{"a":{"@type":"type.googleapis.com/` + typ + `",` + text + `}}}`)
}
