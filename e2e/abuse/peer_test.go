package abuse

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const adsSotW = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"

// A peer is one connection of the attacker. It knows only frames, so it can break every rule.
type peer struct {
	net.Conn
	*http2.Framer
	block []byte // headers that open a stream of the SotW ADS, the same bytes for each stream

	mu  sync.Mutex // of the framer and out: the reader answers pings
	out *bufio.Writer
	id  uint32 // of the newest stream
}

// A reader handles a frame that the server sent. The reader's goroutine calls it without the lock.
type reader func(p *peer, f http2.Frame)

// dial opens a connection from an address. It answers SETTINGS and PING. If the context ends, the connection
// closes. With a nil reader nothing else happens to frames of the server.
func dial(ctx context.Context, from, to string, read reader, settings ...http2.Setting) (*peer, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	p := &peer{Conn: c, block: headers(), out: bufio.NewWriterSize(c, 32<<10)}
	p.Framer = http2.NewFramer(p.out, c)
	context.AfterFunc(ctx, func() { c.Close() })
	_, _ = io.WriteString(p.out, http2.ClientPreface)
	err = p.WriteSettings(settings...)
	if err == nil {
		err = p.out.Flush()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	go p.read(read)
	return p, nil
}

func (p *peer) read(read reader) {
	defer p.Close()
	in := http2.NewFramer(nil, p.Conn)
	in.SetReuseFrames()
	for {
		f, err := in.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = p.send(func() error { return p.WriteSettingsAck() })
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = p.send(func() error { return p.WritePing(true, f.Data) })
			}
		case *http2.DataFrame:
			if read == nil && f.Length > 0 { // keeps the connection's window open; a stream's window stays as it is
				err = p.send(func() error { return p.WriteWindowUpdate(0, f.Length) })
			}
		}
		if err != nil {
			return
		}
		if read != nil {
			read(p, f)
		}
	}
}

// send writes frames at once.
func (p *peer) send(write func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := write(); err != nil {
		return err
	}
	return p.out.Flush()
}

// open opens a stream and sends the beginning of its data.
func (p *peer) open(data []byte) error {
	return p.send(func() error {
		p.id += 2
		if p.id == 2 {
			p.id = 1
		}
		err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.id, BlockFragment: p.block, EndHeaders: true})
		if err == nil && len(data) > 0 {
			err = p.WriteData(p.id, false, data)
		}
		return err
	})
}

// write sends data on a stream.
func (p *peer) write(stream uint32, data []byte) error {
	return p.send(func() error { return p.WriteData(stream, false, data) })
}

// openLarge opens a stream and sends data beyond the window, slowly: a server may end the connection.
func (p *peer) openLarge(ctx context.Context, data []byte) error {
	const part = 16 << 10
	err := p.open(data[:part])
	for rest := data[part:]; err == nil && len(rest) > 0; {
		n := min(len(rest), part)
		err = p.write(p.id, rest[:n])
		rest = rest[n:]
		pause(ctx, time.Millisecond)
	}
	return err
}

// headers encodes the headers of a stream. No field enters the table of the decoder, so that each block is the same.
func headers(more ...string) []byte { return headersOf(adsSotW, more...) }

func headersOf(path string, more ...string) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range append([]string{
		":method POST", ":scheme http", ":path " + path, ":authority server", "content-type application/grpc", "te trailers",
	}, more...) {
		name, value, _ := strings.Cut(h, " ")
		_ = e.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true})
	}
	return block.Bytes()
}

// message is a message of gRPC.
func message(body []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	return append(b, body...)
}
