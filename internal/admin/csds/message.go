package csds

import (
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// The values of envoy.service.status.v3.ConfigStatus, "from a management server view", and of
// envoy.admin.v3.ClientResourceStatus, from the client's view.
const (
	configUnknown, configSynced, configNotSent, configStale, configError = 0, 1, 2, 3, 4

	clientUnknown, clientRequested, clientAbsent, clientAcked, clientNacked = 0, 1, 2, 3, 4
)

func (r *Resource) configStatus() protoreflect.EnumNumber {
	switch r.State {
	case Synced, Absent:
		return configSynced
	case NotSent, Leaving: // Leaving: the removal was not sent
		return configNotSent
	case Sent:
		return configStale
	case Refused:
		return configError
	default:
		return configUnknown
	}
}

func (r *Resource) clientStatus() protoreflect.EnumNumber {
	if r.Status != 0 {
		return protoreflect.EnumNumber(r.Status)
	}
	switch r.State {
	case Synced, Leaving:
		return clientAcked
	case Absent:
		return clientAbsent
	case Refused:
		return clientNacked
	case Sent, NotSent:
		switch {
		case r.Failure != nil:
			return clientNacked // the client has an earlier version
		case r.Has:
			return clientAcked // the client has an older version
		}
		return clientRequested
	default:
		return clientUnknown
	}
}

// set sets a field, unless v is empty.
func set(m protoreflect.Message, field protoreflect.Name, v any) {
	fd := m.Descriptor().Fields().ByName(field)
	switch v := v.(type) {
	case string:
		if v != "" {
			m.Set(fd, protoreflect.ValueOfString(valid(v)))
		}
	case protoreflect.EnumNumber:
		if v != 0 {
			m.Set(fd, protoreflect.ValueOfEnum(v))
		}
	case time.Time:
		if !v.IsZero() {
			at := m.Mutable(fd).Message()
			fields := at.Descriptor().Fields()
			at.Set(fields.ByName("seconds"), protoreflect.ValueOfInt64(v.Unix()))
			at.Set(fields.ByName("nanos"), protoreflect.ValueOfInt32(int32(v.Nanosecond())))
		}
	case *content:
		if v != nil {
			if fd.IsList() {
				l := m.Mutable(fd).List()
				e := l.NewElement()
				v.into(e.Message())
				l.Append(e)
			} else {
				v.into(m.Mutable(fd).Message())
			}
		}
	}
}

// A content is the encoded form of a resource in an answer, without secrets.
type content struct {
	url   string
	value []byte
}

// into writes the content to a google.protobuf.Any.
func (c *content) into(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	m.Set(fields.ByName("type_url"), protoreflect.ValueOfString(c.url))
	m.Set(fields.ByName("value"), protoreflect.ValueOfBytes(c.value))
}

// contents caches the contents of one answer, because clients share resources.
type contents struct {
	s   *Service
	all map[*xds.Resource]*content
}

// of returns the content of a resource; nil if r is nil or must not be shown.
func (c *contents) of(r *xds.Resource) *content {
	if r == nil {
		return nil
	}
	if known, ok := c.all[r]; ok {
		return known
	}
	is := c.s.content(r)
	if c.all == nil {
		c.all = map[*xds.Resource]*content{}
	}
	c.all[r] = is
	return is
}

func (s *Service) content(r *xds.Resource) *content {
	m, asItIs := s.shown.Shown(r.Type.URL, r.Body)
	if asItIs {
		return &content{r.Type.URL, r.Body}
	}
	if m == nil {
		return nil
	}
	b, err := envoy.Marshal(m.ProtoReflect())
	if err != nil {
		return nil
	}
	return &content{"type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()), b}
}

// failure sets error_state. refused is nil if the refused version is unknown or must not be shown.
func failure(m protoreflect.Message, r *Resource, refused *content) {
	if r.Failure == nil {
		return
	}
	is := m.Mutable(m.Descriptor().Fields().ByName("error_state")).Message()
	set(is, "failed_configuration", refused)
	set(is, "last_update_attempt", r.Failure.At)
	set(is, "details", r.Failure.Text)
	set(is, "version_info", r.Failure.Version)
}

// node sets the fields of an envoy.config.core.v3.Node.
func node(m protoreflect.Message, n *xds.Node) {
	fields := m.Descriptor().Fields()
	set(m, "id", n.ID)
	set(m, "cluster", n.Cluster)
	set(m, "user_agent_name", n.UserAgentName)
	set(m, "user_agent_version", n.UserAgentVersion)
	if n.Region != "" || n.Zone != "" || n.SubZone != "" {
		at := m.Mutable(fields.ByName("locality")).Message()
		set(at, "region", n.Region)
		set(at, "zone", n.Zone)
		set(at, "sub_zone", n.SubZone)
	}
	if len(n.ClientFeatures) > 0 {
		l := m.Mutable(fields.ByName("client_features")).List()
		for _, f := range n.ClientFeatures {
			l.Append(protoreflect.ValueOfString(valid(f)))
		}
	}
}
