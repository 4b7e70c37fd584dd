// Package peers lets the servers of one store find each other, and ask each other about their clients. It
// connects only to addresses that servers have announced in the store, and sends its token over TLS only.
// It checks the identity of each server, and limits its time and the size of its answer. It does not
// interpret the answers.
package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/text"
)

// An About is the announcement of a server. It is stored as JSON, under the key "replica/" and the
// server's ID.
type About struct {
	Format   int       `json:"format"`             // format number, 1
	ID       string    `json:"id"`                 // ID of a process, which is new after each start
	Admin    string    `json:"admin,omitempty"`    // http://HOST:PORT or https://HOST:PORT; "": not reachable from other machines
	Host     string    `json:"host,omitempty"`     // name of the server's machine
	Version  string    `json:"version,omitempty"`  // version of the program
	Revision string    `json:"revision,omitempty"` // revision that the server served a moment ago
	Turns    int       `json:"turns,omitempty"`    // how many times the served holds had changed
	Since    time.Time `json:"since"`              // start of the process
	Streams  int       `json:"streams"`            // number of open streams a moment ago; after parse, -1 means an impossible number
	Writes   time.Time `json:"writes,omitzero"`    // the time since when the server writes a directory to the store; zero: it does not
}

const (
	format = 1
	prefix = revisions.ServerPrefix

	// maxAbout limits the size of an announcement.
	maxAbout = 4 << 10
	// maxReplicas limits the number of known servers.
	maxReplicas = 128
	// maxStreams is the highest credible number of streams of a server.
	maxStreams = 10_000_000
)

// parse decodes an announcement. The error for an invalid one is a text for people.
func parse(key string, value []byte) (About, error) {
	id := text.Head(strings.TrimPrefix(key, prefix), maxText)
	a := About{ID: id}
	if len(value) > maxAbout {
		return a, errors.New("its announcement is too long")
	}
	if err := json.Unmarshal(value, &a); err != nil || a.Format != format || a.ID != id {
		return About{ID: id}, errors.New("its announcement is unreadable: of another version, or not of a server")
	}
	if a.Streams < 0 || a.Streams > maxStreams {
		a.Streams = -1
	}
	return a, nil
}

// reachable returns an error if a server on the machine host cannot ask this one, or must not.
func (a About) reachable(host string) error {
	if a.Admin == "" {
		return errors.New("it has no admin API that other servers can ask: see --replica-address")
	}
	u, err := url.Parse(a.Admin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.Hostname() == "" || a.Admin != u.Scheme+"://"+u.Host {
		return fmt.Errorf("it has announced %q, which is not the address of an admin API", a.Admin)
	}
	ip := net.ParseIP(u.Hostname())
	switch local := (listen.Address{Network: "tcp", Host: u.Hostname()}).Loopback(); {
	case ip.IsUnspecified():
		return fmt.Errorf("it has announced %s, which is not the address of a machine", a.Admin)
	case local && (a.Host == "" || a.Host != host):
		return fmt.Errorf("its admin API is on the loopback of another machine, %s: give it --replica-address", a.Host)
	case !local && u.Scheme == "http":
		return errors.New("its admin API has no TLS, and is on another machine")
	}
	return nil
}
