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

// resolvConf lists the DNS servers of the system.
const resolvConf = "/etc/resolv.conf"

// attempts is how many times each server is asked: first with EDNS, then without it, because some networks and
// servers drop questions that have it.
const attempts = 2

// maxAliases limits the aliases that are asked for separately.
const maxAliases = 8

// lookUp asks for the records of a name, and for those of its last alias if a server left the alias unresolved.
func (o *Options) lookUp(ctx context.Context, q question) (answer, error) {
	servers := o.Servers
	if len(servers) == 0 {
		var err error
		servers, err = system(resolvConf)
		if err != nil {
			return answer{}, err
		}
	}
	ttl := time.Duration(-1)
	for range maxAliases {
		a, err := o.askAll(ctx, servers, q)
		if err != nil {
			return answer{}, err
		}
		if ttl >= 0 && (a.ttl < 0 || ttl < a.ttl) {
			a.ttl = ttl
		}
		if a.alias == "" {
			return a, nil
		}
		ttl, q.host = a.ttl, a.alias
	}
	return answer{}, fmt.Errorf("more than %d aliases", maxAliases)
}

// askAll asks one server after the other, until one answers. The absence of records counts only if no earlier server
// fails (SAFE-17): a later one may be a public server that does not know internal names.
func (o *Options) askAll(ctx context.Context, servers []string, q question) (answer, error) {
	var last error
	for i := range attempts {
		last = nil
		for _, server := range servers {
			a, err := o.exchange(ctx, server, q, i == 0)
			switch absent := len(a.records) == 0 && a.alias == ""; {
			case err == nil && absent && last != nil:
				last = fmt.Errorf("%w: the answer of %s without records does not count", last, server)
			case err == nil:
				return a, nil
			case ctx.Err() != nil:
				return answer{}, ctx.Err()
			default:
				last = fmt.Errorf("%s: %w", server, err)
			}
		}
	}
	return answer{}, last
}

// system returns the servers of a file in the format of resolv.conf. It reads the file for each question,
// because it changes with the network.
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
		return nil, fmt.Errorf("%s: no nameserver line", path)
	}
	return servers, nil
}

// exchange asks a server over UDP. It asks again without EDNS if the server may not know EDNS, and over TCP if the
// answer is too long.
func (o *Options) exchange(ctx context.Context, server string, q question, edns bool) (answer, error) {
	a, err := o.over(ctx, "udp", server, q, edns)
	if edns && refusesEDNS(err) {
		edns = false
		a, err = o.over(ctx, "udp", server, q, edns)
	}
	if errors.Is(err, errTruncated) {
		a, err = o.over(ctx, "tcp", server, q, edns)
	}
	return a, err
}

func (o *Options) over(ctx context.Context, network, server string, q question, edns bool) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	// Each exchange uses its own socket, so a forger of answers must also guess the port.
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
	message, asked, err := q.ask(id, edns)
	if err != nil {
		return answer{}, err
	}
	if network == "tcp" {
		message = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
	}
	_, err = c.Write(message)
	if err != nil {
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
