// Package peers has the servers of one store find each other, and ask each other what each knows of its own clients.
// It follows no address but those that servers have announced in the store, sends its token over TLS only,
// believes nobody to be another than who he was announced as, and gives each a second and so many bytes. What the answers mean it does not know.
package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/text"
)

// An About is what a server announces of itself: JSON, under the key "replica/" and its ID.
type About struct {
	Format   int       `json:"format"`             // 1
	ID       string    `json:"id"`                 // of a process: a new one after each start
	Admin    string    `json:"admin,omitempty"`    // http://HOST:PORT or https://HOST:PORT; "": nobody of another machine can ask it
	Host     string    `json:"host,omitempty"`     // name of its machine
	Version  string    `json:"version,omitempty"`  // of the program
	Revision string    `json:"revision,omitempty"` // that it served a moment ago
	Since    time.Time `json:"since"`              // when it started
	Streams  int       `json:"streams"`            // open a moment ago; as read, -1: it says what cannot be
	Writes   time.Time `json:"writes,omitzero"`    // since when it writes to the store what a directory says; zero: it does not
}

const (
	format = 1
	prefix = "replica/"

	// maxAbout is how long an announcement may be.
	maxAbout = 4 << 10
	// maxReplicas is of how many servers one knows.
	maxReplicas = 128
	// maxStreams is how many streams one server can be believed to have.
	maxStreams = 10_000_000
)

// parse reads what is stored under a key. What is no announcement has an error, which says so to people.
func parse(key string, value []byte) (About, error) {
	id := text.Head(strings.TrimPrefix(key, prefix), maxText)
	a := About{ID: id}
	if len(value) > maxAbout {
		return a, errors.New("what it has announced is too long")
	}
	if err := json.Unmarshal(value, &a); err != nil || a.Format != format || a.ID != id {
		return About{ID: id}, errors.New("what it has announced cannot be read: it is of another version, or of nobody")
	}
	if a.Streams < 0 || a.Streams > maxStreams {
		a.Streams = -1
	}
	return a, nil
}

// reachable returns an error if a server may not, or cannot, be asked by one on a machine called host.
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
		return fmt.Errorf("it has announced %s, which is no address of a machine", a.Admin)
	case local && (a.Host == "" || a.Host != host):
		return fmt.Errorf("its admin API is on the loopback of another machine, %s: give it --replica-address", a.Host)
	case !local && u.Scheme == "http":
		return errors.New("its admin API has no TLS, and is on another machine")
	}
	return nil
}
