package endpoints

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

// maxQuoted limits a quoted value in an error, in bytes.
const maxQuoted = 100

// The limits of a registration. A value beyond one of them is a [FieldError].
const (
	MaxWeight   = 100_000 // of an endpoint; the sum of a cluster fits into 32 bits
	MaxPriority = 127     // "priorities … should range from 0 (highest) to N (lowest)": Envoy takes up to 128
	MaxName     = 512     // bytes of a cluster's name, an ID, a host name, and each part of a locality
	MaxMetadata = 4 << 10 // bytes of the metadata of an endpoint, as JSON
	MinTTL      = time.Second
	MaxTTL      = 24 * time.Hour
)

// A Cluster identifies an assignment. EDS clusters subscribe to it by their service_name or, without one,
// by their own name.
type Cluster struct {
	Group string // the group of resources whose nodes get it; "": default
	Name  string
}

// A Key identifies a registration. A key without an ID belongs to the cluster itself: while it exists,
// the assignment is served, even without endpoints.
type Key struct {
	Cluster
	ID string
}

// String returns the key for errors and logs.
func (k Key) String() string {
	s := k.Name
	if k.ID != "" {
		s += "/" + k.ID
	}
	if k.Group != "" && k.Group != defaultGroup {
		s += " of group " + k.Group
	}
	return s
}

// A Locality is the place where an endpoint runs.
type Locality struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

// An Endpoint is an instance of a cluster. Address and Port are required; the zero value of the other
// fields means unset.
type Endpoint struct {
	Address  string   `json:"address"`            // an IP address
	Port     int      `json:"port"`               // a TCP port, 1 to 65535
	Hostname string   `json:"hostname,omitempty"` // for health checks and host rewrites, as Envoy uses it
	Locality Locality `json:"locality,omitzero"`
	Weight   int      `json:"weight,omitempty"`   // 1 to MaxWeight, among those of the cluster; 0: 1
	Priority int      `json:"priority,omitempty"` // 0 is the first choice, up to MaxPriority; the served priorities have no gaps
	Health   string   `json:"health,omitempty"`   // HEALTHY, UNHEALTHY, DRAINING, TIMEOUT or DEGRADED; "": unknown, which counts as healthy

	// Metadata is passed on to clients under its names, such as "envoy.lb".
	Metadata map[string]map[string]any `json:"metadata,omitempty"`
}

// A Registered is an endpoint of a cluster with the ID of its registration.
type Registered struct {
	ID string // "": its address and port
	Endpoint
	Bad *FieldError // why it cannot be read, with its readable fields; nil: it was read
}

// A FieldError reports an invalid field.
type FieldError struct{ Field, Message string }

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// health are the health states, by their numbers in Envoy's API.
var health = []string{"UNKNOWN", "HEALTHY", "UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED"}

// isHost reports whether an endpoint can have the address. A connection to an unspecified address reaches the
// client's own machine, and TCP has neither multicast nor broadcast.
func isHost(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// normal returns the canonical form of an endpoint, or the reason why it is invalid.
func (e Endpoint) normal() (Endpoint, error) {
	addr, err := netip.ParseAddr(e.Address)
	switch {
	case e.Address == "":
		return e, wrong("address", "is missing")
	case err != nil || addr.Zone() != "":
		return e, wrong("address", "%q is not an IP address", textutil.Head(e.Address, maxQuoted))
	case !isHost(addr.Unmap()):
		return e, wrong("address", "%s is not the address of one machine: it is unspecified, multicast or broadcast", addr)
	case e.Port < 1 || e.Port > math.MaxUint16:
		return e, wrong("port", "must be 1 to %d", math.MaxUint16)
	case e.Weight < 0 || e.Weight > MaxWeight:
		return e, wrong("weight", "must be 1 to %d", MaxWeight)
	case e.Priority < 0 || e.Priority > MaxPriority:
		return e, wrong("priority", "must be 0 to %d", MaxPriority)
	}
	e.Address = addr.String()
	if e.Weight == 1 {
		e.Weight = 0
	}
	if e.Health == health[0] {
		e.Health = ""
	}
	if e.Health != "" && !slices.Contains(health, e.Health) {
		return e, wrong("health", "%q is not one of %s", textutil.Head(e.Health, maxQuoted), strings.Join(health, ", "))
	}
	for _, f := range []struct{ field, text string }{{"hostname", e.Hostname}, {"locality.region", e.Locality.Region}, {"locality.zone", e.Locality.Zone}, {"locality.sub_zone", e.Locality.SubZone}} {
		if err := word(f.field, f.text, true); err != nil {
			return e, err
		}
	}
	if len(e.Metadata) == 0 {
		e.Metadata = nil
		return e, nil
	}
	b, err := json.Marshal(e.Metadata)
	if err != nil {
		return e, wrong("metadata", "%v", err)
	}
	if len(b) > MaxMetadata {
		return e, wrong("metadata", "%d bytes of JSON: at most %d are allowed", len(b), MaxMetadata)
	}
	values := 0
	for name := range e.Metadata {
		if name == "" {
			return e, wrong("metadata", "a name is empty")
		}
		if deeper(e.Metadata[name], maxDepth) {
			return e, wrong("metadata", "more than %d nested objects and lists", maxDepth)
		}
		values += 1 + Values(structure(e.Metadata[name]))
		if values > MaxValues {
			return e, wrong("metadata", "more than %d values: fields, elements, objects and lists", MaxValues)
		}
	}
	return e, nil
}

// maxDepth limits the nesting of objects and lists in metadata. Each level is up to three messages. A
// client in C++ accepts 100 levels of messages, and would refuse the whole cluster for one endpoint.
const maxDepth = 16

func deeper(v any, most int) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, one := range v {
			if most == 0 || deeper(one, most-1) {
				return true
			}
		}
	case []any:
		for _, one := range v {
			if most == 0 || deeper(one, most-1) {
				return true
			}
		}
	}
	return false
}

// word checks a text.
func word(field, text string, mayBeEmpty bool) error {
	switch {
	case text == "" && !mayBeEmpty:
		return wrong(field, "is missing")
	case len(text) > MaxName:
		return wrong(field, "%d bytes: at most %d are allowed", len(text), MaxName)
	case !utf8.ValidString(text), strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return wrong(field, "must be UTF-8 without control characters")
	}
	return nil
}

// normal returns the canonical form of a cluster, or the reason why it is invalid.
func (c Cluster) normal() (Cluster, error) {
	if c.Group == "" {
		c.Group = defaultGroup
	}
	if err := word("group", c.Group, false); err != nil {
		return c, err
	}
	if err := word("cluster", c.Name, false); err != nil {
		return c, err
	}
	if c.Name == xds.Wildcard {
		return c, wrong("cluster", "%q is not a valid name", c.Name)
	}
	c.Name = xds.CanonicalName(c.Name)
	return c, nil
}
