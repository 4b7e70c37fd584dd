package tap

import "testing"

// A response in flight when a stream broke has arrived if the client states it on the next stream:
// for clusters and for routes.
func TestOrderAcrossStreams(t *testing.T) {
	for name, tt := range map[string]struct {
		stated string
		bad    int
	}{"it has arrived": {"2", 0}, "it has not": {"1", 1}} {
		t.Run("ADS-9 "+name, func(t *testing.T) {
			clusters := func(stream int, nonce, version string, names ...string) Record {
				r := Record{Stream: stream, Kind: Response, Type: "CDS", Nonce: nonce, Version: version}
				for _, n := range names {
					r.Resources = append(r.Resources, Resource{Name: n})
				}
				return r
			}
			got := Records{
				{Stream: 1, Kind: Request, Type: "CDS"},
				clusters(1, "1", "1", "a"),
				{Stream: 1, Kind: Request, Type: "CDS", Nonce: "1", Version: "1"},
				clusters(1, "2", "2", "a", "b"),
				{Stream: 2, Kind: Request, Type: "CDS", Version: tt.stated},
				{Stream: 2, Kind: Response, Type: "RDS", Nonce: "1", Version: "r", Resources: []Resource{{Name: "r", Clusters: []string{"a", "b"}}}},
			}.Disorder()
			if len(got) != tt.bad {
				t.Errorf("%q", got)
			}
		})
	}
}
