package protoyaml

import "testing"

func TestWithArticle(t *testing.T) {
	for name, want := range map[string]string{
		"Cluster": "a", "Endpoint": "an", "Any": "an", "EDS": "an", "CDS": "a", "RDS": "an", "VHDS": "a", "SDS": "an", "UDPListener": "a", "UInt32Value": "a",
		"HttpFilter": "an", "RdsConfig": "an", "TcpProxy": "a", "LbEndpoint": "an", "UpstreamTlsContext": "an", "UdpProxy": "a", "UnixSocket": "a",
		"TypedExtensionConfig": "a", "HeaderMatcher": "a", "S": "an", "DynamicOtConfig": "a",
	} {
		if got := WithArticle(name); got != want+" "+name {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := WithArticle(""); got != "" {
		t.Error(got)
	}
}
