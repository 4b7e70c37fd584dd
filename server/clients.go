package server

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// clients counts the streams of each connected client, to log a client once. A client may have many streams, one for
// each type or each cluster. The zero value is ready to use. There is at most one entry for each stream.
type clients struct {
	mu    sync.Mutex
	known map[clientKey]presence
}

// A clientKey is a node at an address. A stream without a node id is its own client.
type clientKey struct {
	node, peer string
	stream     uint64 // zero if the node has an id
}

type presence struct {
	streams int
	since   time.Time
}

func clientOf(st *Stream) clientKey {
	c := clientKey{node: st.Node.ID, peer: addr(st.Peer)}
	if c.node == "" {
		c.stream = st.ID
	}
	return c
}

// come adds a stream, and reports whether it is the first of its client.
func (c *clients) come(st *Stream) (first bool) {
	k := clientOf(st)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[clientKey]presence{}
	}
	p, known := c.known[k]
	if !known {
		p.since = st.Since
	}
	p.streams++
	c.known[k] = p
	return !known
}

// leave removes a stream. If it was the last stream of its client, leave returns the time when the
// client connected.
func (c *clients) leave(st *Stream) (since time.Time, last bool) {
	k := clientOf(st)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.known[k]
	p.streams--
	if p.streams > 0 {
		c.known[k] = p
		return time.Time{}, false
	}
	delete(c.known, k)
	return p.since, true
}

// logConnected logs the first stream of a client.
func (s *Server) logConnected(st *Stream) {
	if !s.clients.come(st) {
		return
	}
	api := "ADS"
	if st.Type != nil {
		api = st.Type.Short
	}
	s.logInfo("client connected",
		slog.String("node", clip(st.Node.ID)), slog.String("cluster", clip(st.Node.Cluster)), slog.String("peer", addr(st.Peer)),
		slog.String("agent", clip(strings.TrimSpace(st.Node.UserAgentName+" "+st.Node.UserAgentVersion))),
		slog.String("api", api), slog.String("variant", st.Variant.String()), slog.Uint64("stream", st.ID))
}

// logLeft logs the end of a client's last stream, with the reason.
func (s *Server) logLeft(st *Stream, why error) {
	since, last := s.clients.leave(st)
	if !last {
		return
	}
	code, text := status.Convert(why), "the client ended its stream"
	switch {
	case code.Message() == context.Canceled.Error(): // gRPC reports a cancellation by the client with this text
		text = "the client canceled its stream, or its connection ended"
	case code.Message() != "":
		text = clip(code.Message())
	}
	s.logInfo("client left",
		slog.String("node", clip(st.Node.ID)), slog.String("peer", addr(st.Peer)), slog.String("after", time.Since(since).Round(time.Millisecond).String()),
		slog.String("code", code.Code().String()), slog.String("why", text), slog.Uint64("stream", st.ID))
}

// addr returns the text of an address, or "" for nil.
func addr(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}
