package dns

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// resolvConf is where a system says which servers to ask.
const resolvConf = "/etc/resolv.conf"

// attempts are how often each server is asked.
const attempts = 2

// lookUp asks one server after the other, until one gives an answer.
func (o *Options) lookUp(ctx context.Context, q question) (answer, error) {
	servers := o.Servers
	if len(servers) == 0 {
		var err error
		if servers, err = system(resolvConf); err != nil {
			return answer{}, err
		}
	}
	var last error
	for range attempts {
		for _, server := range servers {
			a, err := o.exchange(ctx, server, q)
			if err == nil {
				return a, nil
			}
			if ctx.Err() != nil {
				return answer{}, ctx.Err()
			}
			last = fmt.Errorf("%s: %w", server, err)
		}
	}
	return answer{}, last
}

// system returns the servers of a file in the format of resolv.conf. It is read for each question, since it changes with the network.
func system(path string) (servers []string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(f[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(addr, 53).String())
		}
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("%s: there is no nameserver in it", path)
	}
	return servers, nil
}

// exchange asks a server over UDP, and over TCP if the answer is too long for that.
func (o *Options) exchange(ctx context.Context, server string, q question) (answer, error) {
	a, err := o.over(ctx, "udp", server, q)
	if errors.Is(err, errTruncated) {
		a, err = o.over(ctx, "tcp", server, q)
	}
	return a, err
}

func (o *Options) over(ctx context.Context, network, server string, q question) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	// A socket of its own has a port of its own, which who forges an answer does not know.
	c, err := (&net.Dialer{}).DialContext(ctx, network, server)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var two [2]byte
	_, _ = rand.Read(two[:])
	id := binary.BigEndian.Uint16(two[:])
	message, asked, err := q.ask(id)
	if err != nil {
		return answer{}, err
	}
	if network == "tcp" {
		message = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
	}
	if _, err = c.Write(message); err != nil {
		return answer{}, timedOut(ctx, err)
	}
	for b := make([]byte, 65535); ; {
		n, err := receive(c, network, b)
		if err != nil {
			return answer{}, timedOut(ctx, err)
		}
		p, h, err := answers(b[:n], id, asked)
		if err != nil && network == "udp" {
			continue // a late answer, or a forged one
		}
		if err != nil {
			return answer{}, err
		}
		return q.read(p, h)
	}
}

// receive reads a message.
func receive(c net.Conn, network string, b []byte) (int, error) {
	if network == "udp" {
		return c.Read(b)
	}
	var two [2]byte
	if _, err := io.ReadFull(c, two[:]); err != nil {
		return 0, err
	}
	return io.ReadFull(c, b[:binary.BigEndian.Uint16(two[:])])
}

func timedOut(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	return err
}
