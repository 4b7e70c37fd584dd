package server

import (
	"math"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// fetch answers one unary request at once: with what it names of type t, even
// if the client has it already.
func (s *Server) fetch(m *message, t *xds.Type) (*message, error) {
	d := wire.Decoder{MaxNames: s.limits.MaxNames}
	req, err := decode(&d, m)
	if err != nil {
		return nil, rejected(err)
	}
	w := s.watch(req.Node)
	view, _ := w.Next()
	defer w.Close()

	limits := s.limits
	limits.MaxResponse = math.MaxInt // there is but one answer
	session := protocol.NewSession(xds.SotW, t, view, limits)
	session.Advance(time.Now())
	req.Nonce, req.Version, req.Error = "", "", nil
	if err := session.Receive(req); err != nil {
		return nil, rejected(err)
	}
	for r := range session.Responses() {
		return s.encode(xds.SotW, r), nil
	}
	// A stream would stay silent; here nothing has to be said.
	return s.encode(xds.SotW, &xds.Response{Type: t, Version: view.Table(t).Version(), Changes: &xds.Changes{}}), nil
}
