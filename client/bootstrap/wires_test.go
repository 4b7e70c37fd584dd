package bootstrap

import "testing"

// The default transports are those of package client, without a connection yet.
func TestTransports_CLI1(t *testing.T) {
	c, err := Envoy("b.yaml", []byte(byHand), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(c.ADS.Servers, c.Clusters.Servers...) {
		if s.Transport.String() == "" || !s.Transport.Aggregated() {
			t.Error(s.Transport)
		}
		if err := s.Transport.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := c.ADS.Servers[0].Transport.Variant().String(); got != "delta" {
		t.Error(got)
	}
	g, err := GRPC("b.json", []byte(whole), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(g.Servers, g.Authorities["east.example"].Servers...) {
		if err := s.Transport.Close(); err != nil {
			t.Error(err)
		}
	}
}
