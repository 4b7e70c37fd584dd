// Package dnstest is a DNS server for tests. It listens on UDP and TCP on this machine and gives the
// answers set by the test.
package dnstest

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// A Server answers DNS questions. Its methods are safe for concurrent use.
type Server struct {
	Addr string // IP:PORT

	mu      sync.Mutex
	answers map[key]Answer
	asked   map[key]int
	tcp     int
}

type key struct {
	name string
	typ  dnsmessage.Type
}

// An Answer is the server's response to a question. The zero value has no records.
type Answer struct {
	RCode   dnsmessage.RCode
	TTL     uint32
	Records []dnsmessage.ResourceBody // records after a CNAME belong to its target
	Silent  bool                      // do not answer
	Long    bool                      // truncate the answer over UDP
	Lame    bool                      // neither authoritative nor recursive
	Before  func([]byte) [][]byte     // messages to send over UDP before the answer
	Change  func(q Query, m *dnsmessage.Message) (send bool)
}

// A Query is how a question was asked.
type Query struct{ UDP, EDNS bool }

// Addresses returns A and AAAA records.
func Addresses(all ...string) (out []dnsmessage.ResourceBody) {
	for _, a := range all {
		switch addr := netip.MustParseAddr(a); {
		case addr.Is4():
			out = append(out, &dnsmessage.AResource{A: addr.As4()})
		default:
			out = append(out, &dnsmessage.AAAAResource{AAAA: addr.As16()})
		}
	}
	return out
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{answers: map[key]Answer{}, asked: map[key]int{}}
	var udp net.PacketConn
	var tcp net.Listener
	var err error
	for range 10 { // the port may be in use by the other protocol
		tcp, err = net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err = net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			break
		}
		tcp.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = tcp.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { s.serveUDP(udp) })
	serving.Go(func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serveTCP(c) })
		}
	})
	t.Cleanup(func() { _ = udp.Close(); tcp.Close(); serving.Wait() })
	return s
}

// SetAnswer sets the answer to a question. A name without any answer does not exist.
func (s *Server) SetAnswer(name string, typ dnsmessage.Type, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[key{name, typ}] = a
}

// Asked returns the number of times that a question was asked.
func (s *Server) Asked(name string, typ dnsmessage.Type) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[key{name, typ}]
}

// TCP returns the number of questions over TCP.
func (s *Server) TCP() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tcp
}

func (s *Server) serveUDP(c net.PacketConn) {
	b := make([]byte, 65535)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		for _, m := range s.answer(b[:n], true) {
			_, _ = c.WriteTo(m, from)
		}
	}
}

func (s *Server) serveTCP(c net.Conn) {
	defer c.Close()
	var two [2]byte
	if _, err := io.ReadFull(c, two[:]); err != nil {
		return
	}
	b := make([]byte, binary.BigEndian.Uint16(two[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return
	}
	for _, m := range s.answer(b, false) {
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
	}
}

// answer returns the messages to send.
func (s *Server) answer(message []byte, udp bool) [][]byte {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	how := Query{UDP: udp}
	_ = p.SkipAllQuestions()
	_ = p.SkipAllAnswers()
	_ = p.SkipAllAuthorities()
	if opt, err := p.AdditionalHeader(); err == nil {
		how.EDNS = opt.Type == dnsmessage.TypeOPT
	}
	k := key{strings.TrimSuffix(q.Name.String(), "."), q.Type}
	s.mu.Lock()
	a, known := s.answers[k]
	s.asked[k]++
	if !udp {
		s.tcp++
	}
	s.mu.Unlock()
	if a.Silent {
		return nil
	}
	if !known {
		a.RCode = dnsmessage.RCodeNameError
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: true, RecursionAvailable: !a.Lame, RCode: a.RCode, Truncated: udp && a.Long},
		Questions: []dnsmessage.Question{q},
	}
	owner := q.Name
	for _, r := range a.Records {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET, TTL: a.TTL}, Body: r})
		if c, is := r.(*dnsmessage.CNAMEResource); is {
			owner = c.CNAME
		}
	}
	if m.Truncated {
		m.Answers = m.Answers[:min(len(m.Answers), 1)]
	}
	if len(a.Records) == 0 && !a.Lame {
		root := dnsmessage.MustNewName(".")
		m.Authorities = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: root, Class: dnsmessage.ClassINET, TTL: a.TTL + 60}, Body: &dnsmessage.SOAResource{NS: root, MBox: root, MinTTL: a.TTL}}}
	}
	if a.Change != nil && !a.Change(how, &m) {
		return nil
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	var all [][]byte
	if udp && a.Before != nil {
		all = a.Before(b)
	}
	return append(all, b)
}
