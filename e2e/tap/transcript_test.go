package tap

import "testing"

// The same conversation twice, with other nonces, hashes and orders.
func TestTranscript(t *testing.T) {
	ads := "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	eds := "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"
	body := func(name, version string) Resource { return Resource{Name: name, Version: version, Sum: "x"} }
	one := Records{
		{Kind: Mark, Text: "start"},
		{Kind: Open, Stream: 1, Text: ads},
		{Kind: Request, Stream: 1, Delta: true, Type: "CDS"},
		{Kind: Response, Stream: 1, Delta: true, Type: "CDS", Version: "f00", Nonce: "17", Resources: []Resource{body("b", "77"), body("a", "88")}},
		{Kind: Request, Stream: 1, Delta: true, Type: "EDS", Subscribe: []string{"y", "x"}},
		{Kind: Request, Stream: 1, Delta: true, Type: "CDS", Nonce: "17"},
		{Kind: Open, Stream: 2, Text: eds},
		{Kind: Open, Stream: 3, Text: eds},
		{Kind: Request, Stream: 2, Type: "EDS", Names: []string{"b"}},
		{Kind: Request, Stream: 3, Type: "EDS", Names: []string{"a"}},
		{Kind: Mark, Text: "nothing"},
		{Kind: Mark, Text: "more"},
		{Kind: Response, Stream: 1, Delta: true, Type: "CDS", Version: "f11", Nonce: "20", Resources: []Resource{body("a", "88"), body("b", "99")}},
		{Kind: Request, Stream: 1, Delta: true, Type: "CDS", Unsubscribe: []string{"c"}},
		{Kind: Request, Stream: 1, Delta: true, Type: "CDS", Nonce: "20", nacked: true, NACK: "0x7f32", Code: 13},
		{Kind: Request, Stream: 3, Type: "EDS", Names: []string{"z"}, Nonce: "9"},
		{Kind: Close, Stream: 3, Text: "OK"},
	}
	other := Records{
		{Kind: Mark, Text: "start"},
		{Kind: Open, Stream: 1, Text: eds},
		{Kind: Open, Stream: 2, Text: ads},
		{Kind: Request, Stream: 1, Type: "EDS", Names: []string{"a"}},
		{Kind: Request, Stream: 2, Delta: true, Type: "EDS", Subscribe: []string{"x", "y"}},
		{Kind: Request, Stream: 2, Delta: true, Type: "CDS"},
		{Kind: Response, Stream: 2, Delta: true, Type: "CDS", Version: "e00", Nonce: "3", Resources: []Resource{body("a", "1a"), body("b", "1b")}},
		{Kind: Request, Stream: 2, Delta: true, Type: "CDS", Nonce: "3"},
		{Kind: Open, Stream: 3, Text: eds},
		{Kind: Request, Stream: 3, Type: "EDS", Names: []string{"b"}},
		{Kind: Mark, Text: "nothing"},
		{Kind: Mark, Text: "more"},
		{Kind: Request, Stream: 1, Type: "EDS", Names: []string{"z"}, Nonce: "unknown"},
		{Kind: Close, Stream: 1, Text: "Canceled"},
		{Kind: Request, Stream: 2, Delta: true, Type: "CDS", Unsubscribe: []string{"c"}},
		{Kind: Response, Stream: 2, Delta: true, Type: "CDS", Version: "e11", Nonce: "4", Resources: []Resource{body("b", "2b"), body("a", "1a")}},
		{Kind: Request, Stream: 2, Delta: true, Type: "CDS", Nonce: "4", nacked: true, NACK: "0x7f33", Code: 13},
	}
	want := `-- start
DeltaAggregatedResources opened
C> CDS
   <S CDS system_version_info="1" nonce="1" resources=["a@1", "b@1"]
C> CDS response_nonce="1"
C> EDS names_subscribe=["x", "y"]
StreamEndpoints a opened
C> EDS names=["a"]
StreamEndpoints b opened
C> EDS names=["b"]
-- nothing
-- more
DeltaAggregatedResources
C> CDS names_unsubscribe=["c"]
   <S CDS system_version_info="2" nonce="2" resources=["a@1", "b@2"]
C> CDS NACK response_nonce="2" code=13
StreamEndpoints a
C> EDS names=["z"] response_nonce="?"
`
	for name, rs := range map[string]Records{"one": one, "other": other} {
		if got := rs.Transcript(); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}
