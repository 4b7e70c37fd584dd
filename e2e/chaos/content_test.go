package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// kinds are the types that a client asks for, in the order in which it does.
var kinds = []*xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route}

// fillers is the number of clusters without a route. They always exist: no fault may remove one
// from a client.
const fillers = 50

// large is the assignment that only slow readers request.
const large = "large"

// A content is the content of the directory in one generation.
type content struct {
	generation int
	front      string // the cluster that the routes lead to
	files      map[string][]byte
	versions   map[*xds.Type]map[string]string // by name; what every client is to have
}

// A place has the ports of the traffic.
type place struct {
	ports     [2]int // of the listeners ingress and side
	upstreams [2]int
}

// content makes a generation. Each generation replaces the cluster of the routes, which tests make
// before break, changes a cluster and moves five assignments.
func (p place) content(t testing.TB, generation int) content {
	t.Helper()
	c := content{generation: generation, front: fmt.Sprint("front-", generation%3), versions: map[*xds.Type]map[string]string{}}
	var all bytes.Buffer
	add := func(typ *xds.Type, m proto.Message) {
		r, err := wire.NewResource(typ, "", m)
		if err != nil {
			t.Fatal(err)
		}
		if c.versions[typ] == nil {
			c.versions[typ] = map[string]string{}
		}
		c.versions[typ][r.Name] = r.Version
		all.Write(harness.Document(m))
	}
	// last returns the newest generation that is the ith of every n.
	last := func(i, n int) int { return generation - (generation-i%n+n)%n }
	for i := range fillers {
		name := fmt.Sprintf("filler-%02d", i)
		add(xds.Cluster, harness.EDSCluster(name, time.Second+time.Duration(last(i, fillers))*time.Millisecond))
		add(xds.Endpoint, harness.Assignment(name, p.upstreams[(last(i, 10)/10)&1]))
	}
	add(xds.Cluster, harness.EDSCluster(c.front, time.Second+time.Duration(generation)*time.Millisecond))
	add(xds.Endpoint, harness.Assignment(c.front, p.upstreams[generation%2]))
	for i, name := range []string{"ingress", "side"} {
		add(xds.Listener, harness.HTTPListener(name, p.ports[i], name, ""))
		add(xds.Route, harness.Routes(name, fmt.Sprint(generation), c.front))
	}
	c.files = map[string][]byte{"world.yaml": all.Bytes()}
	return c
}

// largeFile returns the large assignment, which does not fit into any buffer on the way to a
// client.
func largeFile(generation int) []byte {
	a := harness.Assignment(large, 1)
	text := structpb.NewStringValue(strings.Repeat(fmt.Sprintf("%08d", generation), 1<<17))
	a.Endpoints[0].LbEndpoints[0].Metadata = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{"large": {Fields: map[string]*structpb.Value{"text": text}}}}
	return harness.Document(a)
}

// put replaces a file of a directory in one step.
func put(dir, name string, text []byte) error {
	next := filepath.Join(filepath.Dir(dir), "next-"+name)
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, name))
}
