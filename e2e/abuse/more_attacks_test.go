package abuse

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

const (
	adsDelta    = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	fetchCDS    = "/envoy.service.discovery.v3.ClusterDiscoveryService/FetchClusters"
	healthWatch = "/grpc.health.v1.Health/Watch"
)

// open returns a connection without HTTP/2, which closes when the attack ends.
func (a *attacker) open(ctx context.Context, text string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.from)}, Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", a.to)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(a.whole, func() { c.Close() })
	_, err = io.WriteString(c, text)
	return c, err
}

// held opens connections with the beginning of a conversation, and leaves the last 5,000 open: with more, the machine
// has no port for a good client of the same address.
func held(texts ...string) func(ctx context.Context, a *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		var last [5000]net.Conn
		return a.repeat(ctx, endless, func(i int) error {
			c, err := a.open(ctx, texts[i%len(texts)])
			if err != nil {
				return err
			}
			if old := last[i%len(last)]; old != nil {
				old.Close()
			}
			last[i%len(last)] = c
			return nil
		})
	}
}

// The beginning of HTTP/2 with empty SETTINGS, and an HTTP/1 request for all clusters.
const preface = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

func post(body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: server\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", xds.Cluster.REST, len(body))
}

const pollBody = `{"node":{"id":"attacker"},"version_info":"1"}`

// calls opens streams of a method with the same first message, and leaves them open.
func calls(path string, data []byte) func(ctx context.Context, a *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		p, err := a.dial(a.whole, nil)
		if err != nil {
			return err
		}
		p.block = headersOf(path)
		return a.openStreams(ctx, p, perConn, data)
	}
}

// zombies subscribe to all resources and never read: the windows are shut, on every other connection that of TCP too.
func zombies(ctx context.Context, a *attacker) error {
	var read reader
	if a.steps.Load()%2 == 0 {
		read = func(*peer, http2.Frame) { <-a.whole.Done() }
	}
	p, err := a.dial(a.whole, read, shut)
	if err != nil {
		return err
	}
	return a.openStreams(ctx, p, 100, request("", ""))
}

// deltaNames subscribes to new names and unsubscribes from the last ones, as fast as the rate allows.
func deltaNames(ctx context.Context, a *attacker) error {
	p, err := a.dial(ctx, nil)
	if err != nil {
		return err
	}
	p.block = headersOf(adsDelta)
	if err := p.open(nil); err != nil {
		return err
	}
	var last []string
	return a.repeat(ctx, endless, func(i int) error {
		req := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "attacker"}, TypeUrl: xds.Cluster.URL, ResourceNamesUnsubscribe: last}
		last = nil
		for n := range 100 {
			last = append(last, fmt.Sprintf("%d-%d-%s", i, n, strings.Repeat("n", 50)))
		}
		req.ResourceNamesSubscribe = last
		if i == 0 {
			req.InitialResourceVersions = map[string]string{}
			for _, n := range last {
				req.InitialResourceVersions[n] = "1"
			}
		}
		b, err := proto.Marshal(req)
		if err != nil {
			return err
		}
		return p.write(p.id, message(b))
	})
}

// manyTypes opens streams, each with requests for many types that do not exist.
func manyTypes(ctx context.Context, a *attacker) error {
	p, err := a.dial(ctx, nil)
	if err != nil {
		return err
	}
	return a.repeat(ctx, endless, func(i int) error {
		b, err := proto.Marshal(&discovery.DiscoveryRequest{Node: &core.Node{Id: "attacker"}, TypeUrl: fmt.Sprintf("type.googleapis.com/t%d", i%60), ResourceNames: []string{"a", "b"}})
		switch {
		case err != nil:
			return err
		case i%60 == 0:
			return p.open(message(b))
		}
		return p.write(p.id, message(b))
	})
}

// largeNode is a request with 200 KB of metadata.
func largeNode() []byte {
	metadata := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for i := range 2000 {
		metadata.Fields[fmt.Sprint("key-", i)] = structpb.NewStringValue(strings.Repeat("v", 80))
	}
	b, err := proto.Marshal(&discovery.DiscoveryRequest{Node: &core.Node{Id: "attacker", Metadata: metadata}, TypeUrl: xds.Cluster.URL})
	if err != nil {
		panic(err)
	}
	return message(b)
}

// nodes opens streams with large nodes.
func nodes(ctx context.Context, a *attacker) error {
	p, err := a.dial(a.whole, nil)
	if err != nil {
		return err
	}
	data := largeNode()
	return a.repeat(ctx, 1000, func(int) error { return p.openLarge(ctx, data) })
}

// junk sends frames that mean nothing: unknown ones, priorities, empty data, updates of windows.
func junk(ctx context.Context, a *attacker) error {
	p, err := a.stream(ctx, nil, request("", ""))
	if err != nil {
		return err
	}
	return a.repeat(ctx, endless, func(i int) error {
		return p.send(func() error {
			switch i % 4 {
			case 0:
				return p.WriteRawFrame(0x42, 0, uint32(i), make([]byte, 100))
			case 1:
				return p.WritePriority(uint32(i)|1, http2.PriorityParam{StreamDep: 0, Weight: 1})
			case 2:
				return p.WriteData(p.id, false, nil)
			default:
				return p.WriteWindowUpdate(p.id, 1)
			}
		})
	})
}

// halfClosed ends each stream with its request: the client sends no more, and reads nothing.
func halfClosed(ctx context.Context, a *attacker) error {
	p, err := a.dial(a.whole, nil)
	if err != nil {
		return err
	}
	data := request("", "")
	return a.repeat(ctx, perConn, func(int) error {
		return cmp.Or(p.open(nil), p.send(func() error { return p.WriteData(p.id, true, data) }))
	})
}

// handshakes begin TLS: on every other connection they end it and close, else they are silent after their first bytes.
func handshakes(ctx context.Context, a *attacker) error {
	if err := a.next(ctx); err != nil {
		return err
	}
	if a.steps.Load()%2 == 0 {
		_, err := a.open(ctx, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
		return err
	}
	c, err := a.open(ctx, "")
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	return tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).HandshakeContext(ctx)
}
